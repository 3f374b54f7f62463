"""Supervises one MCP server: starts it, and restarts it with backoff when it has ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from dragoman.agents.mcp_tools.connection import ServerConnection
from dragoman.clock import SystemClock, wait
from dragoman.model.error import CannotConnect, DragomanError

if TYPE_CHECKING:
    from dragoman.agents.mcp_tools.source import Source
    from dragoman.clock import Clock

logger = logging.getLogger("dragoman.mcp")
INITIAL_BACKOFF, MAX_BACKOFF = 0.1, 30.0
# A server that ran this long did start: the backoff begins anew.
STABLE_SECONDS = 10.0
# Seconds a call waits for a server that is being restarted.
RECONNECT_TIMEOUT = 15.0


class Supervisor:
    """Keeps a connection to one MCP server open; `on_tools_changed` is called whenever its tools may have changed."""

    def __init__(
        self, source: Source, on_tools_changed: Callable[[], None], *, start_seconds: float, clock: Clock | None = None
    ) -> None:
        self.source = source
        self._on_tools_changed = on_tools_changed
        self._start_seconds = start_seconds
        self._clock = clock or SystemClock()
        self._connection: ServerConnection | None = None
        self._supervise_task: asyncio.Task[None] | None = None
        self._opening: asyncio.Task[ServerConnection] | None = None
        self._connected = asyncio.Event()

    @property
    def connection(self) -> ServerConnection | None:
        """The current connection, or the closed one that a restart is about to replace.

        None before `open` and after `close`, and after a restart has failed, until one succeeds.
        """
        return self._connection

    async def open(self) -> None:
        """Start or connect to the server. A first connection that fails is not retried.

        Raises:
            ConfigError: the program does not exist, or may not be run.
            CannotConnect: the server does not answer, or the supervisor was closed meanwhile.
        """
        await self.close()
        self._connected = asyncio.Event()
        opening = self._opening = asyncio.create_task(self._connect())
        closed = f"the MCP server `{self.source.name}` was closed while it was being started"
        try:
            connection = await opening
        except asyncio.CancelledError:
            if self._opening is opening:  # the caller of open() was canceled
                raise
            raise CannotConnect(closed, reason="CONNECTION_LOST") from None
        if self._opening is not opening:
            raise CannotConnect(closed, reason="CONNECTION_LOST")
        self._opening = None
        self._connection = connection
        self._connected.set()
        self._supervise_task = asyncio.create_task(self._supervise())

    async def close(self) -> None:
        """Close the connection and stop the server, also one that is being started."""
        opening, self._opening = self._opening, None
        supervise_task, self._supervise_task = self._supervise_task, None
        connection, self._connection = self._connection, None
        # Tasks of an earlier event loop cannot be awaited here.
        loop = asyncio.get_running_loop()
        if opening is not None and opening.get_loop() is loop:
            opening.cancel()
            await asyncio.wait((opening,))
            if not opening.cancelled() and opening.exception() is None:
                await opening.result().close()
        if supervise_task is not None and supervise_task.get_loop() is loop:
            supervise_task.cancel()
            await asyncio.wait((supervise_task,))
            if connection is not None:
                await connection.close()

    async def wait_connected(self) -> ServerConnection:
        """Return an open connection; wait up to RECONNECT_TIMEOUT for a server that is being restarted.

        Raises:
            CannotConnect: it does not come back in time.
        """
        connection = self._connection
        if connection is not None and not connection.closed.is_set():
            return connection
        with suppress(TimeoutError):
            async with asyncio.timeout(RECONNECT_TIMEOUT):
                while (connection := self._connection) is None or connection.closed.is_set():
                    self._connected.clear()
                    await self._connected.wait()
                return connection
        raise CannotConnect(f"the MCP server `{self.source.name}` is not running", reason="CONNECTION_LOST")

    def retire(self, connection: ServerConnection) -> None:
        """Close a connection that has become unusable; a new one is opened in the background."""
        connection.closed.set()

    async def _connect(self) -> ServerConnection:
        connection = ServerConnection(self.source, self._on_tools_changed)
        await connection.open(self._start_seconds)
        return connection

    async def _supervise(self) -> None:
        backoff = INITIAL_BACKOFF
        while True:
            connection, since = self._connection, self._clock.now()
            if connection is not None:
                await connection.closed.wait()
                uptime = (self._clock.now() - since) / 1000
                logger.warning(
                    "the MCP server %s has ended after %.1f s%s", self.source.name, uptime, _exit_reason(connection)
                )
                await connection.close()
                if uptime >= STABLE_SECONDS:
                    backoff = INITIAL_BACKOFF
            await wait(self._clock, asyncio.get_running_loop().create_future(), backoff)
            backoff = min(backoff * 2, MAX_BACKOFF)
            try:
                self._connection = await self._connect()
            except DragomanError as error:
                self._connection = None
                logger.warning("%s", error)
                continue
            logger.info("the MCP server %s is available again", self.source.name)
            self._connected.set()
            self._on_tools_changed()


def _exit_reason(connection: ServerConnection) -> str:
    if connection.problem:
        return f": {connection.problem}"
    last = connection.stderr_tail.splitlines()[-1:]
    return f"; last line of its stderr: {last[0]}" if last else ""
