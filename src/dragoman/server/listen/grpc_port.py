"""A port on which several servers of grpcio listen, all on one event loop.

A server of grpcio takes one call from its queue, waits for a turn of the event loop, and takes the next: calls that
come at the same time are worked on one by one, each from the start to the end, which costs up to twice as much CPU
time as working on them together. Linux spreads the connections to a port over all servers that listen on it, and each
of them takes a call in a turn.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

import grpc
import grpc.aio

# More of them do not make calls cheaper.
SERVERS = 16 if sys.platform == "linux" else 1


class GrpcPort:
    """The servers of a port. It is used on one event loop."""

    def __init__(
        self,
        host: str,
        port: int,
        credentials: grpc.ServerCredentials | None,
        handlers: Sequence[grpc.GenericRpcHandler],
        options: Sequence[tuple[str, Any]],
        *,
        shared: bool,
    ) -> None:
        """Bind the port, or a free one for 0, without listening yet. With `shared`, other processes may do it too.

        Raises:
            RuntimeError: the address cannot be had.
        """
        reuse = ("grpc.so_reuseport", int(shared or SERVERS > 1))
        self._servers: list[grpc.aio.Server] = []
        for _ in range(SERVERS):
            server = grpc.aio.server(handlers=handlers, options=[reuse, *options])
            self._servers.append(server)
            address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            port = (
                server.add_insecure_port(address)
                if credentials is None
                else server.add_secure_port(address, credentials)
            )
        self.number = port

    async def start(self) -> None:
        """Accept calls."""
        for server in self._servers:
            await server.start()

    async def stop(self, seconds: float) -> None:
        """Accept no more calls, and end those that are not done after some time."""
        await asyncio.gather(*(server.stop(seconds) for server in self._servers))
