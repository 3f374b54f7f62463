"""A plain TCP proxy in front of several nodes: each connection goes to the next one that accepts it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

_READ = 64 * 1024


class RoundRobin:
    """Carries bytes and knows nothing of HTTP. Connections to a node that does not accept go to another."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = list(ports)
        self._next = 0
        self._server: asyncio.Server | None = None
        self._carriers: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """Where it listens."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def take_out(self, port: int) -> None:
        """Send a node no more connections. Those that it has stay."""
        self._ports.remove(port)
        self._next = 0

    def put_back(self, port: int) -> None:
        """Send a node connections again."""
        self._ports.append(port)

    async def __aenter__(self) -> RoundRobin:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for carrier in list(self._carriers):
            carrier.cancel()
        await asyncio.gather(*self._carriers, return_exceptions=True)
        await asyncio.sleep(0)  # connections close in the next turn of the loop

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        this = asyncio.current_task()
        assert this is not None
        self._carriers.add(this)
        try:
            await self._carry(reader, writer)
        except asyncio.CancelledError:
            pass  # asyncio's server would report it as an error
        finally:
            writer.close()
            self._carriers.discard(this)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in self._ports:
            port = self._ports[self._next]
            self._next = (self._next + 1) % len(self._ports)
            try:
                from_node, to_node = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                continue
            break
        else:
            return
        pumps = [asyncio.ensure_future(pump(reader, to_node)), asyncio.ensure_future(pump(from_node, writer))]
        try:
            # Whoever hangs up, on either side, ends both.
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            to_node.close()
            for each in pumps:
                each.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carry bytes until one side is gone."""
    try:
        while chunk := await reader.read(_READ):
            writer.write(chunk)
            await writer.drain()
    except OSError:
        pass
