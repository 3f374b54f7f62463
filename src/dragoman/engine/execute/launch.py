"""Starting runs: at once, in their turn, or again after a crash; and never before it is durable that they begin."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import msgspec

from dragoman.engine.execute.context import Context
from dragoman.engine.execute.run import Run
from dragoman.model.error import ServerError

if TYPE_CHECKING:
    from dragoman.engine.accept.quota import Quota
    from dragoman.engine.call import Call
    from dragoman.engine.execute.runner import Runner
    from dragoman.engine.journal.live import LiveTask
    from dragoman.engine.journal.replay import Memory, Tasks
    from dragoman.engine.ports import Runnable
    from dragoman.engine.settings import EngineSettings
    from dragoman.model.message import Message


class Launcher:
    """Starts the runs of one agent's tasks.

    Each accepted message starts the agent's code at most once: that a task is at work is durable before the code is
    called, in one commit with the task when it can begin at once. Work that may simply run again does not wait for
    that, nor does anything in a store that is gone with the process.
    """

    def __init__(self, agent: Runnable, tasks: Tasks, runner: Runner, quota: Quota, settings: EngineSettings) -> None:
        self.agent = agent
        self.quota = quota
        self.tasks = tasks
        self.runner = runner
        self.settings = settings

    def context(
        self,
        live: LiveTask,
        call: Call,
        message: Message,
        memory: Memory,
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
            opening=memory.origin.metadata if memory.origin else None,
            answered=memory.answered(answer),
            once=memory.once,
            doubtful=memory.doubtful,
            told=memory.told,
            restarted=restarted,
        )

    def begin(self, live: LiveTask, ctx: Context, *, new_context: bool = False, attempt: int | None = None) -> None:
        """Let a task run, now or in its turn. `attempt` counts the runs of one that may run again and does."""
        if self.agent.marks is not None:
            live.marks = self.agent.marks.task
        launch = _Launch(self, live, ctx, new_context, attempt)
        self.tasks.live[live.id] = live
        if not self.runner.start(live, launch.run):
            if self.tasks.store.durable:
                live.rest(launch.forget)
        elif launch.prepare is None:
            live.begin()


class _Launch:
    """The start of one run. What waits for its turn keeps its message on the disk, and reads it when it begins."""

    def __init__(
        self, launcher: Launcher, live: LiveTask, ctx: Context, new_context: bool, attempt: int | None
    ) -> None:
        agent, tasks, settings = launcher.agent, launcher.tasks, launcher.settings
        self._launcher = launcher
        self._live = live
        self._ctx: Context | None = ctx
        self._new_context = new_context
        self._attempt = attempt
        self._restarts = tasks.store.durable and agent.restarts(ctx)
        # Whoever reads the table of a plug-in sees that a task has begun before anything is done.
        self._waits = (tasks.store.durable and not self._restarts) or attempt is not None or live.row_maker is not None
        self._opening = tasks.clock.call_later(settings.reply_within, live.open) if live.draft else None
        self.prepare = agent.prepare(ctx)

    def forget(self) -> None:
        """Keep nothing of the message."""
        self._ctx = self.prepare = None
        self._launcher.quota.rest(self._live)

    async def run(self) -> None:
        """Run to the end or to a pause."""
        live, launcher, attempt = self._live, self._launcher, self._attempt
        ctx, self._ctx = self._ctx, None
        if ctx is None:
            ctx = await self._restored()
        if launcher.agent.marks is not None:
            ctx.note_metadata = launcher.agent.marks.note or None
        if attempt is not None:
            live.keep("attempt", str(attempt).encode())
        show_errors = launcher.settings.show_errors
        run = Run(launcher.agent, live, ctx, show_errors=show_errors, prepare=self.prepare, once=self._waits)
        try:
            await run.go(None if self._new_context else self._load_state)
        except asyncio.CancelledError:
            if self._restarts and launcher.runner.stopping and not live.over:
                # It was told to stop, and did not bring the server down: that is no attempt.
                live.keep("attempt", str((attempt or 1) - 1).encode())
            raise
        finally:
            if self._opening is not None:
                self._opening.cancel()
        with contextlib.suppress(ServerError):
            await live.durable()

    async def _restored(self) -> Context:
        """The context, with the message read from the disk."""
        live, launcher = self._live, self._launcher
        launcher.quota.wake(live)
        await launcher.tasks.wake(live)
        memory = await launcher.tasks.memory(live.row)
        metadata = memory.origin.metadata if memory.origin else None
        ctx = launcher.context(live, memory.call(live.row), live.folding.history[0], memory, metadata)
        self.prepare = launcher.agent.prepare(ctx)
        return ctx

    async def _load_state(self) -> dict[str, Any]:
        live, store = self._live, self._launcher.tasks.store
        kept = await store.context_state(live.row.scope, live.folding.context_id)
        return msgspec.json.decode(kept) if kept else {}
