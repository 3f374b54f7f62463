"""Asks a node in ways that the load generator does not: rarely, and with streams that are kept open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bench import wire
from bench.http1 import Connection
from bench.proc import cpu_exactly

# Sends that come alone, and the time between them: what a node needs is not in the caches of the CPU any more.
ALONE, GAP = 400, 0.002


def alone_cpu(port: int, pid: int) -> float:
    """CPU seconds of a node per send when it has to wait for each."""
    return asyncio.run(_alone_cpu(port, pid))


async def _alone_cpu(port: int, pid: int) -> float:
    caller = _Caller()
    await asyncio.get_running_loop().create_connection(lambda: caller, "127.0.0.1", port)
    messages = wire.Messages("uuid")
    before = cpu_exactly(pid)
    for _ in range(ALONE):
        await asyncio.sleep(GAP)
        await caller.ask(messages.echo()[0])
    spent = cpu_exactly(pid) - before
    caller.close()
    return spent / ALONE


class _Caller(Connection):
    """Asks one thing at a time."""

    def __init__(self) -> None:
        super().__init__()
        self._answer: asyncio.Future[int] | None = None

    async def ask(self, request: bytes) -> None:
        self._answer = asyncio.get_running_loop().create_future()
        self.send(request)
        assert await self._answer == 200

    def opened(self) -> None: ...

    def body(self, chunk: bytes) -> None: ...

    def answered(self, status: int) -> None:
        if self._answer is not None:
            self._answer.set_result(status)

    def lost(self) -> None: ...


class IdleStream(Connection):
    """A stream of a task that waits; the first bytes say that it is open."""

    def __init__(self, request: bytes, opened: Callable[[], None]) -> None:
        super().__init__()
        self._request = request
        self._on_open: Callable[[], None] | None = opened

    def opened(self) -> None:
        """Begin."""
        self.send(self._request)

    def body(self, chunk: bytes) -> None:
        """The first event is there."""
        on_open, self._on_open = self._on_open, None
        if on_open is not None:
            on_open()

    def answered(self, status: int) -> None:
        """It has ended."""

    def lost(self) -> None:
        """It was closed."""


def open_streams(port: int, count: int, when_open: Callable[[], None]) -> None:
    """Open streams of a node, call, and close them. Each has a task of its own, which waits at the node."""
    asyncio.run(keep_open(port, count, when_open))


async def keep_open(port: int, count: int, when_open: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    messages = wire.Messages("uuid")
    is_open = asyncio.Semaphore(0)
    streams = [
        (
            await loop.create_connection(
                lambda: IdleStream(messages.tool("parade", stream=True, n=1, pace=0.01), is_open.release),
                "127.0.0.1",
                port,
            )
        )[1]
        for _ in range(count)
    ]
    async with asyncio.timeout(60):
        for _ in range(count):
            await is_open.acquire()
    when_open()
    for stream in streams:
        stream.close()
    await asyncio.sleep(0.2)
