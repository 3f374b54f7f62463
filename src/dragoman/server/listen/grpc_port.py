"""A port on which several servers of grpcio listen, all on one event loop.

A server of grpcio takes one call from its queue, waits for a turn of the event loop, and takes the next: calls that
come at the same time are worked on one by one, each from the start to the end, which costs up to twice as much CPU
time as working on them together. Linux spreads the connections to a port over all servers that listen on it, and each
of them takes a call in a turn.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import grpc
import grpc.aio

from dragoman.transports.http import resume_coroutine

logger = logging.getLogger("dragoman.server")
# More of them do not make calls cheaper.
SERVERS = 16 if sys.platform == "linux" else 1
# Longer than any shutdown, in seconds.
FOREVER = 1e6


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
        self._host = host
        self.number = port
        self._credentials = credentials
        self._handlers = handlers
        self._options = [("grpc.so_reuseport", int(shared or SERVERS > 1)), *options]
        self._is_stopping = False
        self._replacing: set[asyncio.Task[None]] = set()
        self._servers: list[grpc.aio.Server] = []
        for _ in range(SERVERS):
            self._add()

    def _add(self) -> grpc.aio.Server:
        server = grpc.aio.server(handlers=self._handlers, options=self._options)
        self._servers.append(server)
        address = f"[{self._host}]:{self.number}" if ":" in self._host else f"{self._host}:{self.number}"
        self.number = (
            server.add_insecure_port(address)
            if self._credentials is None
            else server.add_secure_port(address, self._credentials)
        )
        return server

    async def start(self) -> None:
        """Accept calls."""
        for server in self._servers:
            await self._start(server)

    async def _start(self, server: grpc.aio.Server) -> None:
        before = asyncio.all_tasks()
        starting: Any = server.start()
        # It creates the task that takes calls, and then waits for it to begin.
        waits_for = starting.send(None)
        (serving,) = asyncio.all_tasks() - before
        serving.add_done_callback(partial(self._on_end, server))
        await resume_coroutine(starting, waits_for)

    def _on_end(self, server: grpc.aio.Server, serving: asyncio.Task[None]) -> None:
        """Replace a server that has crashed: grpcio's does when the path of a call is not UTF-8."""
        if serving.cancelled() or serving.exception() is None or self._is_stopping:
            return
        logger.warning("a server of grpcio ended, and is replaced: %r", serving.exception())
        task = asyncio.get_running_loop().create_task(self._replace(server))
        self._replacing.add(task)
        task.add_done_callback(self._replacing.discard)

    async def _replace(self, crashed: grpc.aio.Server) -> None:
        self._servers.remove(crashed)
        await self._start(self._add())
        # It has closed its port. The calls that it had go on.
        await crashed.stop(FOREVER)

    async def stop(self, seconds: float) -> None:
        """Accept no more calls, and end those that are not done after some time."""
        self._is_stopping = True
        for task in self._replacing:
            task.cancel()
        await asyncio.gather(*(server.stop(seconds) for server in self._servers))
