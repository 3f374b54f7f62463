"""Keeps what runs in this process and what the store says about it the same, when other processes share the store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from dragoman.engine.journal.phase import Phase
from dragoman.engine.ports.ownership import Claim
from dragoman.model.error import DragomanError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from dragoman.clock import Timer
    from dragoman.engine.execute.recovery import Recovery
    from dragoman.engine.execute.runner import Runner
    from dragoman.engine.journal.live import LiveTask
    from dragoman.engine.journal.tasks import Tasks
    from dragoman.engine.locks import KeyedLocks
    from dragoman.engine.ports.agent import Runnable
    from dragoman.engine.ports.ownership import ClaimedTask, Ownership, TaskClaim
    from dragoman.engine.ports.store import StoredTask

logger = logging.getLogger("dragoman.engine")
# Seconds between two looks for tasks that no process works on, should their announcement be lost.
POLL_SECONDS = 2
# Tasks that are taken at a time.
TAKE = 16


class ClaimKeeper:
    """Takes queued tasks and those of dead nodes, gives up runs whose claim was revoked, and passes mail to runs."""

    def __init__(self, agent: Runnable, tasks: Tasks, runner: Runner, recovery: Recovery, locks: KeyedLocks) -> None:
        self._agent = agent.name
        self._parallel = agent.parallel
        self._tasks = tasks
        self._runner = runner
        self._recovery = recovery
        self._locks = locks
        self._ownership: Ownership = tasks.ownership
        self._workers: set[asyncio.Task[None]] = set()
        self._is_taking = self._take_again = self._is_comparing = self._looks_for_orphans = False
        self._timer: Timer | None = None
        self._unsubscribe: Callable[[], None] | None = None
        self._closed = False
        # What the last comparison found: claims without a run, and runs without a claim. A second one confirms it.
        self._without_run: dict[int, TaskClaim] = {}
        self._without_claim: set[LiveTask] = set()
        # Tasks that were taken and whose runs have not started yet: reading them may take long.
        self._recovering: set[int] = set()
        self._problem = ""  # the last error in the log

    def start(self) -> None:
        """Start, with a first look at once."""
        self._unsubscribe = self._ownership.subscribe(self)
        self._tick()

    def retire(self) -> None:
        """Begin nothing more, and queue what has not begun. The other duties go on."""
        for run in list(self._runner.runs()):
            # What is not durable yet goes back to the queue when it is about to begin: see `Run`.
            if run.live.phase is Phase.QUEUED and run.live.durability.committed:
                run.live.lose()

    def restartable(self) -> list[Claim]:
        """The claims of runs that may begin again elsewhere."""
        return [run.live.claim for run in self._runner.runs() if run.is_restartable and run.live.phase.is_begun]

    async def hand_over(self, restartable: Sequence[Claim]) -> None:
        """Leave what was interrupted here to the other processes, if it may begin again, and fail the rest.

        What was `restartable` is released as it is. Whether the rest may begin again is in the store.

        Raises:
            ServerError: the store does not answer.
        """
        running = {run.live.claim for run in self._runner.runs()}
        for claim in restartable:
            if claim not in running:  # else its code does not stop
                self._ownership.release(claim, begun=True)
        await self._ownership.wait_released()
        claims = [claim for claim in (await self._ownership.owned()).values() if claim.agent == self._agent]
        failed = [live for claim in claims if (live := await self._adopt(claim)) is not None]
        await asyncio.gather(*(live.wait_durable() for live in failed))
        await self._ownership.wait_released()

    async def close(self) -> None:
        """Take nothing more and stop listening. Claims that are left end with this process."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._unsubscribe is not None:
            self._unsubscribe()
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)

    # -- listening -----------------------------------------------------------------------------------------------------

    def on_work(self) -> None:
        """Take what there is, if there is room."""
        self._take_again = True
        if not self._closed and not self._is_taking:
            self._is_taking = True
            self._spawn(self._take)

    def on_touched(self, task_ids: Sequence[str]) -> None:
        """Look at the live ones among these tasks: they got mail, or their claim was revoked."""
        for task_id in task_ids:
            live = self._tasks.live.get(task_id)
            if live is not None:
                self._spawn(partial(self._tasks.refresh, live))

    def on_lost(self, numbers: Iterable[int] | None) -> None:
        """Stop the runs of these tasks, or all."""
        lost = None if numbers is None else set(numbers)
        for live in list(self._tasks.live.values()):
            if lost is None or live.row.number in lost:
                live.lose()

    # -- working -------------------------------------------------------------------------------------------------------

    def _spawn(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        worker = asyncio.get_running_loop().create_task(self._guard(work))
        self._workers.add(worker)
        worker.add_done_callback(self._workers.discard)

    async def _guard(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        try:
            await work()
        except DragomanError as error:  # the store does not answer: the next tick tries again
            logger.debug("%s", error)
        except Exception as error:
            if repr(error) != self._problem:  # it may come again with every tick
                logger.exception("tasks cannot be taken from the store, or compared with it")
            self._problem = repr(error)

    def _tick(self) -> None:
        if self._closed:
            return
        self._timer = self._tasks.clock.call_later(POLL_SECONDS, self._tick)
        if self._ownership.expired:
            # Others may run them again soon. What cannot run again waits at its next output, and so does an effect that
            # is under way: nobody could know whether it happened.
            for run in list(self._runner.runs()):
                if run.is_restartable and not run.has_open_effect:
                    run.live.lose()
            return
        self._looks_for_orphans = True
        self.on_work()
        if not self._is_comparing:
            self._is_comparing = True
            self._spawn(self._compare)

    async def _take(self) -> None:
        try:
            while self._take_again and not self._closed:
                self._take_again = False
                free = self._ownership.free_runs
                # Without room for runs there is still something to do now and then: what had begun on a dead node and
                # may not begin again has to fail, and the rest of it to be queued.
                if self._ownership.expired or not (free > 0 or self._looks_for_orphans):
                    return
                limit, self._looks_for_orphans = min(free, TAKE) if free > 0 else TAKE, False
                claimed = await self._ownership.take(self._agent, parallel=self._parallel, limit=limit, queued=free > 0)
                self._recovering = {one.claim.task for one in claimed}
                # Together: the store reads what they need with few statements.
                if failed := sum(await asyncio.gather(*map(self._begin, claimed))):
                    noun = "task" if failed == 1 else "tasks"
                    logger.warning("%d %s of a node that is gone failed", failed, noun)
                if len(claimed) == limit:
                    self._take_again, self._looks_for_orphans = True, self._looks_for_orphans or free <= 0
        finally:
            self._is_taking = False
            self._recovering = set()

    async def _begin(self, claimed: ClaimedTask) -> bool:
        """Recover a task that was taken. Returns whether it failed."""
        try:
            if self._closed:  # nothing starts any more
                self._ownership.release(claimed.claim)
                return False
            return await self._recovery.adopt(claimed) is not None
        finally:
            self._recovering.discard(claimed.claim.task)

    async def _compare(self) -> None:
        try:
            await self._compare_claims()
        finally:
            self._is_comparing = False

    async def _compare_claims(self) -> None:
        """Compare the claims in the store with the runs. They may differ for a moment, so two looks must agree."""
        live = {one.row.number: one for one in self._tasks.live.values() if not one.phase.is_draft}
        certain = {number for number, one in live.items() if one.durability.committed and not one.phase.is_over}
        owned = {
            number: claim for number, claim in (await self._ownership.owned()).items() if claim.agent == self._agent
        }
        without_run = {
            number: claim for number, claim in owned.items() if number not in live and number not in self._recovering
        }
        without_claim = {
            one
            for number, one in live.items()
            if number in certain
            and not one.phase.is_over
            and (number not in owned or owned[number].epoch != one.claim.epoch)
        }
        for one in without_claim & self._without_claim:
            if not one.phase.is_over:
                one.lose()
        confirmed = [
            claim
            for number, claim in without_run.items()
            if (before := self._without_run.get(number)) is not None and before.epoch == claim.epoch
        ]
        self._without_run, self._without_claim = without_run, without_claim
        for number in certain & owned.keys():
            if owned[number].mail > live[number].mail and not live[number].phase.is_over:
                await self._tasks.read_mail(live[number])
        for claim in confirmed:
            await self._adopt(claim)

    async def _adopt(self, claim: TaskClaim) -> LiveTask | None:
        """Recover a task that this process owns and does not run: a reply was lost, or its run was stopped.

        It is claimed again: changes of the run that was stopped may still be on their way to the store. Returns it when
        it failed.
        """
        # Whoever cancels or answers it holds the lock, and may have claimed it and wait for a slow store.
        async with self._locks.hold(claim.task_id):
            stored = await self._tasks.store.task(claim.task_id) or await self._find_draft(claim)
            if stored is None or stored.epoch != claim.epoch or stored.row.state.final:
                return None
            if claim.task_id in self._tasks.live:
                return None
            if stored.row.state.waiting:
                self._ownership.release(Claim(stored.row.number, claim.epoch))
                return None
            claimed = await self._ownership.claim(stored)
            if claimed is None:
                return None
            if not claimed.begun and not claimed.draft:
                # Perhaps it is not for this process: its session may be elsewhere. Whoever may run it takes it.
                self._ownership.release(claimed.claim)
                return None
            return await self._recovery.adopt(claimed)

    async def _find_draft(self, claim: TaskClaim) -> StoredTask | None:
        drafts = await self._tasks.store.drafts(self._agent)
        return next((stored for stored in drafts if stored.row.id == claim.task_id), None)
