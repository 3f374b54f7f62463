"""Forgetting ended tasks after a while, and compacting them before that."""

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
EVERY_SECONDS = 60


class Retention(Struct, frozen=True):
    """How long ended tasks are kept, in seconds and in number; 0 is for ever, and any number.

    After `compact` seconds an ended task keeps its last state, and its single events go: what could be resumed
    then has been resumed long ago. 0 keeps them.
    """

    keep: float = 0
    keep_tasks: int = 0
    compact: float = 86_400

    def sweep(self, now_ms: int) -> Sweep:
        """What may go now: dedupe keys that have expired always do."""
        return Sweep(
            ended_before_ms=now_ms - round(self.keep * 1000) if self.keep else None,
            keep_tasks=self.keep_tasks or None,
            compact_before_ms=now_ms - round(self.compact * 1000) if self.compact else None,
            expired_before_ms=now_ms,
        )


class Janitor:
    """Sweeps a store every minute, in small steps that let others write in between."""

    def __init__(self, store: Store, clock: Clock, retention: Retention) -> None:
        self._store = store
        self._clock = clock
        self._retention = retention
        self._timer: Timer | None = None
        self._worker: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, with the first sweep at once."""
        self._begin()

    def _begin(self) -> None:
        self._worker = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        try:
            rules = self._retention.sweep(self._clock.now())
            while await self._store.sweep(rules) > 0:
                pass  # each step queues behind the writes that came meanwhile
        except Exception as error:  # noqa: BLE001 - a store that is full today may be swept tomorrow
            logger.warning("the store could not be swept: %s", error)
        self._timer = self._clock.call_later(EVERY_SECONDS, self._begin)

    async def stop(self) -> None:
        """Stop, and wait until a step that is under way is done."""
        if self._timer is not None:
            self._timer.cancel()
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)
