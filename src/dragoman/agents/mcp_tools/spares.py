"""Further connections to one MCP server, for calls that may ask while a question of another caller is open."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from dragoman.agents.mcp_tools.connection import ServerConnection
from dragoman.clock import wait
from dragoman.model.error import DragomanError

if TYPE_CHECKING:
    from dragoman.agents.mcp_tools.call import ElicitationState, ToolCall
    from dragoman.agents.mcp_tools.source import Source
    from dragoman.clock import Clock

logger = logging.getLogger("dragoman.mcp")
# Maximum spares of one server. Each is a process, where the server is a program.
MAX_SPARES = 8
# A spare that was not used for this long is closed, within twice the time.
IDLE_SECONDS = 60.0


class SparePool:
    """The spares of one server: opened when they are needed, closed when they are not.

    A program keeps its state in its process, so a call is made on the first connection wherever that is possible: only
    tools that have asked before are called on a spare.
    """

    def __init__(self, source: Source, asking: ElicitationState, clock: Clock, start_seconds: float) -> None:
        self._source = source
        self._asking = asking
        self._clock = clock
        self._start_seconds = start_seconds
        self._spares: dict[ServerConnection, asyncio.Task[None]] = {}
        self._opening = asyncio.Lock()
        self._is_closed = False

    async def place(self, call: ToolCall, first: ServerConnection) -> ServerConnection | None:
        """Register a call on the first connection or on a spare, and return that; None when it has to be another.

        That is so when the first connection or the pool has been closed.

        Waits for the call's turn, and for other callers' answers when there can be no more spares.
        """
        may_open = True
        while not first.closed.is_set() and not self._is_closed:
            admitting = [each for each in (first, *self._open_spares()) if each.elicitations.admits(call)]
            for each in admitting:
                if each.elicitations.add_call(call):
                    return each
            if not admitting and may_open and self._has_room():
                may_open = await self._open(call)
            else:
                await self._asking.wait()
        return None

    def _open_spares(self) -> list[ServerConnection]:
        return [spare for spare in self._spares if not spare.closed.is_set()]

    def _has_room(self) -> bool:
        """True when there can be one more spare; an idle one gives way, because it admits not everybody."""
        return len([spare for spare in self._open_spares() if not spare.is_idle]) < MAX_SPARES

    async def _open(self, call: ToolCall) -> bool:
        """Open another spare, unless one has become usable meanwhile; False when that fails."""
        async with self._opening:
            spares = self._open_spares()
            if any(spare.elicitations.admits(call) for spare in spares) or not self._has_room() or self._is_closed:
                return True
            if len(spares) >= MAX_SPARES:
                next(spare for spare in spares if spare.is_idle).closed.set()
            spare = ServerConnection(self._source, _ignore_tools, asking=self._asking, handshake=True)
            try:
                await spare.open(self._start_seconds)
            except DragomanError as error:
                logger.warning(
                    "%s cannot be started a second time, so calls wait for other callers' answers: %s",
                    *(self._source.name, error),
                )
                return False
            self._spares[spare] = asyncio.create_task(self._tend(spare))
            return True

    async def _tend(self, spare: ServerConnection) -> None:
        """Close a spare when it has ended, or was not used for a while."""
        closed = asyncio.create_task(spare.closed.wait())
        try:
            is_idle = False
            while not closed.done() and not (is_idle and spare.is_idle):
                is_idle = spare.is_idle
                await wait(self._clock, closed, IDLE_SECONDS)
        finally:
            closed.cancel()
            spare.closed.set()
            await spare.close()
            self._spares.pop(spare, None)
            self._asking.notify()

    async def close(self) -> None:
        """Close all of them, for good."""
        self._is_closed = True
        async with self._opening:
            tending = tuple(self._spares.values())
        for spare in tuple(self._spares):
            spare.closed.set()
        if tending:
            await asyncio.wait(tending)


def _ignore_tools() -> None:
    """Do nothing: the tools are those of the first connection."""
