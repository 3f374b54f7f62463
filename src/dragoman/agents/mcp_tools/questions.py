"""Whose question is it: servers of the handshake era ask without saying for which call."""

from __future__ import annotations

import asyncio
import logging
from contextvars import ContextVar
from typing import TYPE_CHECKING

import mcp_types as types

if TYPE_CHECKING:
    from mcp.client.session import ClientRequestContext

    from dragoman.agents.mcp_tools.call import ToolCall

logger = logging.getLogger("dragoman.mcp")
# The call on whose behalf something is done. Over HTTP a question comes in the answer to its call, and brings it along.
CALL: ContextVar[ToolCall | None] = ContextVar("dragoman_mcp_call", default=None)
DOUBT_SECONDS = 30.0


class Questions:
    """Gives the questions of one connection to the calls they belong to, or to nobody.

    Of all calls under way when a question comes, the one that asked is stuck: when every other has ended, it is known.
    That a wrong caller might be shown a question is not risked: what stays in doubt is answered with a cancel. So that
    it seldom does, tools that are known to ask so take turns: at any time at most one of them is at work and not
    waiting for its answer. Not every server stops when a call is given up, so for a while the next question may be
    that call's, and is nobody's.
    """

    def __init__(self, server: str) -> None:
        self._server = server
        self._calls: dict[ToolCall, bool] = {}
        self._askers: set[str] = set()
        self._harmless: set[str] = set()
        self._given_up: set[ToolCall] = set()
        self._doubts = 0
        self._turn = asyncio.Lock()
        self._left = asyncio.Event()

    def close(self) -> None:
        """The connection is over: nobody asks any more."""
        self._calls.clear()
        self._stir()

    # -- calls come and go ---------------------------------------------------------------------------------------------

    async def enter(self, call: ToolCall) -> None:
        """A call is about to begin; it may have to wait for its turn."""
        if call.tool in self._askers:
            await self._turn.acquire()
            call.has_turn = True
        self._calls[call] = False

    def leave(self, call: ToolCall, *, given_up: bool = False) -> None:
        """A call has ended, or nobody waits for it any more."""
        waits = self._calls.pop(call, True)
        if not given_up:
            self._harmless.add(call.tool)
        elif not waits and (self._doubts or call.tool in self._askers or call.tool not in self._harmless):
            self._given_up.add(call)
            asyncio.get_running_loop().call_later(DOUBT_SECONDS, self._given_up.discard, call)
        self._pass_turn(call)
        self._stir()

    def _pass_turn(self, call: ToolCall) -> None:
        if call.has_turn:
            call.has_turn = False
            self._turn.release()

    def _stir(self) -> None:
        self._left.set()
        self._left = asyncio.Event()

    # -- questions -----------------------------------------------------------------------------------------------------

    async def asked(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """A server asks. The SDK's callback."""
        call = CALL.get()
        if call is None or call not in self._calls:
            call = await self._whose()
            if call is None:
                logger.warning("%s asks, and it cannot be told for whom: it gets no answer", self._server)
                return types.ElicitResult(action="cancel")
            self._askers.add(call.tool)
        self._calls[call] = True
        self._pass_turn(call)
        try:
            answer = await call.ask(params)
            if call.tool in self._askers and not call.has_turn:
                # It goes on, and may ask again: not while another that asks is at work.
                await self._turn.acquire()
                call.has_turn = call in self._calls
                if not call.has_turn:
                    self._turn.release()
            return answer
        finally:
            if call in self._calls:
                self._calls[call] = False

    async def _whose(self) -> ToolCall | None:
        if self._given_up:
            return None
        suspects = self._at_work()
        if not suspects and len(self._calls) == 1:
            return next(iter(self._calls))  # it asks several things at once
        self._doubts += 1
        self._stir()
        try:
            async with asyncio.timeout(DOUBT_SECONDS):
                while len(suspects) > 1:
                    if self._doubts >= len(self._at_work()):
                        # Each of them asks, and none would ever end. One goes without an answer, which tells the rest.
                        self._askers |= {call.tool for call in suspects}
                        return None
                    await self._left.wait()
                    if suspects & self._given_up:
                        return None
                    suspects &= self._at_work()
        except TimeoutError:
            return None
        finally:
            self._doubts -= 1
        return next(iter(suspects), None)

    def _at_work(self) -> set[ToolCall]:
        return {call for call, waits in self._calls.items() if not waits}
