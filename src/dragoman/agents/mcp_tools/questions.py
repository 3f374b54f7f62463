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
# How many calls that were given up are remembered. With more of them, no question is anybody's until the session ends.
REMEMBERED = 1000


class Questions:
    """Gives the questions of one connection to the calls they belong to, or to nobody.

    Of all calls under way when a question comes, the one that asked is stuck: when every other has ended, it is known.
    That a wrong caller might be shown a question is not risked: what stays in doubt is answered with a cancel. So that
    it seldom does, tools that are known to ask so take turns: at any time at most one of them is at work and not
    waiting for its answer.

    Two kinds of calls are in doubt without being at work. One that waits for its answer may ask a second thing in the
    meantime. And not every server stops when a call is given up: until it has answered that call, the next question
    may be that call's. Beside such a call of another caller a question is nobody's, for as long as it takes; beside
    one of the same caller that was given up, for a while.
    """

    def __init__(self, server: str) -> None:
        self._server = server
        self._calls: dict[ToolCall, bool] = {}
        self._askers: set[str] = set()
        self._sent: dict[str, ToolCall] = {}
        self._given_up: dict[ToolCall, float] = {}
        self._is_lost = False
        self._doubts = 0
        self._turn = asyncio.Lock()
        self._left = asyncio.Event()

    def close(self) -> None:
        """The connection is over: nobody asks any more."""
        self._calls.clear()
        self._sent.clear()
        self._given_up.clear()
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
        self._calls.pop(call, None)
        if not given_up:
            self._forget(call)
        elif not call.is_answered:
            if len(self._given_up) < REMEMBERED:
                self._given_up[call] = asyncio.get_running_loop().time()
            else:
                self._is_lost = True
        self._pass_turn(call)
        self._stir()

    def sent(self, id: types.RequestId) -> None:
        """The call on whose behalf something is done has been sent, under this id. Only some transports tell that."""
        call = CALL.get()
        if call is not None:
            call.id = str(id)
            self._sent[call.id] = call

    def answered(self, id: types.RequestId | None) -> None:
        """The server has answered what was sent under this id: that call asks nothing any more, given up or not."""
        call = self._sent.get(str(id))
        if call is not None:
            call.is_answered = True
            self._forget(call)

    def _forget(self, call: ToolCall) -> None:
        self._sent.pop(call.id, None)
        self._given_up.pop(call, None)

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
        if call is None:
            call = await self._whose()
            if call is None:
                logger.warning("%s asks, and it cannot be told for whom: it gets no answer", self._server)
                return types.ElicitResult(action="cancel")
            self._askers.add(call.tool)
        elif call not in self._calls:  # it was given up, and its question is nobody else's
            return types.ElicitResult(action="cancel")
        self._calls[call] = True
        self._pass_turn(call)
        self._stir()
        try:
            answer = await call.ask(params)
            if call.tool in self._askers and not call.has_turn and not call.is_abandoned:
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
        # Where none is at work, one that waits asks several things at once.
        suspects = self._at_work() or set(self._calls)
        self._doubts += 1
        self._stir()
        try:
            async with asyncio.timeout(DOUBT_SECONDS):
                while suspects and not self._may_be_another_s(suspects):
                    if len(suspects) == 1:
                        return next(iter(suspects))
                    if self._doubts >= len(self._at_work()):
                        # Each of them asks, and none would ever end. One goes without an answer, which tells the rest.
                        self._askers |= {call.tool for call in suspects}
                        return None
                    await self._left.wait()
                    suspects &= self._at_work()
        except TimeoutError:
            return None
        finally:
            self._doubts -= 1
        return None

    def _may_be_another_s(self, suspects: set[ToolCall]) -> bool:
        """True when the question may be that of a call which is not at work."""
        callers = {call.caller for call in suspects}
        waiting = {call.caller for call, waits in self._calls.items() if waits}
        lately = asyncio.get_running_loop().time() - DOUBT_SECONDS
        return (
            self._is_lost
            or not waiting <= callers
            or any(when > lately or call.caller not in callers for call, when in self._given_up.items())
        )

    def _at_work(self) -> set[ToolCall]:
        return {call for call, waits in self._calls.items() if not waits}
