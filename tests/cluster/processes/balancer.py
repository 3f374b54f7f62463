"""A plain TCP proxy in front of several nodes: each connection goes to the next one that accepts it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from support.tcp_proxy import TcpProxy


class RoundRobin(TcpProxy):
    """Carries bytes and knows nothing of HTTP. Connections to a node that does not accept go to another."""

    def __init__(self, ports: Sequence[int]) -> None:
        super().__init__(ports[0])
        self._ports = list(ports)
        self._next = 0

    def take_out(self, port: int) -> None:
        """Send a node no more connections. Those that it has stay."""
        self._ports.remove(port)
        self._next = 0

    def put_back(self, port: int) -> None:
        """Send a node connections again."""
        self._ports.append(port)

    async def dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the next node that accepts."""
        for _ in self._ports:
            port = self._ports[self._next]
            self._next = (self._next + 1) % len(self._ports)
            try:
                return await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                continue
        raise ConnectionRefusedError("no node accepts")
