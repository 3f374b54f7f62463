"""The connection to a remote agent is opened once, however many tasks need it first."""

from __future__ import annotations

import asyncio
from typing import Any

from dragoman.agents.remote.run import RemoteProxy
from dragoman.clock import SystemClock


class Opening:
    """A connection that lets somebody ask for it at the very moment when it is open."""

    clock = SystemClock()

    def __init__(self, when_open: Any) -> None:
        self._when_open = when_open
        self.is_closed = False

    async def open(self) -> None:
        await asyncio.sleep(0)

    async def card(self) -> None:
        asyncio.get_running_loop().call_soon(self._when_open)

    async def close(self) -> None:
        self.is_closed = True


async def test_a_caller_at_the_moment_of_opening_gets_the_same_connection() -> None:
    opened: list[Opening] = []
    late: list[asyncio.Task[Any]] = []

    def connect() -> Any:
        opened.append(Opening(lambda: late.append(asyncio.create_task(runs.connection()))))
        return opened[-1]

    runs = RemoteProxy(connect)
    first = await runs.connection()
    assert [await each for each in late] == [first]
    await runs.close()
    assert [each.is_closed for each in opened] == [True]
