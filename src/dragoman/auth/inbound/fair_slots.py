"""A semaphore that is fair to addresses: one that asks a lot waits behind itself, not before others."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from dragoman.model.error import Overloaded, ServerError

_Queues = dict[str, deque["asyncio.Future[None]"]]


class FairSlots:
    """So many may work at once; the others wait, and get their turn by address, one after the other.

    At most `per_address` of one address wait, and at most `waiting` of all: beyond that the address with the most
    waiting loses its last. Known ones are served before all others and are not counted among them.
    """

    def __init__(self, slots: int, *, waiting: int = 1024, per_address: int = 32) -> None:
        self._free = slots
        self._most = waiting
        self._per_address = per_address
        self._known: _Queues = {}
        self._others: _Queues = {}
        self._waiting = 0
        self._is_closed = False

    @asynccontextmanager
    async def slot(self, address: str, *, known: bool = False) -> AsyncGenerator[None]:
        """Wait for a slot and hold it. Raises Overloaded, without waiting, when too many wait already."""
        if self._is_closed:
            raise ServerError("the server is stopping")
        if self._free:
            self._free -= 1
        else:
            await self._wait(self._known if known else self._others, address)
        try:
            yield
        finally:
            self._hand_on()

    def close(self) -> None:
        """Turn away who waits. Raises nothing."""
        self._is_closed = True
        for queues in (self._known, self._others):
            for queue in queues.values():
                for waiter in queue:
                    if not waiter.done():
                        waiter.set_exception(ServerError("the server is stopping"))
            queues.clear()
        self._waiting = 0

    async def _wait(self, queues: _Queues, address: str) -> None:
        if len(queues.get(address, ())) >= self._per_address:
            raise _busy()
        if queues is self._others:
            self._make_room(len(queues.get(address, ())))
            self._waiting += 1
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queues.setdefault(address, deque()).append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._hand_on()  # it got its turn and left
            else:
                self._leave(queues, address, waiter)
            raise

    def _make_room(self, own: int) -> None:
        """Have the address with the most waiting lose its last, if that is fairer. Raises Overloaded."""
        if self._waiting < self._most:
            return
        address = max(self._others, key=lambda each: len(self._others[each]))
        if len(self._others[address]) <= own + 1:
            raise _busy()
        last = self._others[address][-1]
        self._leave(self._others, address, last)
        last.set_exception(_busy())

    def _leave(self, queues: _Queues, address: str, waiter: asyncio.Future[None]) -> None:
        queue = queues.get(address)
        if queue is None or waiter not in queue:
            return
        queue.remove(waiter)
        if not queue:
            del queues[address]
        if queues is self._others:
            self._waiting -= 1

    def _hand_on(self) -> None:
        for queues in (self._known, self._others):
            while queues:
                address, queue = next(iter(queues.items()))
                waiter = queue[0]
                self._leave(queues, address, waiter)
                if address in queues:  # it waits for more: behind the others
                    queues[address] = queues.pop(address)
                if not waiter.done():
                    waiter.set_result(None)
                    return
        self._free += 1


def _busy() -> Overloaded:
    return Overloaded("too many sign in at once: try again later", limit="passwords", retryAfter="1")
