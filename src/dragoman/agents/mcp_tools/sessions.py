"""Sessions of single callers with one MCP server, for the tools that ask within a call."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from dragoman.agents.mcp_tools.connection import ServerConnection
from dragoman.clock import wait
from dragoman.model.error import DragomanError

if TYPE_CHECKING:
    from dragoman.agents.mcp_tools.call import Caller, ToolCall
    from dragoman.agents.mcp_tools.source import Source
    from dragoman.clock import Clock

logger = logging.getLogger("dragoman.mcp")
# Maximum sessions of one server, and of one caller with it. Each is a process, where the server is a program.
MAX_SESSIONS, MAX_PER_CALLER = 8, 4
# A session that was not used for this long is closed, within twice the time.
IDLE_SECONDS = 60.0
# Seconds before another session is tried with a server that could not be started once more.
RETRY_SECONDS = 60.0


class CallerSessions:
    """The sessions of one server: opened when they are needed, closed when they are not.

    A tool that has asked is called in a session of its caller from then on, one call at a time, so that a question
    there can belong to no other call. A session is closed as soon as a call in it was abandoned, since that may still
    ask. The tools that never ask stay on the first connection, where a program keeps its state.
    """

    def __init__(self, source: Source, clock: Clock, start_seconds: float) -> None:
        self._source = source
        self._clock = clock
        self._start_seconds = start_seconds
        self._asking: set[str] = set()
        self._callers: dict[ServerConnection, Caller] = {}
        self._tending: set[asyncio.Task[None]] = set()
        self._retry_at = 0
        self._changed = asyncio.Event()
        self._is_closed = False

    def add_tool(self, name: str) -> None:
        """Remember a tool that asks."""
        self._asking.add(name)

    def notify(self) -> None:
        """Wake the calls that wait: another one has ended."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def choose_connection(self, call: ToolCall, first: ServerConnection) -> ServerConnection | None:
        """Return the connection on which to start a call: the first one, or a session. To be used at once.

        Waits while there can be no more sessions. With a server that cannot be started once more, tools that ask take
        turns on the first connection. None when there has to be another first connection, or the pool was closed.
        """
        if call.tool not in self._asking:
            return first
        while not self._is_closed:
            own = [session for session in self._open_sessions() if self._callers[session] == call.caller]
            session = next((each for each in own if each.is_idle), None)
            if session is None and not self.is_single and len(own) < MAX_PER_CALLER and self._make_room():
                session = await self._open(call.caller)
            if session is not None:
                return session
            if self.is_single and not self._asking & first.in_flight.tools:
                return self._usable(first)
            await self._changed.wait()
        return None

    def _usable(self, first: ServerConnection) -> ServerConnection | None:
        if first.in_flight.has_abandoned and first.is_idle:
            first.fail("a call was given up that may still ask, and a second process cannot be started")
        return None if first.closed.is_set() else first

    @property
    def is_single(self) -> bool:
        """True when the server could not be started once more, a while ago."""
        return self._clock.now() < self._retry_at

    def _open_sessions(self) -> list[ServerConnection]:
        return [session for session in self._callers if not session.closed.is_set()]

    def _make_room(self) -> bool:
        """Make room for another session, where an idle one can be closed for it. False when there is none."""
        sessions = self._open_sessions()
        if len(sessions) < MAX_SESSIONS:
            return True
        idle = next((session for session in sessions if session.is_idle), None)
        if idle is not None:
            idle.closed.set()
        return idle is not None

    async def _open(self, caller: Caller) -> ServerConnection | None:
        """Open a session for a caller; None when the server cannot be started once more."""

        def on_end() -> None:
            if session.in_flight.has_abandoned:
                session.closed.set()
            self.notify()

        session = ServerConnection(self._source, _ignore_tools, on_asking=self.add_tool, on_end=on_end, handshake=True)
        self._callers[session] = caller
        try:
            await session.open(self._start_seconds)
        except BaseException as error:
            del self._callers[session]
            self.notify()
            if self._is_closed or not isinstance(error, DragomanError):
                raise
            logger.warning(
                "%s cannot be started a second time, so tools that ask take turns: %s",
                *(self._source.name, error),
            )
            self._retry_at = self._clock.now() + int(RETRY_SECONDS * 1000)
            return None
        tending = asyncio.create_task(self._tend(session))
        self._tending.add(tending)
        tending.add_done_callback(self._tending.discard)
        return session

    async def _tend(self, session: ServerConnection) -> None:
        """Close a session when it has ended, or was not used for a while."""
        closed = asyncio.create_task(session.closed.wait())
        try:
            is_idle = False
            while not closed.done() and not (is_idle and session.is_idle):
                is_idle = session.is_idle
                await wait(self._clock, closed, IDLE_SECONDS)
        finally:
            closed.cancel()
            session.closed.set()
            self.notify()
            await session.close()
            del self._callers[session]

    async def close(self) -> None:
        """Close all of them, for good."""
        self._is_closed = True
        self.notify()
        await asyncio.gather(*(session.close() for session in tuple(self._callers)))
        if self._tending:
            await asyncio.wait(self._tending)


def _ignore_tools() -> None:
    """Do nothing: the tools are those of the first connection."""
