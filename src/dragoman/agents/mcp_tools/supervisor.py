"""Supervises one MCP server: starts it, and restarts it with backoff when it has ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import PurePath
from typing import TYPE_CHECKING

from dragoman.agents.mcp_tools.connection import ServerConnection
from dragoman.agents.mcp_tools.sessions import CallerSessions
from dragoman.clock import SystemClock, wait
from dragoman.model.error import CannotConnect, DragomanError

if TYPE_CHECKING:
    from dragoman.agents.mcp_tools.call import ToolCall
    from dragoman.agents.mcp_tools.source import Source
    from dragoman.clock import Clock

logger = logging.getLogger("dragoman.mcp")
INITIAL_BACKOFF, MAX_BACKOFF = 0.1, 30.0
# A server that ran this long did start: the backoff begins anew.
STABLE_SECONDS = 10.0
# Seconds a call waits for a server that is being restarted.
RECONNECT_TIMEOUT = 15.0


class Supervisor:
    """Keeps a connection to one MCP server open, from `open` to `close`, each of which is called once.

    `on_tools_changed` is called whenever the tools of the server may have changed.
    """

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
        # True once a tool could not ask on the newest protocol revision, and when that is the only one.
        self._is_handshake, self._is_modern_only = False, False
        self._outdated = asyncio.Event()
        self._replaced: ServerConnection | None = None
        self._sessions = CallerSessions(source, self._clock, start_seconds)

    @property
    def connection(self) -> ServerConnection | None:
        """The current connection, or the closed one that a restart is about to replace.

        None before `open` and after `close`, and after a restart has failed, until one succeeds.
        """
        return self._connection

    @property
    def is_single(self) -> bool:
        """True when the server could not be started a second time, a while ago."""
        return self._sessions.is_single

    async def open(self) -> None:
        """Start or connect to the server. A first connection that fails is not retried.

        Raises:
            ConfigError: the program does not exist, or may not be run.
            CannotConnect: the server does not answer, or the supervisor was closed meanwhile.
        """
        since = self._clock.now()
        self._log_start()
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
        if self.source.server is None:
            seconds = (self._clock.now() - since) / 1000
            number = len(connection.tools)
            tools = "1 tool" if number == 1 else f"{number} tools"
            logger.info("the MCP server %s is ready: %s, %.1f s", self.source.name, tools, seconds)
        self._supervise_task = asyncio.create_task(self._supervise())

    def _log_start(self) -> None:
        source = self.source
        if source.argv:  # without its arguments, which may have secrets in them
            logger.info("starting the MCP server %s with %s …", source.name, PurePath(source.argv[0]).name)
        elif source.url:
            logger.info("connecting to the MCP server %s …", source.name)

    async def close(self) -> None:
        """Close the connection and stop the server, also one that is being started."""
        opening, self._opening = self._opening, None
        supervise_task, self._supervise_task = self._supervise_task, None
        connection, self._connection = self._connection, None
        if opening is not None:
            opening.cancel()
            await asyncio.wait((opening,))
            if not opening.cancelled() and opening.exception() is None:
                await opening.result().close()
        if supervise_task is not None:
            supervise_task.cancel()
            await asyncio.wait((supervise_task,))
            # It may have connected once more before it was canceled.
            late, self._connection = self._connection, None
            connections = [each for each in (connection, late, self._replaced) if each is not None]
            await asyncio.gather(self._sessions.close(), *(each.close() for each in connections))

    async def connect_call(self, call: ToolCall) -> ServerConnection:
        """Return the connection on which to start a call, at once. A tool that asks within calls waits for a session.

        Raises:
            CannotConnect: the server is being restarted, and does not come back in time.
        """
        while True:
            connection = await self.wait_connected()
            if connection.is_modern:
                return connection
            chosen = await self._sessions.choose_connection(call, connection)
            if chosen is not None:
                return chosen

    async def wait_connected(self) -> ServerConnection:
        """Return an open connection; wait up to RECONNECT_TIMEOUT for a server that is being restarted.

        Raises:
            CannotConnect: it does not come back in time.
        """
        connection = self._usable_connection()
        if connection is not None:
            return connection
        with suppress(TimeoutError):
            async with asyncio.timeout(RECONNECT_TIMEOUT):
                while (connection := self._usable_connection()) is None:
                    self._connected.clear()
                    await self._connected.wait()
                return connection
        raise CannotConnect(f"the MCP server `{self.source.name}` is not running", reason="CONNECTION_LOST")

    def _usable_connection(self) -> ServerConnection | None:
        connection = self._connection
        is_usable = connection is not None and not connection.closed.is_set() and not self._outdated.is_set()
        return connection if is_usable else None

    def ask_within_calls(self, connection: ServerConnection) -> bool:
        """Reconnect with the protocol revision in which a server asks within calls; calls in progress are not affected.

        False when the configuration names the revision, or the server has no other: then that stays.
        """
        if self.source.revision or self._is_modern_only:
            return False
        if connection is self._connection and not self._is_handshake:
            self._is_handshake = True
            self._outdated.set()
        return True

    def retire(self, connection: ServerConnection) -> None:
        """Close a connection that has become unusable; a new one is opened in the background."""
        connection.closed.set()

    async def _connect(self) -> ServerConnection:
        connection = ServerConnection(
            self.source,
            self._on_tools_changed,
            on_asking=self._sessions.add_tool,
            on_end=self._sessions.notify,
            handshake=self._is_handshake,
        )
        await connection.open(self._start_seconds)
        return connection

    async def _supervise(self) -> None:
        backoff = INITIAL_BACKOFF
        while True:
            connection, since = self._connection, self._clock.now()
            if connection is not None:
                await self._wait_ended(connection)
                if self._outdated.is_set() and not connection.closed.is_set():
                    await self._replace(connection)
                    continue
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
                connected = await self._connect()
            except DragomanError as error:
                self._connection = None
                logger.warning("%s", error)
                continue
            logger.info("the MCP server %s is available again", self.source.name)
            self._use(connected)

    async def _wait_ended(self, connection: ServerConnection) -> None:
        """Wait until a connection has closed, or is to be replaced."""
        waits = [asyncio.create_task(event.wait()) for event in (connection.closed, self._outdated)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()

    async def _replace(self, outdated: ServerConnection) -> None:
        """Connect with the older protocol revision; the connection stays as it is if that fails."""
        try:
            connected = await self._connect()
        except DragomanError as error:
            logger.warning("%s: it has no older protocol revision: %s", self.source.name, error)
            self._is_handshake, self._is_modern_only = False, True
            connected = outdated
        else:
            self._replaced = outdated
            outdated.close_when_idle()
        self._use(connected)

    def _use(self, connection: ServerConnection) -> None:
        self._connection = connection
        self._outdated.clear()
        self._connected.set()
        self._on_tools_changed()


def _exit_reason(connection: ServerConnection) -> str:
    if connection.problem:
        return f": {connection.problem}"
    last = connection.stderr_tail.splitlines()[-1:]
    return f"; last line of its stderr: {last[0]}" if last else ""
