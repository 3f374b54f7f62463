"""Accepting messages: new tasks, answers, words for a task at work, repeats, and what a crash left over."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import structs

from dragoman.clock import timestamp
from dragoman.engine.accept.repeats import Repeats
from dragoman.engine.call import Call
from dragoman.engine.execute.context import Context, agent_message, in_doubt
from dragoman.engine.journal.live import LiveTask
from dragoman.engine.journal.replay import Origin
from dragoman.engine.ports import Repeat, Scope, StoredTask, TaskRow
from dragoman.model.error import (
    InvalidParams,
    TaskGenerationMismatch,
    TaskNotFound,
    UnsupportedOperation,
)
from dragoman.model.ids import check_id, new_id
from dragoman.model.json import decode_message, encode
from dragoman.model.message import Message
from dragoman.model.part import Part
from dragoman.model.record import Folding
from dragoman.model.state import Role, State
from dragoman.model.task import Task, TaskStatus

if TYPE_CHECKING:
    from dragoman.engine.accept.locks import KeyedLocks
    from dragoman.engine.execute.launch import Launcher
    from dragoman.engine.journal.replay import Tasks
    from dragoman.engine.ports import Runnable
    from dragoman.engine.settings import EngineSettings
    from dragoman.engine.task_rows import RowMaker
    from dragoman.engine.webhooks import Pushes
    from dragoman.model.operation import SendMessageRequest

logger = logging.getLogger("dragoman.engine")
INTERRUPTED = "interrupted by a restart"


class Accepted(NamedTuple):
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
    """Turns messages into runs."""

    def __init__(
        self,
        agent: Runnable,
        tasks: Tasks,
        launcher: Launcher,
        locks: KeyedLocks,
        settings: EngineSettings,
        pushes: Pushes | None = None,
    ) -> None:
        self._agent = agent
        self._tasks = tasks
        self._launcher = launcher
        self._locks = locks
        self._settings = settings
        self._pushes = pushes
        self._repeats = Repeats(tasks.store, tasks.clock, settings.dedupe)

    async def accept(self, scope: Scope, call: Call, request: SendMessageRequest) -> Accepted:
        """Take a message.

        Raises:
            TaskNotFound: it names a task that is not there, or not the caller's.
            InvalidParams: it names a context that is not the task's, or an id it chose is not printable or too long.
            UnsupportedOperation: its task has ended.
            TaskGenerationMismatch: its task has moved on.
        """
        check_id(request.message.message_id, "message.messageId")
        repeat = self._repeats.mark(scope, request.message)
        if repeat is None:
            return await self._take(scope, call, request, None)
        begins = request.message.task_id is None and request.new_task_id is None and self._namer(call) is None
        if begins and not self._repeats.may_know(repeat):
            # It is marked before anything can come in between, so nobody has to be kept out.
            return self._create(scope, call, request, repeat)
        async with self._locks.hold(repeat.key):
            known = await self._known(scope, call, request.message, repeat)
            if known is not None:
                return known
            return await self._take(scope, call, request, repeat)

    async def _known(self, scope: Scope, call: Call, message: Message, repeat: Repeat) -> Accepted | None:
        task_id = await self._repeats.find(repeat)
        if task_id is None:
            return None
        live = self._tasks.live.get(task_id)
        if live is not None:
            return Accepted(live.row, live, repeat=True)
        try:
            row, live, _ = await self._tasks.find(scope, task_id)
        except TaskNotFound:  # it was answered without a task, or the store did not take it
            now = self._tasks.clock.now()
            reply = await self._tasks.store.reply(repeat.key, now)
            if reply is None:
                return None
            row = TaskRow(0, task_id, scope, message.context_id or "", call.origin, State.COMPLETED, now, 0, now)
            return Accepted(row, None, repeat=True, reply=decode_message(reply))
        return Accepted(row, live, repeat=True)

    def _namer(self, call: Call) -> RowMaker | None:
        """What gives a new task its id, if that is not a random one."""
        row_maker = self._tasks.row_maker(call.origin)
        return row_maker if row_maker is not None and row_maker.names(call) else None

    async def _take(self, scope: Scope, call: Call, request: SendMessageRequest, repeat: Repeat | None) -> Accepted:
        task_id = request.message.task_id or request.new_task_id
        if task_id is None:
            namer = self._namer(call)
            if namer is not None:
                request = structs.replace(request, new_task_id=await self._tasks.unused_id(namer))
            return self._create(scope, call, request, repeat)
        async with self._locks.hold(task_id):
            draft = self._tasks.live.get(task_id)
            if draft is not None and draft.draft:  # whether there is a task of this id is being decided
                await draft.opened()
            try:
                row, live, stored = await self._tasks.find(scope, task_id)
            except TaskNotFound:
                if request.message.task_id is not None:
                    raise
                return await self._create_as_named(scope, call, request, repeat)
            self._check(request, row, live)
            if live is not None and not live.state.waiting:
                return await self._tell(live, request.message, repeat)
            if live is not None:  # paused a moment ago: the run is still being put away
                await live.settled()
                stored = await self._tasks.store.task(task_id)
            if stored is None:
                raise TaskNotFound(taskId=task_id)
            return await self._answer(stored, call, request, repeat)

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
        self, scope: Scope, call: Call, request: SendMessageRequest, repeat: Repeat | None
    ) -> Accepted:
        # The id may be taken in a scope the caller must not learn about, by a task that is not in the store yet, too.
        task_id = request.new_task_id or ""
        taken = await self._tasks.store.task(task_id) is not None
        live = self._tasks.live.get(task_id)
        if taken or (live is not None and live.reply is None):
            raise InvalidParams("this id cannot be used: choose another", field="id")
        return self._create(scope, call, request, repeat)

    def _create(self, scope: Scope, call: Call, request: SendMessageRequest, repeat: Repeat | None) -> Accepted:
        tasks, message = self._tasks, request.message
        # Only here, where something new gets them: what an older version has stored is found by whatever its id is.
        if request.new_task_id is not None:
            check_id(request.new_task_id, "id")
        if message.context_id is not None:
            check_id(message.context_id, "message.contextId")
        if request.configuration.if_generation_match is not None:
            raise InvalidParams("ifGenerationMatch needs a message.taskId", field="configuration.ifGenerationMatch")
        now = tasks.clock.now()
        task_id = request.new_task_id or new_id()
        row_maker = tasks.row_maker(call.origin)
        context_id = message.context_id or (new_id() if row_maker is None else task_id)
        message = structs.replace(message, task_id=task_id, context_id=context_id)
        status = TaskStatus(State.SUBMITTED, None, timestamp(now))
        marks = None if self._agent.marks is None else self._agent.marks.task
        folding = Folding(Task(task_id, context_id, status, history=(message,), metadata=marks or None))
        number = tasks.store.next_number()
        row = TaskRow(number, task_id, scope, context_id, call.origin, State.SUBMITTED, now, 1, now)
        live = LiveTask(tasks.store, tasks.bus, tasks.clock, row, folding, committed=0, row_maker=row_maker)
        live.repeat = repeat
        live.joins = request.message.context_id is not None
        self._hook(live, call, request)
        if call != Call(origin=call.origin) or request.metadata:
            live.request = msgspec.json.encode(Origin(call, request.metadata))
        ctx = Context(live, call, message, clock=tasks.clock, metadata=request.metadata, opening=request.metadata)
        self._remember(repeat, task_id)
        if self._agent.may_reply(ctx) and not request.configuration.return_immediately:
            live.plan()
        else:
            live.create()
        self._launcher.begin(live, ctx, new_context=request.message.context_id is None)
        return Accepted(row, live)

    def _hook(self, live: LiveTask, call: Call, request: SendMessageRequest) -> None:
        """Give a new task the webhook that came with its message. Raises InvalidParams when it cannot be called."""
        config = request.configuration.task_push_notification_config
        if config is None or self._pushes is None:
            return
        # The task itself is what the message is answered with: what comes after it is news.
        push = self._pushes.prepare(config, live.row, call.version, 1)
        live.pushes = (push,)
        live.created = partial(self._pushes.follow, live.row, push)

    # -- words for a task that exists ------------------------------------------------------------------------------

    async def _tell(self, live: LiveTask, message: Message, repeat: Repeat | None) -> Accepted:
        await self._tasks.wake(live)
        message = structs.replace(message, task_id=live.id, context_id=live.folding.context_id)
        kept = live.note("message", encode(message), says=message, repeat=repeat)
        task = live.task()
        self._remember(repeat, live.id)
        live.inbox.append(message)
        live.arrived.set()
        await kept
        return Accepted(live.row, live, task)

    async def _answer(
        self,
        stored: StoredTask,
        call: Call,
        request: SendMessageRequest | None,
        repeat: Repeat | None,
        message: Message | None = None,
    ) -> Accepted:
        row = stored.row
        said = message or (request.message if request else None)
        if said is None or not row.state.waiting:
            raise UnsupportedOperation("the task was interrupted and takes no messages", taskId=row.id)
        live = await self._tasks.revive(stored)
        memory = await self._tasks.memory(row)
        said = structs.replace(said, task_id=row.id, context_id=row.context_id)
        metadata = (request.metadata if request else None) or (memory.origin.metadata if memory.origin else None)
        # No await from here to the run: a caller who leaves must not leave the task working with nobody at it.
        live.status(State.WORKING, notes=(("answer", encode(said)),), says=said, repeat=repeat)
        task = live.task()
        self._remember(repeat, row.id)
        self._launcher.begin(live, self._launcher.context(live, call, said, memory, metadata, answer=said))
        await live.durable(task.generation)
        return Accepted(live.row, live, task)

    def _remember(self, repeat: Repeat | None, task_id: str) -> None:
        if repeat is not None:
            self._repeats.remember(repeat, task_id)

    async def resume(self, task_id: str, data: Any) -> Accepted:
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
                await live.settled()
                stored = await self._tasks.store.task(task_id)
            if stored is None:
                raise TaskNotFound(taskId=task_id)
            memory = await self._tasks.memory(stored.row)
            call = memory.call(stored.row)
            return await self._answer(stored, call, None, None, message)

    # -- what a crash left ---------------------------------------------------------------------------------------

    async def recover(self) -> None:
        """Run again what may run again or never began; fail the rest with a plain reason."""
        store = self._tasks.store
        await self._repeats.load()
        ended: list[LiveTask] = []
        drafts = [(stored, True) for stored in await store.drafts(self._agent.name)]
        for stored, draft in (*drafts, *((one, False) for one in await store.unfinished(self._agent.name))):
            try:
                live = await self._recover(stored, draft=draft)
            except Exception:  # one task that cannot be read must not keep all others from being served
                logger.exception("task %s cannot be recovered", stored.row.id)
                continue
            if live is not None:
                ended.append(live)
        await asyncio.gather(*(live.durable() for live in ended))
        if ended:
            logger.warning("%d tasks were %s and have failed", len(ended), INTERRUPTED)

    async def _recover(self, stored: StoredTask, *, draft: bool) -> LiveTask | None:
        """Let one task run again, or fail it: then it is given back. Whoever waited for a draft to answer is gone."""
        live = await self._tasks.revive(stored, again=True, draft=draft)
        memory = await self._tasks.memory(stored.row)
        call = memory.call(stored.row)
        metadata = memory.origin.metadata if memory.origin else None
        began = draft or stored.row.state is not State.SUBMITTED
        reason = INTERRUPTED
        if live.folding.history:  # one that was put into the store by hand may say nothing that could be run
            message = memory.answers[-1] if memory.answers else live.folding.history[0]
            ctx = self._launcher.context(live, call, message, memory, metadata, restarted=began)
            ctx.listen_again()
            attempt: int | None = None
            if self._agent.restarts(ctx):
                attempt = 1 + (memory.attempt if memory.attempt is not None else 1 if began else 0)
            if not began or attempt is not None:
                if attempt is None or attempt <= self._settings.attempts:
                    self._launcher.begin(live, ctx, attempt=attempt)
                    return None
                reason = f"the server stopped during each of {attempt - 1} attempts: it is not tried again"
        if memory.doubtful:
            reason = f"{reason}; {in_doubt(memory.doubtful)}"
        live.status(State.FAILED, agent_message(live, (Part(text=reason),)))
        return live
