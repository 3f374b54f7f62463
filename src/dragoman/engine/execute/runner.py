"""Which runs go on now, and which wait for their conversation."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any

from dragoman.engine.accept.quota import caller_of
from dragoman.engine.execute.containment import Work, begin_work
from dragoman.engine.execute.context import Context
from dragoman.engine.execute.run import Run
from dragoman.model.user import User

if TYPE_CHECKING:
    from dragoman.engine.accept.quota import Quota
    from dragoman.engine.call import CallContext
    from dragoman.engine.journal.live import LiveTask
    from dragoman.engine.journal.replay import RunHistory
    from dragoman.engine.journal.tasks import Tasks
    from dragoman.engine.ports.agent import Plan, Runnable
    from dragoman.engine.settings import EngineSettings
    from dragoman.model.message import Message

logger = logging.getLogger("dragoman.engine")
# How long a run that was cancelled may take to clean up when the server stops, in seconds.
LAST_WORDS = 3


class Runner:
    """Starts the runs of one agent's tasks. Those of one conversation follow each other unless it says otherwise.

    Each accepted message starts the agent's code at most once: see `Run`.
    """

    def __init__(self, agent: Runnable, tasks: Tasks, quota: Quota, settings: EngineSettings) -> None:
        self.agent = agent
        self.tasks = tasks
        self.quota = quota
        self.settings = settings
        self.stopping = False
        self._parallel = agent.parallel
        self._queues: dict[tuple[object, str], deque[Run]] = {}
        self._workers: set[asyncio.Task[None]] = set()
        self._note_metadata = None if agent.output_metadata is None else agent.output_metadata.progress or None

    def __len__(self) -> int:
        """How many runs go on now."""
        return len(self._workers)

    def context(
        self,
        live: LiveTask,
        call: CallContext,
        message: Message,
        memory: RunHistory,
        metadata: dict[str, Any] | None,
        *,
        answer: Message | None = None,
        restarted: bool = False,
    ) -> Context:
        """The context of a run that is not the first thing its task does."""
        return Context(
            live,
            call,
            message,
            clock=self.tasks.clock,
            metadata=metadata,
            first_metadata=memory.origin.metadata if memory.origin else None,
            progress_metadata=self._note_metadata,
            answers=memory.answered_questions(answer),
            once=memory.once,
            in_doubt=memory.in_doubt,
            followups=memory.followups,
            restarted=restarted,
        )

    def first_context(
        self, live: LiveTask, call: CallContext, message: Message, metadata: dict[str, Any] | None
    ) -> Context:
        """The context of the first run of a new task."""
        return Context(
            live,
            call,
            message,
            clock=self.tasks.clock,
            metadata=metadata,
            first_metadata=metadata,
            progress_metadata=self._note_metadata,
        )

    def create(self, live: LiveTask, ctx: Context, plan: Plan, *, new_context: bool, draft: bool, caller: str) -> None:
        """Write a new task and let it run, now or in its turn: then that it is at work is written with it."""
        begins = self._parallel or (live.row.scope, live.context_id) not in self._queues
        if draft:
            live.write_draft()
            if begins and plan.prepare is None:
                live.begin()
        else:
            live.create(begins=begins and plan.prepare is None)
        self._enter(Run(self, live, ctx, plan, caller, new_context=new_context), begins)

    def begin(
        self, live: LiveTask, ctx: Context, plan: Plan, *, attempt: int | None = None, caller: str | None = None
    ) -> None:
        """Let a task that is there run, now or in its turn. `attempt` counts the runs of one that may run again."""
        begins = self._parallel or (live.row.scope, live.context_id) not in self._queues
        self._enter(Run(self, live, ctx, plan, caller, attempt=attempt), begins)
        if begins and plan.prepare is None:
            live.begin()

    def _enter(self, run: Run, begins: bool) -> None:
        live = run.live
        key = (live.row.scope, live.context_id)
        self.tasks.add(live)
        if begins:
            self._queues.setdefault(key, deque())
            self._spawn(key, run)
        else:
            self._queues[key].append(run)
            if self.tasks.store.durable:
                live.unload(run.forget)

    def _spawn(self, key: tuple[object, str], run: Run) -> None:
        # Not by the loop's own factory, which contains what runs raise: a run does that itself.
        scope, caller = run.live.row.scope, run.caller
        if caller is None:
            caller = caller_of(User(scope.owner)) if scope.owner else ""
        context = copy_context()
        context.run(begin_work, Work(scope.agent, caller))
        worker = asyncio.Task(run.work(), loop=asyncio.get_running_loop(), context=context)
        run.live.attach(worker)
        self._workers.add(worker)
        # Not at the end of the run itself: one that is cancelled before it begins never gets there.
        worker.add_done_callback(partial(self._next, key, run.live))

    def _next(self, key: tuple[object, str], live: LiveTask, done: asyncio.Task[None]) -> None:
        self._workers.discard(done)
        if not done.cancelled() and (error := done.exception()) is not None:
            logger.error("the run of task %s broke off", live.id, exc_info=error)
        self._put_away(live)
        queue = self._queues.get(key)
        while queue:
            run = queue.popleft()
            if not run.live.ended:
                self._spawn(key, run)
                return
            self._put_away(run.live)
        self._queues.pop(key, None)

    def _put_away(self, live: LiveTask) -> None:
        self.quota.end_run(live)
        self.tasks.release(live)

    async def drain(self, seconds: float) -> None:
        """Let the runs finish for that long, those that wait for their conversation too, then cancel what is left."""
        if seconds > 0:
            await self._idle(seconds)
        waiting = [run.live for queue in self._queues.values() for run in queue]
        self._queues.clear()
        if self._workers and seconds > 0:
            logger.warning("%d tasks have not ended within %g s and are cut off", len(self._workers), seconds)
        for live in waiting:
            self._put_away(live)
        self.stopping = True
        for worker in self._workers:
            worker.cancel()
        await self._idle(LAST_WORDS)
        if self._workers:
            logger.error(
                "%d runs go on although they were cancelled: the next start says what became of their tasks",
                len(self._workers),
            )

    async def _idle(self, seconds: float) -> None:
        up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self.tasks.clock.call_later(seconds, lambda: up.done() or up.set_result(None))
        try:
            while self._workers and not up.done():
                await asyncio.wait((*self._workers, up), return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            up.cancel()
