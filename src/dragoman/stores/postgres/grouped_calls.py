"""Many calls in one statement: thousands of streams that are woken together do not ask one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from enum import Enum
from itertools import islice
from typing import Final, Generic, TypeVar

from dragoman.stores.postgres.database import InvalidValue

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

# Calls of one statement, and statements at a time. With a second one, nobody waits for a single slow statement.
MAX_CALLS = 128
MAX_STATEMENTS = 2


class LargeResult(Enum):
    """What a statement for many returns for a call that has to be made alone: its result is too large."""

    UNREAD = 0


TOO_LARGE: Final = LargeResult.UNREAD


class GroupedCalls(Generic[K, V]):
    """Collects the calls that begin while another one is under way, and makes them together.

    `call_one` makes one call. `call_many` makes several that differ, in one statement, and returns their results in the
    same order. A call never gets the answer of a statement that was sent before it began.
    """

    def __init__(
        self,
        call_one: Callable[[K], Awaitable[V]],
        call_many: Callable[[Sequence[K]], Awaitable[Sequence[V | LargeResult]]],
    ) -> None:
        self._call_one = call_one
        self._call_many = call_many
        self._active = 0  # statements under way
        self._is_due = False  # another one is sent at the end of this turn of the event loop
        self._waiting: dict[K, list[asyncio.Future[V | LargeResult]]] = {}
        self._groups: dict[asyncio.Task[None], list[asyncio.Future[V | LargeResult]]] = {}

    async def call(self, key: K) -> V:
        """Make a call. Raises what the statement raises."""
        if not self._active:  # whoever is alone does not wait for others
            self._active = 1
            try:
                return await self._call_one(key)
            finally:
                self._active -= 1
                self._send()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[V | LargeResult] = loop.create_future()
        self._waiting.setdefault(key, []).append(future)
        if self._active < MAX_STATEMENTS and not self._is_due:
            self._is_due = True
            loop.call_soon(self._send)
        try:
            result = await future
        except asyncio.CancelledError:
            self._give_up()
            raise
        return await self._call_one(key) if result is TOO_LARGE else result

    def _send(self) -> None:
        """Send what has collected since the last statement was sent."""
        self._is_due = False
        while self._waiting and self._active < MAX_STATEMENTS:
            groups = [(key, self._waiting.pop(key)) for key in list(islice(self._waiting, MAX_CALLS))]
            futures = [future for _, group in groups for future in group if not future.done()]
            if futures:
                self._active += 1
                statement = asyncio.ensure_future(self._execute(groups))
                self._groups[statement] = futures
                statement.add_done_callback(self._on_done)

    async def _execute(self, groups: Sequence[tuple[K, list[asyncio.Future[V | LargeResult]]]]) -> None:
        keys = [key for key, _ in groups]
        try:
            results = [await self._call_one(keys[0])] if len(keys) == 1 else await self._call_together(keys)
        except Exception as error:  # noqa: BLE001 - everybody who waits gets it
            for _, futures in groups:
                for future in futures:
                    if not future.done():
                        future.set_exception(error)
            return
        for (_, futures), result in zip(groups, results, strict=True):
            for future in futures:
                if not future.done():
                    future.set_result(result)

    async def _call_together(self, keys: Sequence[K]) -> Sequence[V | LargeResult]:
        try:
            return await self._call_many(keys)
        except InvalidValue:  # a key of somebody else: each is made alone, so that nobody gets another's error
            return [TOO_LARGE] * len(keys)

    def _on_done(self, statement: asyncio.Task[None]) -> None:
        del self._groups[statement]
        self._active -= 1
        self._send()

    def _give_up(self) -> None:
        """Cancel the statements that nobody waits for: their connection may be dead."""
        for statement, futures in self._groups.items():
            if all(future.done() for future in futures):
                statement.cancel()
