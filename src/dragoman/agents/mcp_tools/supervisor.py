"""Keeps one MCP server at hand: started, and started again when it has died."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from dragoman.agents.mcp_tools.connection import Connection
from dragoman.clock import SystemClock, wait
from dragoman.model.error import CannotConnect, DragomanError

if TYPE_CHECKING:
    from dragoman.agents.mcp_tools.source import Source
    from dragoman.clock import Clock

logger = logging.getLogger("dragoman.mcp")
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 30.0
# A server that lived this long has not failed to start.
SOUND_SECONDS = 10.0
# How long a call waits for a server that is being started again.
PATIENCE_SECONDS = 15.0


class Supervisor:
    """One MCP server. `changed` is called whenever its tools may be others than before."""

    def __init__(
        self, source: Source, changed: Callable[[], None], *, start_seconds: float, clock: Clock | None = None
    ) -> None:
        self.source = source
        self._changed = changed
        self._start_seconds = start_seconds
        self._clock = clock or SystemClock()
        self._connection: Connection | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._opening: asyncio.Task[Connection] | None = None
        self._there = asyncio.Event()

    @property
    def connection(self) -> Connection | None:
        """The session with the server as it is now, or as it last was."""
        return self._connection

    async def open(self) -> None:
        """Start or reach the server. Raises DragomanError when that fails: then it is not tried again."""
        await self.close()
        self._there = asyncio.Event()
        opening = self._opening = asyncio.create_task(self._connect())
        closed = f"the MCP server `{self.source.name}` was closed while it was being started"
        try:
            connection = await opening
        except asyncio.CancelledError:
            if self._opening is opening:  # it is whoever opens that was canceled
                raise
            raise CannotConnect(closed, reason="CONNECTION_LOST") from None
        if self._opening is not opening:
            raise CannotConnect(closed, reason="CONNECTION_LOST")
        self._opening = None
        self._connection = connection
        self._there.set()
        self._keeper = asyncio.create_task(self._keep())

    async def close(self) -> None:
        """Stop the server, if it is ours; also one that is being started."""
        opening, self._opening = self._opening, None
        keeper, self._keeper = self._keeper, None
        connection, self._connection = self._connection, None
        # What was left behind on a loop that is gone cannot be waited for here.
        loop = asyncio.get_running_loop()
        if opening is not None and opening.get_loop() is loop:
            opening.cancel()
            await asyncio.wait((opening,))
            if not opening.cancelled() and opening.exception() is None:
                await opening.result().close()
        if keeper is not None and keeper.get_loop() is loop:
            keeper.cancel()
            await asyncio.wait((keeper,))
            if connection is not None:
                await connection.close()

    async def at_hand(self) -> Connection:
        """A session that works, as far as is known; waits a while for a server that is being started again.

        Raises:
            CannotConnect: it does not come back.
        """
        connection = self._connection
        if connection is not None and not connection.over.is_set():
            return connection
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                while (connection := self._connection) is None or connection.over.is_set():
                    self._there.clear()
                    await self._there.wait()
                return connection
        raise CannotConnect(f"the MCP server `{self.source.name}` is not running", reason="CONNECTION_LOST")

    def retire(self, connection: Connection) -> None:
        """This session is of no use any more: begin another."""
        connection.over.set()

    async def _connect(self) -> Connection:
        connection = Connection(self.source, self._changed)
        await connection.open(self._start_seconds)
        return connection

    async def _keep(self) -> None:
        pause = FIRST_PAUSE
        while True:
            connection, since = self._connection, self._clock.now()
            if connection is not None:
                await connection.over.wait()
                lived = (self._clock.now() - since) / 1000
                logger.warning("the MCP server %s has ended after %.1f s%s", self.source.name, lived, _said(connection))
                await connection.close()
                if lived >= SOUND_SECONDS:
                    pause = FIRST_PAUSE
            await wait(self._clock, asyncio.get_running_loop().create_future(), pause)
            pause = min(pause * 2, LONGEST_PAUSE)
            try:
                self._connection = await self._connect()
            except DragomanError as error:
                self._connection = None
                logger.warning("%s", error)
                continue
            logger.info("the MCP server %s is there again", self.source.name)
            self._there.set()
            self._changed()


def _said(connection: Connection) -> str:
    if connection.problem:
        return f": {connection.problem}"
    last = connection.last_words.splitlines()[-1:]
    return f"; it said last: {last[0]}" if last else ""
