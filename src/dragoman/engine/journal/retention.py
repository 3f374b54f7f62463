"""Retention: compacts ended tasks after a while, and deletes them later."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from msgspec import Struct

from dragoman.engine.ports.store import Sweep

if TYPE_CHECKING:
    from dragoman.clock import Clock, Timer
    from dragoman.engine.ports.store import Store

logger = logging.getLogger("dragoman.engine")
# The pause between two sweeps.
SWEEP_SECONDS = 60


class Retention(Struct, frozen=True):
    """How long ended tasks are kept: `keep` seconds, and at most `keep_tasks` of them; 0 is unlimited.

    `compact` seconds after its end a task keeps its last snapshot and loses its events, because streams that could be
    resumed have been resumed by then. 0 keeps the events.
    """

    keep: float = 0
    keep_tasks: int = 0
    compact: float = 86_400

    def sweep(self, now_ms: int) -> Sweep:
        """Build the rules for a sweep now. Expired dedupe keys are always deleted."""
        return Sweep(
            ended_before_ms=now_ms - round(self.keep * 1000) if self.keep else None,
            keep_tasks=self.keep_tasks or None,
            compact_before_ms=now_ms - round(self.compact * 1000) if self.compact else None,
            expired_before_ms=now_ms,
        )


class Janitor:
    """Sweeps a store every minute, in small steps between which other writes are served."""

    def __init__(self, store: Store, clock: Clock, retention: Retention) -> None:
        self._store = store
        self._clock = clock
        self._retention = retention
        self._timer: Timer | None = None
        self._worker: asyncio.Task[None] | None = None
        self._has_failed = False

    def start(self) -> None:
        """Start, with the first sweep at once."""
        self._begin()

    def _begin(self) -> None:
        self._worker = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        try:
            rules = self._retention.sweep(self._clock.now())
            while await self._store.sweep(rules) > 0:
                pass  # each step queues behind the writes that arrived in the meantime
        except Exception as error:  # noqa: BLE001 - the next sweep may succeed
            if not self._has_failed:  # an outage may be long
                logger.warning("old tasks cannot be deleted now: %s", error)
            self._has_failed = True
        else:
            self._has_failed = False
        self._timer = self._clock.call_later(SWEEP_SECONDS, self._begin)

    async def stop(self) -> None:
        """Stop. A step that the store has begun may still be completed."""
        if self._timer is not None:
            self._timer.cancel()
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)
