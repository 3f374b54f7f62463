"""A TCP proxy between callers and a server of this machine, whose connections can be cut."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import NamedTuple, Self

READ = 64 * 1024


class Link(NamedTuple):
    """Both ends of one connection."""

    from_caller: asyncio.StreamReader
    to_caller: asyncio.StreamWriter
    from_target: asyncio.StreamReader
    to_target: asyncio.StreamWriter

    def cut(self) -> None:
        """Break the caller off, whatever is on its way. The target is hung up on after what it was sent."""
        self.to_caller.transport.abort()


class TcpProxy:
    """Relays every connection to a port, both ways, until either side hangs up. Used with `async with`."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._server: asyncio.Server | None = None
        self._carriers: set[asyncio.Task[None]] = set()
        self._links: set[Link] = set()
        self._changed = asyncio.Condition()
        self._listens_at = 0
        self._is_away = False
        self._cut_count = 0
        self.accepted = 0  # connections so far
        self.refused = 0  # those that were broken off at once

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._listens_at

    @property
    def url(self) -> str:
        """Where it listens, as the address of an HTTP server."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def connections(self) -> int:
        """How many there are."""
        return len(self._links)

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for carrier in list(self._carriers):
            carrier.cancel()
        await asyncio.gather(*self._carriers, return_exceptions=True)
        await self._server.wait_closed()

    def cut(self) -> int:
        """Break every connection off, as a network does that fails. Returns how many there were."""
        links = list(self._links)
        self._cut_count += 1
        for link in links:
            link.cut()
        return len(links)

    async def listen(self) -> None:
        """Accept connections: at a free port, and after `close_port` at the same one as before."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._listens_at)
        self._listens_at = int(self._server.sockets[0].getsockname()[1])

    def close_port(self) -> None:
        """Break every connection off and refuse further ones, as a machine does whose server is not running."""
        assert self._server is not None
        self._server.close()
        self.cut()

    def leave(self) -> None:
        """Break every connection off, and each further one as soon as it is accepted, until `come_back`."""
        self._is_away = True
        self.cut()

    def come_back(self, target: int | None = None) -> None:
        """Relay connections again, to the same server or to another one."""
        self._is_away, self._target = False, target or self._target

    async def until_refused(self, count: int) -> None:
        """Wait until so many connections have been broken off as soon as they were accepted."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.refused >= count)

    async def until_unused(self) -> None:
        """Wait until all callers have hung up."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._carriers)

    async def dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the target, for a caller that has just connected.

        Raises:
            OSError: it does not accept; the caller is hung up on.
        """
        return await asyncio.open_connection("127.0.0.1", self._target)

    async def relay(self, link: Link) -> None:
        """Carry a connection to its end."""
        pumps = [asyncio.ensure_future(self.upward(link)), asyncio.ensure_future(self.downward(link))]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def upward(self, link: Link) -> None:
        """Carry what the caller sends, until it hangs up."""
        await copy(link.from_caller, link.to_target)

    async def downward(self, link: Link) -> None:
        """Carry what the target sends, until it hangs up."""
        await copy(link.from_target, link.to_caller)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_away:
            writer.transport.abort()
            self.refused += 1
            async with self._changed:
                self._changed.notify_all()
            return
        this = asyncio.current_task()
        assert this is not None
        self._carriers.add(this)
        # asyncio's server would report a cancellation as an error.
        with suppress(OSError, asyncio.CancelledError):
            try:
                await self._carry(reader, writer)
            finally:
                writer.close()
        self._carriers.discard(this)
        async with self._changed:
            self._changed.notify_all()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        before = self._cut_count
        link = Link(reader, writer, *await self.dial())
        if before != self._cut_count:  # it was dialed before the cut
            link.cut()
        self._links.add(link)
        self.accepted += 1
        try:
            await self.relay(link)
        finally:
            self._links.discard(link)
            link.to_target.close()


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carry bytes until one side is gone."""
    with suppress(OSError):
        while chunk := await reader.read(READ):
            writer.write(chunk)
            await writer.drain()
