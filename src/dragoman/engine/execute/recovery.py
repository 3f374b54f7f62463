"""Decides about tasks without a run: what a crash interrupted, what is queued, and what the store has refused."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from dragoman.engine.execute.context import agent_message, describe_in_doubt
from dragoman.engine.execute.run import may_restart
from dragoman.engine.journal.phase import Phase
from dragoman.model.error import ServerError
from dragoman.model.part import Part
from dragoman.model.state import State
from dragoman.telemetry.metrics.catalog import METRICS

if TYPE_CHECKING:
    from dragoman.engine.execute.runner import Runner
    from dragoman.engine.journal.live import LiveTask
    from dragoman.engine.journal.tasks import Tasks
    from dragoman.engine.ports.agent import Runnable
    from dragoman.engine.ports.ownership import ClaimedTask, Ownership
    from dragoman.engine.settings import EngineSettings

logger = logging.getLogger("dragoman.engine")
INTERRUPTED = "interrupted by a restart"
TAKEN_OVER = "the server that ran it is gone"
_NO_LIMIT = 1 << 30


class Recovery:
    """Starts, restarts or fails tasks without a run. `adopt` alone decides, whichever way they came to that."""

    def __init__(
        self, agent: Runnable, tasks: Tasks, runner: Runner, settings: EngineSettings, ownership: Ownership
    ) -> None:
        self._agent = agent
        self._tasks = tasks
        self._runner = runner
        self._settings = settings
        self._ownership = ownership

    async def recover(self) -> None:
        """Run the tasks that never started or may be restarted; fail the others with a plain reason.

        A task that cannot be read is logged and left as it is.

        Raises:
            ServerError: the failures could not be written.
        """
        ended: list[LiveTask] = []
        for claimed in await self._ownership.take(self._agent.name, parallel=self._agent.parallel, limit=_NO_LIMIT):
            live = await self.adopt(claimed, INTERRUPTED)
            if live is not None:
                ended.append(live)
        await asyncio.gather(*(live.wait_durable() for live in ended))
        if ended:
            noun = "task was" if len(ended) == 1 else "tasks were"
            logger.warning("%d %s %s and failed", len(ended), noun, INTERRUPTED)

    async def adopt(self, claimed: ClaimedTask, why: str = TAKEN_OVER, *, raises: bool = False) -> LiveTask | None:
        """Run a claimed task that has no run, or fail it because of `why` and return it.

        What had not begun, or may begin again, is run, and its attempts are counted. When this process has no room for
        it, the task is queued instead. One that cannot be read is logged and left as it is. One whose failure the store
        has refused is returned, too.

        Raises:
            ServerError: with `raises`, the store does not answer: it is to be tried again.
        """
        live: LiveTask | None = None
        try:
            live = await self._tasks.load(claimed, restart=True)
            return await self._recover(claimed, live, why)
        except Exception as error:  # one unreadable task must not prevent the server from starting
            if live is not None and live.phase is Phase.REFUSED:
                return live
            if isinstance(error, ServerError):
                if raises:
                    raise
                # The store does not answer. A comparison of claims with runs finds it again.
                logger.warning("task %s cannot be recovered now: %s", claimed.stored.row.id, error)
            else:
                logger.exception("task %s cannot be recovered", claimed.stored.row.id)
            self._count(claimed, "error")
            return None

    async def _recover(self, claimed: ClaimedTask, live: LiveTask, reason: str) -> LiveTask | None:
        """Run a task again, or fail it and return it. A draft becomes a task: its caller is no longer connected."""
        stored, began = claimed.stored, claimed.begun
        if claimed.home is not None:
            reason = f"its session was on the node {claimed.home}, which is gone: start a new conversation"
            live.status(State.FAILED, agent_message(live, (Part(text=reason),)))
            self._count(claimed, "failed")
            return live
        history = await self._tasks.run_history(stored.row, stored.mail)
        call = history.call(stored.row)
        metadata = history.request.metadata if history.request else None
        if live.folding.history:  # a task imported into the store may have no message to run
            message = history.answers[-1] if history.answers else live.folding.history[0]
            ctx = self._runner.build_context(live, call, message, history, metadata, restarted=began)
            ctx.replay_followups()
            attempt: int | None = None
            plan = self._agent.plan(ctx)
            if may_restart(plan):
                attempts = claimed.claim.attempts
                if attempts is not None:
                    attempt = 1 + attempts if began else None
                else:
                    attempt = 1 + (int(began) if history.attempt is None else history.attempt)
            if not began or attempt is not None:
                if attempt is None or attempt <= self._settings.attempts:
                    if self._ownership.free_runs > 0:
                        self._runner.begin(live, ctx, plan, attempt=attempt, parent=call.trace or {})
                        self._runner.quota.recover((live,))
                        self._count(claimed, "restarted")
                    else:
                        await self._hand_over(live, claimed)
                        self._count(claimed, "queued")
                    return None
                assert attempt is not None
                reason = f"the server stopped during each of {attempt - 1} attempts: it is not tried again"
        if history.in_doubt:
            reason = f"{reason}; {describe_in_doubt(history.in_doubt)}"
        live.status(State.FAILED, agent_message(live, (Part(text=reason),)))
        self._count(claimed, "failed")
        return live

    def _count(self, claimed: ClaimedTask, outcome: str) -> None:
        # What had not begun is not taken over from anybody: it was waiting for its turn.
        if METRICS.on and claimed.begun:
            METRICS.takeovers.add(1, (self._agent.name, outcome))

    async def _hand_over(self, live: LiveTask, claimed: ClaimedTask) -> None:
        """Leave a task that cannot run here to the other processes."""
        if claimed.draft:  # as a task, it can be queued
            await live.wait_durable()
        self._ownership.release(claimed.claim, begun=claimed.begun)
