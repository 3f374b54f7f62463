"""Accepting messages: new tasks, answers, words for a task at work, and repeats."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import structs

from dragoman.clock import timestamp
from dragoman.engine.accept.dedupe import Deduplicator
from dragoman.engine.accept.quota import too_many_parts
from dragoman.engine.call import CallContext
from dragoman.engine.journal.live import NewTask
from dragoman.engine.journal.replay import Origin
from dragoman.engine.ports.store import DedupeKey, Scope, StoredTask, TaskRow
from dragoman.model.error import (
    InvalidParams,
    PushNotificationNotSupported,
    TaskGenerationMismatch,
    TaskNotFound,
    UnsupportedOperation,
)
from dragoman.model.ids import check_id, new_id
from dragoman.model.json import decode_message, encode
from dragoman.model.message import Message
from dragoman.model.part import Part
from dragoman.model.state import Role, State
from dragoman.model.task import Task, TaskStatus

if TYPE_CHECKING:
    from dragoman.engine.accept.locks import KeyedLocks
    from dragoman.engine.accept.quota import Lease, Quota
    from dragoman.engine.execute.runner import Runner
    from dragoman.engine.journal.live import LiveTask
    from dragoman.engine.journal.tasks import Tasks
    from dragoman.engine.ports.agent import Runnable
    from dragoman.engine.ports.rows import RowMaker
    from dragoman.engine.ports.store import Push
    from dragoman.engine.settings import EngineSettings
    from dragoman.engine.webhooks import WebhookOperations
    from dragoman.model.operation import SendMessageRequest


class AcceptedMessage(NamedTuple):
    """A message that was taken: its task, alive if it is, and whether it repeats one.

    `task` is what a message that goes on with a task found there, itself included. `reply` is the bare message that
    a repeat is answered with again.
    """

    row: TaskRow
    live: LiveTask | None
    task: Task | None = None
    repeat: bool = False
    reply: Message | None = None


class Inbox:
    """Turns messages into runs: new tasks, answers, and words for a task at work."""

    def __init__(
        self,
        agent: Runnable,
        tasks: Tasks,
        runner: Runner,
        quota: Quota,
        locks: KeyedLocks,
        settings: EngineSettings,
        webhooks: WebhookOperations | None = None,
    ) -> None:
        self._agent = agent
        self._tasks = tasks
        self._runner = runner
        self._quota = quota
        self._locks = locks
        self._settings = settings
        self._webhooks = webhooks
        self._task_metadata = None if agent.output_metadata is None else agent.output_metadata.task or None
        self.deduplicator = Deduplicator(tasks.store, tasks.clock, settings.dedupe)

    async def accept(
        self, scope: Scope, call: CallContext, request: SendMessageRequest, caller: str, lease: Lease | None
    ) -> AcceptedMessage:
        """Take a message, with the webhook that comes with it, within what its caller may have going on.

        Raises:
            TaskNotFound: it names a task that is not there, or not the caller's.
            InvalidParams: it names a context that is not the task's, or an id it chose is not printable or too long.
            UnsupportedOperation: its task has ended.
            TaskGenerationMismatch: its task has moved on.
            Overloaded: the caller has too much going on, or the server has.
        """
        message, quota, alive = request.message, self._quota, self._tasks.live
        if len(message.parts) > self._settings.max_parts:
            raise too_many_parts(self._settings.max_parts, len(message.parts))
        named = message.task_id or request.new_task_id
        at_work = None if named is None else alive.get(named)
        if at_work is not None and at_work.row.scope != scope:
            at_work = None  # somebody else's: not even the limit tells that it is there
        begins = at_work is None or at_work.state.waiting
        if begins:  # else words for a run that goes on: nothing begins
            quota.reserve(caller, len(alive) if at_work is None else 0)
        try:
            if request.configuration.task_push_notification_config is None:
                accepted = await self._route(scope, call, request, caller)
            else:
                accepted = await self._route_with_webhook(scope, call, request, caller)
        except BaseException:
            if begins:
                quota.cancel_reservation(caller)
            raise
        # The run that has got the message: none for a repeat, which begins nothing, and when it has ended already.
        live = accepted.live
        if live is not None and (accepted.repeat or alive.get(live.id) is not live):
            live = None
        if begins:
            quota.start_run(live, caller)
        if lease is not None and live is not None:
            quota.hold_lease(live, lease)
        return accepted

    async def _route_with_webhook(
        self, scope: Scope, call: CallContext, request: SendMessageRequest, caller: str
    ) -> AcceptedMessage:
        webhooks = self._webhooks
        if webhooks is None:
            raise PushNotificationNotSupported
        request = await webhooks.admit(scope, request, call.version)
        accepted = await self._route(scope, call, request, caller)
        await webhooks.add(accepted, request, call.version)
        return accepted

    async def _route(
        self, scope: Scope, call: CallContext, request: SendMessageRequest, caller: str
    ) -> AcceptedMessage:
        """Find out what a message is: a repeat, the beginning of a task, or words for one that is there."""
        message = request.message
        check_id(message.message_id, "message.messageId")
        repeat = self.deduplicator.key_of(scope, message)
        begins = message.task_id is None and request.new_task_id is None
        if begins and self._settings.task_rows is not None and self._namer(call) is not None:
            begins = False
        if repeat is None:
            if begins:
                return self._create(scope, call, request, None, caller)
            return await self._go_on(scope, call, request, None, caller)
        if begins and not self.deduplicator.may_contain(repeat):
            # It is remembered before anything can come in between, so nobody has to be kept out.
            return self._create(scope, call, request, repeat, caller)
        async with self._locks.hold(repeat.digest):
            known = await self._known(scope, call, message, repeat)
            if known is not None:
                return known
            if begins:
                return self._create(scope, call, request, repeat, caller)
            return await self._go_on(scope, call, request, repeat, caller)

    async def _known(
        self, scope: Scope, call: CallContext, message: Message, repeat: DedupeKey
    ) -> AcceptedMessage | None:
        task_id = await self.deduplicator.find(repeat)
        if task_id is None:
            return None
        live = self._tasks.live.get(task_id)
        if live is not None:
            return AcceptedMessage(live.row, live, repeat=True)
        try:
            row, live, _ = await self._tasks.find(scope, task_id)
        except TaskNotFound:  # it was answered without a task, or the store did not take it
            now = self._tasks.clock.now()
            reply = await self._tasks.store.reply(repeat.digest, now)
            if reply is None:
                return None
            row = TaskRow(0, task_id, scope, message.context_id or "", call.origin, State.COMPLETED, now, 0, now)
            return AcceptedMessage(row, None, repeat=True, reply=decode_message(reply))
        return AcceptedMessage(row, live, repeat=True)

    def _namer(self, call: CallContext) -> RowMaker | None:
        """What gives a new task its id, if that is not a random one."""
        row_maker = self._tasks.row_maker(call.origin)
        return row_maker if row_maker is not None and row_maker.assigns_id(call) else None

    async def _go_on(
        self, scope: Scope, call: CallContext, request: SendMessageRequest, repeat: DedupeKey | None, caller: str
    ) -> AcceptedMessage:
        """Take a message that names a task, or whose task gets an id that is not a random one."""
        task_id = request.message.task_id or request.new_task_id
        namer = self._namer(call) if task_id is None else None
        if task_id is None:
            if namer is not None:
                request = structs.replace(request, new_task_id=await self._tasks.unused_id(namer))
            return self._create(scope, call, request, repeat, caller)
        async with self._locks.hold(task_id):
            draft = self._tasks.live.get(task_id)
            if draft is not None and draft.draft:  # whether there is a task of this id is being decided
                await draft.wait_opened()
            try:
                row, live, stored = await self._tasks.find(scope, task_id)
            except TaskNotFound:
                if request.message.task_id is not None:
                    raise
                return await self._create_as_named(scope, call, request, repeat, caller)
            self._check(request, row, live)
            if live is not None and not live.state.waiting:
                return await self._tell(live, request.message, repeat)
            if live is not None:  # paused a moment ago: the run is still being put away
                await live.wait_settled()
                stored = await self._tasks.store.task(task_id)
            if stored is None:
                raise TaskNotFound(taskId=task_id)
            return await self._answer(stored, call, request.message, request.metadata, repeat, caller)

    def _check(self, request: SendMessageRequest, row: TaskRow, live: LiveTask | None) -> None:
        asked = request.message.context_id
        if asked is not None and asked != row.context_id:
            raise InvalidParams("contextId is not the context of this task", field="message.contextId")
        if (live.state if live else row.state).final:
            raise UnsupportedOperation("the task has ended: it takes no more messages", taskId=row.id)
        expected = request.configuration.if_generation_match
        current = live.folding.generation if live else row.generation
        if expected is not None and expected != current:
            raise TaskGenerationMismatch(
                f"the task is at generation {current}, not {expected}",
                taskId=row.id,
                expectedGeneration=str(expected),
                currentGeneration=str(current),
            )

    # -- new tasks -------------------------------------------------------------------------------------------------

    async def _create_as_named(
        self, scope: Scope, call: CallContext, request: SendMessageRequest, repeat: DedupeKey | None, caller: str
    ) -> AcceptedMessage:
        # The id may be taken in a scope the caller must not learn about, by a task that is not in the store yet, too.
        task_id = request.new_task_id or ""
        taken = await self._tasks.store.task(task_id) is not None
        live = self._tasks.live.get(task_id)
        if taken or (live is not None and live.reply is None):
            raise InvalidParams("this id cannot be used: choose another", field="id")
        return self._create(scope, call, request, repeat, caller)

    def _create(
        self, scope: Scope, call: CallContext, request: SendMessageRequest, repeat: DedupeKey | None, caller: str
    ) -> AcceptedMessage:
        tasks, message, metadata = self._tasks, request.message, request.metadata
        # Only here, where something new gets them: what an older version has stored is found by whatever its id is.
        if request.new_task_id is not None:
            check_id(request.new_task_id, "id")
        if message.context_id is not None:
            check_id(message.context_id, "message.contextId")
        if request.configuration.if_generation_match is not None:
            raise InvalidParams("ifGenerationMatch needs a message.taskId", field="configuration.ifGenerationMatch")
        now = tasks.clock.now()
        task_id = request.new_task_id or new_id()
        joins = message.context_id is not None
        context_id = message.context_id or (
            new_id() if self._settings.task_rows is None or tasks.row_maker(call.origin) is None else task_id
        )
        message = structs.replace(message, task_id=task_id, context_id=context_id)
        status = TaskStatus(State.SUBMITTED, None, timestamp(now))
        row = TaskRow(tasks.store.next_number(), task_id, scope, context_id, call.origin, State.SUBMITTED, now, 1, now)
        webhook = None
        if request.configuration.task_push_notification_config is not None and self._webhooks is not None:
            # The task itself is what the message is answered with: what comes after it is news.
            webhook = self._webhooks.prepare(request.configuration.task_push_notification_config, row, call.version, 1)
        plain = not metadata and call == CallContext(origin=call.origin)
        new = NewTask(
            row,
            Task(task_id, context_id, status, history=(message,), metadata=self._task_metadata),
            joins,
            None if plain else msgspec.json.encode(Origin(call, metadata)),
            repeat,
            webhook,
        )
        live = tasks.new(new, None if webhook is None else partial(self._follow, row, webhook))
        ctx = self._runner.first_context(live, call, message, metadata)
        if repeat is not None:
            self.deduplicator.add(repeat, task_id)
        plan = self._agent.plan(ctx)
        draft = plan.replies and not request.configuration.return_immediately
        self._runner.create(live, ctx, plan, new_context=not joins, draft=draft, caller=caller)
        return AcceptedMessage(row, live)

    def _follow(self, row: TaskRow, webhook: Push) -> None:
        if self._webhooks is not None:
            self._webhooks.follow(row, webhook)

    # -- words for a task that exists ------------------------------------------------------------------------------

    async def _tell(self, live: LiveTask, message: Message, repeat: DedupeKey | None) -> AcceptedMessage:
        await self._tasks.reload(live)
        message = structs.replace(message, task_id=live.id, context_id=live.folding.context_id)
        kept = live.note("message", encode(message), history_message=message, dedupe_key=repeat)
        task = live.task()
        if repeat is not None:
            self.deduplicator.add(repeat, live.id)
        live.deliver(message)
        await kept
        return AcceptedMessage(live.row, live, task)

    async def _answer(
        self,
        stored: StoredTask,
        call: CallContext,
        message: Message,
        metadata: dict[str, Any] | None,
        repeat: DedupeKey | None,
        caller: str | None,
    ) -> AcceptedMessage:
        row = stored.row
        if not row.state.waiting:
            raise UnsupportedOperation("the task was interrupted and takes no messages", taskId=row.id)
        live = await self._tasks.load(stored)
        memory = await self._tasks.run_history(row)
        message = structs.replace(message, task_id=row.id, context_id=row.context_id)
        metadata = metadata or (memory.origin.metadata if memory.origin else None)
        # No await from here to the run: a caller who leaves must not leave the task working with nobody at it.
        live.status(State.WORKING, notes=(("answer", encode(message)),), history_message=message, dedupe_key=repeat)
        task = live.task()
        if repeat is not None:
            self.deduplicator.add(repeat, row.id)
        ctx = self._runner.context(live, call, message, memory, metadata, answer=message)
        self._runner.begin(live, ctx, self._agent.plan(ctx), caller=caller)
        await live.wait_durable(task.generation)
        return AcceptedMessage(live.row, live, task)

    async def resume(self, task_id: str, data: Any) -> AcceptedMessage:
        """Answer a waiting task from inside the server. Raises TaskNotFound or UnsupportedOperation."""
        stored = await self._tasks.store.task(task_id)
        if stored is None or stored.row.scope.agent != self._agent.name:
            raise TaskNotFound(taskId=task_id)
        scope = stored.row.scope
        row, _, _ = await self._tasks.find(scope, task_id)
        if not row.state.waiting:
            raise UnsupportedOperation(f"task {task_id} is {row.state}: it does not wait", taskId=task_id)
        message = Message(new_id(), Role.USER, (Part(data=data),), row.context_id, task_id)
        async with self._locks.hold(task_id):
            _, live, stored = await self._tasks.find(scope, task_id)
            if live is not None:
                if not live.state.waiting:  # somebody else was first
                    raise UnsupportedOperation("the task does not wait", taskId=task_id)
                await live.wait_settled()
                stored = await self._tasks.store.task(task_id)
            if stored is None:
                raise TaskNotFound(taskId=task_id)
            memory = await self._tasks.run_history(stored.row)
            call = memory.call(stored.row)
            return await self._answer(stored, call, message, None, None, None)
