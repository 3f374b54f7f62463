"""Accepts messages: new tasks, answers to waiting tasks, follow-ups to working tasks, and repeats."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec
from msgspec import structs

from dragoman.clock import sleep, timestamp
from dragoman.engine.call import CallContext
from dragoman.engine.execute.traces import link_to_task
from dragoman.engine.journal.new_task import NewTask
from dragoman.engine.journal.replay import RunHistory, StoredRequest
from dragoman.engine.journal.tasks import ELSEWHERE
from dragoman.engine.ports.ownership import ContextBusy, MessageRepeated, OwnershipLost
from dragoman.engine.ports.store import ACCEPTED, DedupeKey, Scope, StoredTask, TaskRow, Verdict
from dragoman.engine.quota import too_many_parts
from dragoman.engine.shielded import shielded
from dragoman.model.error import (
    InvalidParams,
    PushNotificationNotSupported,
    ServerError,
    TaskGenerationMismatch,
    TaskNotFound,
    UnsupportedOperation,
)
from dragoman.model.ids import check_id, new_id
from dragoman.model.json import decode_message, encode
from dragoman.model.message import Message
from dragoman.model.state import State
from dragoman.model.task import Task, TaskStatus
from dragoman.telemetry import trace
from dragoman.telemetry.spans import TRACING

if TYPE_CHECKING:
    from collections.abc import Generator

    from dragoman.engine.accept.dedupe import DedupeWindow
    from dragoman.engine.execute.runner import Runner
    from dragoman.engine.journal.live import LiveTask
    from dragoman.engine.journal.tasks import Tasks
    from dragoman.engine.locks import KeyedLocks
    from dragoman.engine.ports.agent import Runnable
    from dragoman.engine.ports.rows import RowMaker
    from dragoman.engine.ports.store import Push
    from dragoman.engine.quota import Lease, Quota
    from dragoman.engine.settings import EngineSettings
    from dragoman.engine.webhooks import WebhookOperations
    from dragoman.model.operation import SendMessageRequest


# How often it is decided anew because another message or process was faster, and the pause before that.
TRIES = 40
RETRY_SECONDS = 0.05
CUT_OFF = "this server has lost the connection to its store: try again with the same messageId"
# The pause between two looks at a draft of another process.
_DRAFT_SECONDS = 0.25


class AcceptedMessage(NamedTuple):
    """The outcome of accepting a message: its task's row, its live task if there is one, and whether it is a repeat.

    `task` is the existing task after the message was added to it; None for a new task and for a repeat. `reply` is the
    stored bare message that a repeat is answered with. `verdict` is what the store says of a new task.
    """

    row: TaskRow
    live: LiveTask | None
    task: Task | None = None
    repeat: bool = False
    reply: Message | None = None
    verdict: Verdict | None = ACCEPTED


class Inbox:
    """Accepts messages and starts their runs. Each accepted message starts the agent's code at most once."""

    def __init__(
        self,
        agent: Runnable,
        tasks: Tasks,
        runner: Runner,
        quota: Quota,
        locks: KeyedLocks,
        settings: EngineSettings,
        window: DedupeWindow,
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
        self._window = window

    async def accept(
        self, scope: Scope, call: CallContext, request: SendMessageRequest, caller: str, lease: Lease | None
    ) -> AcceptedMessage:
        """Accept a message and its webhook within the caller's quotas.

        Raises:
            TaskNotFound: it names a task that does not exist or belongs to another caller.
            InvalidParams: it has too many parts, an id that cannot be used, another context than its task, a
                generation to match but no task, or a webhook that is malformed or not allowed.
            UnsupportedOperation: its task has ended, or was interrupted and is not recovered.
            TaskGenerationMismatch: its task is not at the expected generation.
            PushNotificationNotSupported: it brings a webhook, and this agent sends none.
            Overloaded: the caller, the server or the task has reached a limit.
            ServerError: the store cannot take writes, another process owns the task, or the server is stopping.
        """
        message, quota, live_tasks = request.message, self._quota, self._tasks.live
        if (TRACING.on or trace.current.get() is not None) and (context := trace.snapshot()) is not None:
            call = structs.replace(call, trace=context)
        if len(message.parts) > self._settings.max_parts:
            raise too_many_parts(self._settings.max_parts, len(message.parts))
        task_id = message.task_id or request.new_task_id
        target = None if task_id is None else live_tasks.get(task_id)
        if target is not None and target.row.scope != scope:
            target = None  # another caller's: the quota must not reveal that it exists
        starts_run = target is None or target.row.state.waiting
        if starts_run:  # a follow-up to a working task starts no run
            quota.reserve(caller, len(live_tasks) if target is None else 0)
        try:
            created = self._create_if_possible(scope, call, request, caller)
        except BaseException:
            if starts_run:
                quota.cancel_reservation(caller)
            raise
        if created is None or created.verdict is not ACCEPTED:
            if lease is not None:
                lease.hold()
            accepting = self._accept_waiting(scope, call, request, caller, lease, starts_run, created)
            # A caller who gives up does not undo what an existing task got.
            return await accepting if message.task_id is None else await shielded(accepting)
        self._count(created, caller, lease, starts_run)
        return created

    async def _accept_waiting(
        self,
        scope: Scope,
        call: CallContext,
        request: SendMessageRequest,
        caller: str,
        lease: Lease | None,
        starts_run: bool,
        created: AcceptedMessage | None,
    ) -> AcceptedMessage:
        """Accept a message for which something must be read or awaited. The lease was held for this."""
        try:
            if request.configuration.task_push_notification_config is None:
                accepted = await self._route(scope, call, request, caller, created)
            else:
                accepted = await self._route_with_webhook(scope, call, request, caller)
            self._count(accepted, caller, lease, starts_run)
        except BaseException:
            if starts_run:
                self._quota.cancel_reservation(caller)
            raise
        finally:
            if lease is not None:
                lease.release()
        if TRACING.on and request.message.task_id is not None:
            await link_to_task(self._tasks, accepted.row)
        return accepted

    def _count(self, accepted: AcceptedMessage, caller: str, lease: Lease | None, starts_run: bool) -> None:
        """Count an accepted message for its caller, until the run that got it ends."""
        # The live task whose run got the message; None for a repeat, or when the run has ended already.
        live = accepted.live
        if live is not None and (accepted.repeat or self._tasks.live.get(live.row.id) is not live):
            live = None
        if starts_run:
            self._quota.start_run(live, caller)
        if lease is not None and live is not None:
            self._quota.hold_lease(live, lease)

    async def _route_with_webhook(
        self, scope: Scope, call: CallContext, request: SendMessageRequest, caller: str
    ) -> AcceptedMessage:
        webhooks = self._webhooks
        if webhooks is None:
            raise PushNotificationNotSupported
        request = await webhooks.admit(scope, request, call.version)
        accepted = await self._route(scope, call, request, caller)
        await webhooks.add(accepted.row, accepted.task, request, call.version, repeat=accepted.repeat)
        return accepted

    async def _route(
        self,
        scope: Scope,
        call: CallContext,
        request: SendMessageRequest,
        caller: str,
        created: AcceptedMessage | None = None,
    ) -> AcceptedMessage:
        """Decide what a message is, a repeat, a new task or one to an existing task: the store has the last word."""
        if created is None and self._tasks.ownership.expired:  # the caller may ask another server, which is not cut off
            raise ServerError(CUT_OFF, retryAfter="1")
        dedupe_key = self._window.key_of(scope, request.message)
        task_id = request.message.task_id or request.new_task_id
        if task_id is None:
            return await self._create_decided(scope, call, request, dedupe_key, caller, created)
        async with self._locks.hold(task_id):
            for _ in range(TRIES):
                accepted = await self._try_existing(scope, call, request, dedupe_key, caller, task_id)
                if accepted is not None:
                    return accepted
                # Another process has claimed it or changed its state, and is about to write that.
                await sleep(self._tasks.clock, RETRY_SECONDS)
            raise ServerError(ELSEWHERE)

    def _create_if_possible(
        self,
        scope: Scope,
        call: CallContext,
        request: SendMessageRequest,
        caller: str,
    ) -> AcceptedMessage | None:
        """Create the task of a message. None when something must be awaited before that."""
        message = request.message
        check_id(message.message_id, "message.messageId")
        if request.configuration.task_push_notification_config is not None:
            return None  # a webhook must be admitted first
        if message.task_id is not None or request.new_task_id is not None:
            return None
        if self._settings.task_rows is not None and self._id_source(call) is not None:
            return None  # getting an id from a row maker takes an await: see `_create_decided`
        if self._tasks.ownership.expired:
            return None
        return self._create(scope, call, request, self._window.key_of(scope, message), caller)

    async def _create_decided(
        self,
        scope: Scope,
        call: CallContext,
        request: SendMessageRequest,
        dedupe_key: DedupeKey | None,
        caller: str,
        created: AcceptedMessage | None = None,
    ) -> AcceptedMessage:
        """Create a task, if that was not done already, and wait until the store has decided about it."""
        id_source = self._id_source(call) if request.new_task_id is None and self._settings.task_rows else None
        allow_draft = True
        for _ in range(TRIES):
            if created is None:
                if id_source is not None:
                    request = structs.replace(request, new_task_id=await self._tasks.unused_id(id_source))
                created = self._create(scope, call, request, dedupe_key, caller, allow_draft=allow_draft)
            new, verdict, created = created, created.verdict, None
            if verdict is ACCEPTED:
                return new
            try:
                if verdict is None:
                    return await self._wait_accepted(new)
            except MessageRepeated:
                pass
            except ContextBusy:  # only a draft begins with its creation; as a task it can be queued
                allow_draft = False
                continue
            except TaskGenerationMismatch:
                if id_source is None:
                    return await self._find_same(scope, call, request.message, dedupe_key)
                continue
            duplicate = await self._find_duplicate(
                scope, call, request.message, dedupe_key, verdict.duplicate_of if verdict else None
            )
            if duplicate is not None:
                return duplicate
            if verdict is not None:  # the other message is still on its way to the store, and may be refused
                await sleep(self._tasks.clock, RETRY_SECONDS)
        raise ServerError(ELSEWHERE)

    async def _wait_accepted(self, accepted: AcceptedMessage) -> AcceptedMessage:
        """Wait until the store has accepted a new task. Announces one that has no run here.

        Raises:
            TaskGenerationMismatch: there is a task with its id.
            ServerError: as `LiveTask.wait_accepted` does.
        """
        live = accepted.live
        assert live is not None
        try:
            with self._counting_anyway(live):
                await live.wait_accepted()
        except ServerError:
            if isinstance(live.durability.cause, TaskGenerationMismatch):
                raise live.durability.cause from None
            raise
        if live.worker is not None or self._tasks.live.get(live.row.id) is live:
            return accepted
        self._tasks.ownership.announce_work()
        return AcceptedMessage(live.row, None)

    async def _find_duplicate(
        self,
        scope: Scope,
        call: CallContext,
        message: Message,
        dedupe_key: DedupeKey | None,
        task_id: str | None = None,
    ) -> AcceptedMessage | None:
        """Find the task or the reply of a repeated message; None when it is new after all.

        `task_id` is that of its task, as far as that is known. While it is a draft elsewhere, wait for either.

        Raises:
            ServerError: what the message began was refused, or its draft is not answered in time.
        """
        store, clock = self._tasks.store, self._tasks.clock
        if dedupe_key is None:
            return None
        if task_id is None:
            task_id = await store.duplicate_of(dedupe_key.digest, clock.now())
        deadline = clock.now() + round(self._settings.long_poll * 1000)
        while task_id is not None:
            with self._tasks.bus.watch(task_id) as watch:
                duplicate = await self._read_duplicate(scope, call, task_id, message, dedupe_key)
                if duplicate is not None:
                    return duplicate
                task_id = await store.duplicate_of(dedupe_key.digest, clock.now())
                if task_id is not None:
                    if clock.now() >= deadline:
                        raise ServerError(ELSEWHERE)
                    await watch.wait_past(0, _DRAFT_SECONDS)
        return None

    async def _read_duplicate(
        self, scope: Scope, call: CallContext, task_id: str, message: Message, dedupe_key: DedupeKey
    ) -> AcceptedMessage | None:
        """Return what a repeated message is answered with. None while its task is a draft that is not live here."""
        live = self._tasks.live.get(task_id)
        if live is None:
            try:
                row, live, _ = await self._tasks.find(scope, task_id)
            except TaskNotFound:  # it was answered with a bare message, or the store refused the task
                now = self._tasks.clock.now()
                reply = await self._tasks.store.reply(dedupe_key.digest, now)
                if reply is None:
                    return None
                # A placeholder: a message that was answered with a bare reply has no stored task.
                row = TaskRow(0, task_id, scope, message.context_id or "", call.origin, State.COMPLETED, now, 0, now)
                return AcceptedMessage(row, None, repeat=True, reply=decode_message(reply))
        else:
            row = live.row
        if live is not None:  # nobody may learn that a message was accepted before that is durable
            try:
                await live.wait_durable(1 if message.task_id is None else None)
            except MessageRepeated:
                return None
            except OwnershipLost:  # the task goes on elsewhere
                pass
        return AcceptedMessage(row, live, repeat=True)

    async def _find_same(
        self, scope: Scope, call: CallContext, message: Message, dedupe_key: DedupeKey | None
    ) -> AcceptedMessage:
        """Find the task with the id that the caller chose: it may be that of the same message. Raises InvalidParams."""
        duplicate = await self._find_duplicate(scope, call, message, dedupe_key)
        if duplicate is None:
            raise InvalidParams("this id cannot be used: choose another", field="id")
        return duplicate

    def _id_source(self, call: CallContext) -> RowMaker | None:
        """The row maker that assigns the id of a new task; None when the id is random."""
        row_maker = self._tasks.row_maker(call.origin)
        return row_maker if row_maker is not None and row_maker.assigns_id(call) else None

    def _check_can_accept(self, request: SendMessageRequest, row: TaskRow, live: LiveTask | None) -> None:
        context_id = request.message.context_id
        if context_id is not None and context_id != row.context_id:
            raise InvalidParams("contextId is not the context of this task", field="message.contextId")
        if (live.row.state if live else row.state).final:
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

    def _create(
        self,
        scope: Scope,
        call: CallContext,
        request: SendMessageRequest,
        dedupe_key: DedupeKey | None,
        caller: str,
        *,
        allow_draft: bool = True,
    ) -> AcceptedMessage:
        tasks, message, metadata = self._tasks, request.message, request.metadata
        if request.configuration.accepted_output_modes and request.configuration.accepts_only_text:
            call = structs.replace(call, text_only=True)
        # Checked only for new tasks: those that an older version stored stay reachable whatever their ids.
        if request.new_task_id is not None:
            check_id(request.new_task_id, "id")
        if message.context_id is not None:
            check_id(message.context_id, "message.contextId")
        if request.configuration.if_generation_match is not None:
            raise InvalidParams("ifGenerationMatch needs a message.taskId", field="configuration.ifGenerationMatch")
        now = tasks.clock.now()
        task_id = request.new_task_id or new_id()
        joins_context = message.context_id is not None
        context_id = message.context_id or (
            new_id() if self._settings.task_rows is None or tasks.row_maker(call.origin) is None else task_id
        )
        message = structs.replace(message, task_id=task_id, context_id=context_id)
        status = TaskStatus(State.SUBMITTED, None, timestamp(now))
        row = TaskRow(tasks.store.next_number(), task_id, scope, context_id, call.origin, State.SUBMITTED, now, 1, now)
        webhook = None
        if request.configuration.task_push_notification_config is not None and self._webhooks is not None:
            # Generation 1, the task itself, is in the response: the webhook gets what follows.
            webhook = self._webhooks.prepare(request.configuration.task_push_notification_config, row, call.version, 1)
        task_metadata = self._task_metadata
        if call.task_metadata is not None:
            task_metadata = {**(task_metadata or {}), **call.task_metadata}
        # A default request is not stored: `RunHistory.call` rebuilds it from the row.
        is_default_request = not metadata and call == CallContext(origin=call.origin)
        new = NewTask(
            row,
            Task(task_id, context_id, status, history=(message,), metadata=task_metadata),
            joins_context,
            None if is_default_request else msgspec.json.encode(StoredRequest(call, metadata)),
            dedupe_key,
            webhook,
        )
        live = tasks.new(new, None if webhook is None else partial(self._follow, row, webhook))
        ctx = self._runner.build_first_context(live, call, message, metadata)
        plan = self._agent.plan(ctx)
        draft = plan.replies and allow_draft and not request.configuration.return_immediately
        verdict = self._runner.create(
            live, ctx, plan, new_context=not joins_context, draft=draft, caller=caller, parent=call.trace or None
        )
        return AcceptedMessage(row, live, verdict=verdict)

    def _follow(self, row: TaskRow, webhook: Push) -> None:
        if self._webhooks is not None:
            self._webhooks.follow(row, webhook)

    # -- messages to an existing task ------------------------------------------------------------------------------

    async def _try_existing(
        self,
        scope: Scope,
        call: CallContext,
        request: SendMessageRequest,
        dedupe_key: DedupeKey | None,
        caller: str,
        task_id: str,
    ) -> AcceptedMessage | None:
        """Accept a message to an existing task, or one that creates it. None when another process was faster."""
        tasks, message = self._tasks, request.message
        try:
            found, had_ended = await self._find_existing(scope, task_id)
        except OwnershipLost:
            return None
        # After the task was read: what another process accepts from now on changes its generation.
        duplicate = await self._find_duplicate(scope, call, message, dedupe_key)
        if duplicate is not None:
            return duplicate
        if found is None:
            if message.task_id is not None:
                raise TaskNotFound(taskId=task_id)
            other = await tasks.store.task(task_id)
            if other is not None and other.row.scope == scope:
                return None
            # It may be of another caller, stored or on its way: the error does not say which.
            unstored = tasks.live.get(task_id)
            if other is not None or (unstored is not None and unstored.outcome.reply is None):
                raise InvalidParams("this id cannot be used: choose another", field="id")
            return await self._create_decided(scope, call, request, dedupe_key, caller)
        row, live, stored = found
        if live is not None and live.phase.has_ended and not had_ended:
            return None  # it ended only now: another process may have been faster
        self._check_can_accept(request, row, live)
        if live is not None and live.row.state.waiting:  # it has just paused and its run is still being released
            with suppress(OwnershipLost):
                await live.durability.wait_settled()
            if not row.state.waiting:
                return None
        if row.state.waiting and not await self._waits_for_login(row):
            return await self._answer(stored or await tasks.store.task(task_id), call, request, dedupe_key, caller)
        return await self._post(scope, call, request, dedupe_key, row, None if row.state.waiting else live)

    async def _find_existing(
        self, scope: Scope, task_id: str
    ) -> tuple[tuple[TaskRow, LiveTask | None, StoredTask | None] | None, bool]:
        """Find a task, and whether its run here has ended. Raises OwnershipLost when its end was refused."""
        current = self._tasks.live.get(task_id)
        if current is not None and current.phase.is_draft:  # wait until it is either a task or answered without one
            with suppress(OwnershipLost):
                await current.wait_durable(1)
        try:
            found = await self._tasks.find(scope, task_id)
        except TaskNotFound:
            return None, False
        live = found[1]
        if live is None or not live.phase.has_ended:
            return found, False
        await live.wait_durable()  # until then, other processes accept messages for it, and perhaps this one
        return found, True

    async def _post(
        self,
        scope: Scope,
        call: CallContext,
        request: SendMessageRequest,
        dedupe_key: DedupeKey | None,
        row: TaskRow,
        live: LiveTask | None,
    ) -> AcceptedMessage | None:
        message = structs.replace(request.message, task_id=row.id, context_id=row.context_id)
        if live is not None and self._tasks.ownership.is_current(live.claim):
            await self._tasks.reload(live)
            added = live.add_follow_up(message, dedupe_key)
            task = live.task()
            await added
            return AcceptedMessage(live.row, live, task)
        if live is None and not row.state.waiting and self._tasks.ownership.is_home:
            current = self._tasks.live.get(row.id)
            if current is None:  # nobody could give the message to a run
                raise UnsupportedOperation("the task was interrupted and takes no messages", taskId=row.id)
            current.durability.check()
            return None
        # One that waits for a login must still do so: at its next pause, a message may be the answer.
        expected = row.generation if row.state.waiting else request.configuration.if_generation_match
        try:
            if not await self._tasks.ownership.post(row, encode(message), dedupe_key, expected):
                return None
        except MessageRepeated:
            return await self._find_duplicate(scope, call, message, dedupe_key)
        if live is not None:
            await self._tasks.refresh(live)
        stored = await self._tasks.store.task(row.id)
        if stored is None:
            raise TaskNotFound(taskId=row.id)
        return AcceptedMessage(stored.row, self._tasks.live_of(stored), await self._tasks.read(stored))

    async def _answer(
        self,
        stored: StoredTask | None,
        call: CallContext,
        request: SendMessageRequest,
        dedupe_key: DedupeKey | None,
        caller: str | None,
    ) -> AcceptedMessage | None:
        if stored is None:
            return None
        try:
            return await self._claim_and_resume(
                stored, call, request.message, request.metadata, dedupe_key, caller, kind="answer"
            )
        except MessageRepeated:
            return await self._find_duplicate(stored.row.scope, call, request.message, dedupe_key)

    async def _waits_for_login(self, row: TaskRow) -> bool:
        """True when only `resume` continues a task: a message to it is kept, and answers nothing.

        It is the stored pause that says so, whoever paused the task. One of a version that stored no handles has none:
        nobody can continue it.
        """
        if row.state is not State.AUTH_REQUIRED:
            return False
        question = (await self._tasks.run_history(row)).open_question
        return question is None or not question.forwards

    async def _resume_live(
        self,
        live: LiveTask,
        history: RunHistory,
        call: CallContext,
        message: Message,
        metadata: dict[str, Any] | None,
        dedupe_key: DedupeKey | None,
        caller: str | None,
        kind: Literal["answer", "resumed"] = "answer",
    ) -> AcceptedMessage:
        """Write down what continues a claimed task, and start its run. What was "resumed" is not in the history."""
        row = live.row
        message = structs.replace(message, task_id=row.id, context_id=row.context_id)
        metadata = metadata or (history.request.metadata if history.request else None)
        # No await from here to the run: a canceled request must not leave the task working without a run.
        live.status(
            State.WORKING,
            notes=((kind, encode(message)),),
            history_message=message if kind == "answer" else None,
            dedupe_key=dedupe_key,
        )
        task = live.task()
        if not self._runner.may_run_here():
            try:
                await live.wait_durable(task.generation)
            finally:
                self._tasks.ownership.release(live.claim)
            return AcceptedMessage(live.row, None, task)
        if history.undelivered:  # what came while it waited for a login is read as if it came now
            live.follow_ups.add(*history.followups[-history.undelivered :])
            history = history._replace(followups=history.followups[: -history.undelivered])
        ctx = self._runner.build_context(live, call, message, history, metadata, answer=message)
        task_trace = history.call(row).trace or None
        parent = call.trace or None
        link = task_trace if task_trace != parent else None
        self._runner.begin(live, ctx, self._agent.plan(ctx), caller=caller, parent=parent, link=link)
        with self._counting_anyway(live):
            await live.wait_durable(task.generation)
        return AcceptedMessage(live.row, live, task)

    @contextmanager
    def _counting_anyway(self, live: LiveTask) -> Generator[None]:
        """Count a run that goes on for its user, though the caller whose message has started it gives up."""
        try:
            yield
        except asyncio.CancelledError:
            if self._tasks.live.get(live.row.id) is live:
                self._quota.recover((live,))
            raise

    async def go_on(self, stored: StoredTask, call: CallContext, message: Message) -> AcceptedMessage | None:
        """Continue a waiting task with something that its caller has not sent. None when another process was faster.

        Raises:
            ServerError: the store cannot take writes.
        """
        return await self._claim_and_resume(stored, call, message, None, None, None, kind="resumed")

    async def _claim_and_resume(
        self, stored: StoredTask, *answer: Any, kind: Literal["answer", "resumed"]
    ) -> AcceptedMessage | None:
        """Claim a waiting task and continue it. None when another process was faster."""
        # Read before the claim, which keeps others from answering.
        history = await self._tasks.run_history(stored.row, stored.mail)
        claimed = await self._tasks.ownership.claim(stored)
        if claimed is None:
            return None
        if not claimed.stored.row.state.waiting:
            self._tasks.ownership.release(claimed.claim)
            return None
        live: LiveTask | None = None
        try:
            live = await self._tasks.load(claimed)
            if live.mail != stored.mail:  # messages came meanwhile
                history = await self._tasks.run_history(stored.row, live.mail)
            return await self._resume_live(live, history, *answer, kind=kind)
        except MessageRepeated:
            raise
        except BaseException:
            if live is None or live.row.state.waiting:  # the answer was not written: another process may try
                self._tasks.ownership.release(claimed.claim)
            raise
