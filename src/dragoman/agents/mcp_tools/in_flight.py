"""The tool calls in flight on one connection to an MCP server, and to which of them a question belongs."""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

import mcp_types as types

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from mcp.client.session import ClientRequestContext

    from dragoman.agents.mcp_tools.call import ToolCall

logger = logging.getLogger("dragoman.mcp")
# The call that the running code works for. Over HTTP a question arrives on its call's response stream, with it set.
CURRENT_CALL: ContextVar[ToolCall | None] = ContextVar("dragoman_mcp_call", default=None)


class CallsInFlight:
    """The calls that one connection waits for, and the callback for the questions of its server.

    Before the newest protocol revision, an elicitation request does not name its call. Over HTTP it arrives on the
    response stream of its call. Elsewhere it belongs to the only call in flight, which is always so in a session of a
    caller (`CallerSessions`). With several calls in flight, or once a call was abandoned here and may still ask, a
    question could belong to somebody else: it is answered with `cancel`, and never shown to anybody.

    `on_asking` is called with the name of a tool that asks, `on_end` when a call has ended.
    """

    def __init__(self, server: str, on_asking: Callable[[str], None], on_end: Callable[[], None]) -> None:
        self._server = server
        self._on_asking = on_asking
        self._on_end = on_end
        self._calls: set[ToolCall] = set()
        # For each question that got no answer, the calls that may have asked it.
        self._unanswered: list[set[ToolCall]] = []
        self.has_abandoned = False

    def __bool__(self) -> bool:
        return bool(self._calls)

    @property
    def tools(self) -> set[str]:
        """The names of the tools that are called."""
        return {call.tool for call in self._calls}

    def add(self, call: ToolCall) -> None:
        """Register a call that is about to be sent."""
        self._calls.add(call)

    def end(self, call: ToolCall, *, abandoned: bool = False) -> None:
        """Unregister a call that has ended, or was abandoned: then the server may still ask for it.

        The first to end of the calls that may have asked an unanswered question is taken for the one that has.
        """
        self._calls.discard(call)
        if abandoned:
            self.has_abandoned = True
        else:
            unanswered = next((calls for calls in self._unanswered if call in calls), None)
            if unanswered is not None:
                self._unanswered.remove(unanswered)
                call.is_unanswered = True
                self._on_asking(call.tool)
        if not self._calls:
            self._unanswered.clear()
        self._on_end()

    @contextmanager
    def hold(self, call: ToolCall) -> Generator[None]:
        """Keep a call registered while the server works for it. A cancellation in this time abandons it."""
        self.add(call)
        abandoned = False
        try:
            yield
        except asyncio.CancelledError:
            abandoned = True
            raise
        finally:
            self.end(call, abandoned=abandoned)

    async def on_elicitation(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """Handle an elicitation request of the server: the SDK's callback.

        The SDK starts it in the order in which messages arrive, so a call whose response came after the request is
        still in flight here.
        """
        call = CURRENT_CALL.get() or self._find_call()
        if call is None or call not in self._calls:  # one that was abandoned: its question belongs to no other
            return types.ElicitResult(action="cancel")
        return await call.ask(params)

    def _find_call(self) -> ToolCall | None:
        """Return the only call that can have asked; None when there are several, or one that was abandoned."""
        if len(self._calls) == 1 and not self.has_abandoned:
            (call,) = self._calls
            self._on_asking(call.tool)
            return call
        logger.warning("%s asks, but it cannot be determined for whom: it gets no answer", self._server)
        if self._calls:
            self._unanswered.append(set(self._calls))
        return None
