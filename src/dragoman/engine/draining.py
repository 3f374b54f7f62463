"""The end of an engine: what it still accepts while it stops, how long it waits, and what becomes of the rest."""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dragoman.clock import wait
from dragoman.engine.journal.durability import STOPPING
from dragoman.model.error import ServerError

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from dragoman.clock import Clock
    from dragoman.engine.execute.keeper import ClaimKeeper
    from dragoman.engine.execute.runner import Runner
    from dragoman.engine.ports.ownership import Claim, Ownership

logger = logging.getLogger("dragoman.engine")
# How long handing over may take when the store is slow. What is not handed over then, others take when this process
# has left.
HAND_OVER_SECONDS = 1.0
# Thousands of tasks may take longer: a second for each so many, up to so many seconds.
TASKS_PER_SECOND, LONGEST_HAND_OVER = 2500, 3.0


class Draining:
    """Lets the runs of one engine end when its process stops, for some seconds.

    A single process refuses messages from the beginning, and what it interrupts is recovered by its next start.

    With other processes on the store, it is a front for them meanwhile: it starts nothing, queues what has not begun,
    accepts messages as long as somebody else may run them, and waits until the callers that wait have their answers. At
    the end, what may begin again is queued, and begins elsewhere at once; the rest fails.

    `has_begun` is True from the beginning of that, `is_done` when it is over, and `is_closed` when nothing is accepted
    any more, because the process is about to end.
    """

    def __init__(
        self, agent: str, runner: Runner, keeper: ClaimKeeper | None, ownership: Ownership, clock: Clock
    ) -> None:
        self._agent = agent
        self._runner = runner
        self._keeper = keeper
        self._ownership = ownership
        self._clock = clock
        self.has_begun = self.is_done = False
        self._callers = 0
        self._no_callers: asyncio.Future[None] | None = None
        self.is_closed = False

    def check_accepts(self) -> None:
        """Raise ServerError when no message can be accepted any more, once this has begun: nobody could run it soon."""
        if self.is_closed or not self._ownership.has_peer(self._agent):
            raise ServerError(STOPPING, retryAfter="1")

    @contextmanager
    def count_caller(self) -> Generator[None]:
        """Count a caller that waits for a task which may run elsewhere."""
        self._callers += 1
        try:
            yield
        finally:
            self._callers -= 1
            if not self._callers and self._no_callers is not None and not self._no_callers.done():
                self._no_callers.set_result(None)

    async def drain(self, seconds: float) -> None:
        """Let the runs end for so many seconds, then interrupt them and hand over what can be."""
        deadline = self._clock.now() + round(seconds * 1000)
        runner, keeper = self._runner, self._keeper
        if keeper is not None:
            self._ownership.retire()
            runner.retire()
            keeper.retire()
            await self._ownership.look_for_peers()
        self.has_begun = True
        if len(runner):
            noun = "task" if len(runner) == 1 else "tasks"
            logger.info("waiting up to %g s for %d running %s of %s", seconds, len(runner), noun, self._agent)
        if (left := self._seconds_until(deadline)) > 0:
            await runner.wait_idle(left)
        if keeper is not None and self._callers and (left := self._seconds_until(deadline)) > 0:
            self._no_callers = asyncio.get_running_loop().create_future()
            await wait(self._clock, self._no_callers, left)
        restartable = [] if keeper is None else keeper.restartable()
        await runner.interrupt(seconds)
        if keeper is not None:
            await self._hand_over(keeper, restartable)
        self.is_done = True

    def close(self) -> None:
        """Accept nothing more."""
        self.is_closed = True

    def _seconds_until(self, deadline: int) -> float:
        return (deadline - self._clock.now()) / 1000

    async def _hand_over(self, keeper: ClaimKeeper, restartable: Sequence[Claim]) -> None:
        handing = asyncio.ensure_future(keeper.hand_over(restartable))
        seconds = min(LONGEST_HAND_OVER, HAND_OVER_SECONDS + len(restartable) // TASKS_PER_SECOND)
        if not await wait(self._clock, handing, seconds):
            handing.cancel()
        (error,) = await asyncio.gather(handing, return_exceptions=True)
        if isinstance(error, (ServerError, asyncio.CancelledError)):
            logger.warning("tasks could not be handed over in time: others take them when this server has left")
        elif error is not None:
            logger.error("tasks could not be handed over", exc_info=error)
