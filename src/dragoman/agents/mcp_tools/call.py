"""One call of a tool that is under way."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast

import mcp_types as types
from mcp import MCPError
from msgspec import Struct

if TYPE_CHECKING:
    from mcp.client.session import ClientRequestContext
    from mcp_types import InputResponses

    from dragoman.agents.mcp_tools.connection import Connection

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
        # What is known of calls on the wire: only some transports tell.
        self._sent: dict[str, ToolCall] = {}
        self._ids: dict[ToolCall, str] = {}
        self._answered: set[ToolCall] = set()
        self._given_up: dict[ToolCall, float] = {}
        self._is_lost = False
        self._doubts = 0
        self._turn = asyncio.Lock()
        self._has_turn: ToolCall | None = None
        self._left = asyncio.Event()

    def close(self) -> None:
        """The connection is over: nobody asks any more."""
        for known in (self._calls, self._sent, self._ids, self._answered, self._given_up):
            known.clear()
        self._stir()

    # -- calls come and go ---------------------------------------------------------------------------------------------

    async def enter(self, call: ToolCall) -> None:
        """A call is about to begin; it may have to wait for its turn."""
        if call.tool in self._askers:
            await self._turn.acquire()
            self._has_turn = call
        self._calls[call] = False

    def leave(self, call: ToolCall, *, given_up: bool = False) -> None:
        """A call has ended, or nobody waits for it any more."""
        self._calls.pop(call, None)
        if not given_up:
            self._forget(call)
        elif call not in self._answered:
            if len(self._given_up) < REMEMBERED:
                self._given_up[call] = asyncio.get_running_loop().time()
            else:
                self._is_lost = True
        self._answered.discard(call)
        self._pass_turn(call)
        self._stir()

    def sent(self, id: types.RequestId) -> None:
        """The call on whose behalf something is done has been sent, under this id. Only some transports tell that."""
        call = CALL.get()
        if call is not None:
            self._ids[call] = str(id)
            self._sent[str(id)] = call

    def answered(self, id: types.RequestId | None) -> None:
        """The server has answered what was sent under this id: that call asks nothing any more, given up or not."""
        call = self._sent.get(str(id))
        if call is not None:
            if call in self._calls:
                self._answered.add(call)
            self._forget(call)

    def _forget(self, call: ToolCall) -> None:
        self._sent.pop(self._ids.pop(call, ""), None)
        self._given_up.pop(call, None)

    def _pass_turn(self, call: ToolCall) -> None:
        if self._has_turn is call:
            self._has_turn = None
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
            if call.tool in self._askers and self._has_turn is not call and not call.is_abandoned:
                # It goes on, and may ask again: not while another that asks is at work.
                await self._turn.acquire()
                if call in self._calls:
                    self._has_turn = call
                else:
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


# How deeply what is sent may be nested. The SDK cannot write more than about 250 levels, and ends the connection when
# it tries, with every call that others have there.
NESTING = 100
# How long a call whose question is canceled may take to end by itself, and then how long telling the server to stop.
FINAL_SECONDS, CANCEL_SECONDS = 1.0, 2.0
# Whom a call is for: the tenant, the user, and for strangers the conversation, for that is all that tells them apart.
Caller = tuple[str, str, str]


class Progress(Struct, frozen=True):
    """How far the tool is."""

    done: float
    total: float | None
    text: str


class Question(Struct, frozen=True):
    """The tool waits for an answer, here and now: it is held open until then."""

    params: types.ElicitRequestParams


Outcome = types.CallToolResult | types.InputRequiredResult


class ToolCall:
    """A call and what it has to say.

    Where a server asks within its call, the call has a task of its own: it outlives the run that began it while its
    question waits for an answer. Servers that return their questions are simply called.
    """

    def __init__(
        self,
        connection: Connection,
        tool: str,
        arguments: dict[str, Any],
        *,
        caller: Caller = ("", "", ""),
        meta: dict[str, Any] | None = None,
        state: str | None = None,
        responses: InputResponses | None = None,
        asks: bool = True,
        told: Callable[[Progress], Awaitable[None]] | None = None,
    ) -> None:
        self.connection = connection
        self.tool = tool
        self.caller = caller
        self.is_abandoned = False
        self._arguments = arguments
        self._meta = meta
        self._state = state
        self._responses = responses
        self._asks = asks
        self._told = told
        self._progress: Progress | None = None
        self._questions: deque[types.ElicitRequestParams] = deque()
        self._answer: asyncio.Future[types.ElicitResult] | None = None
        self._asking = asyncio.Lock()
        self._news = asyncio.Event()
        self._work: asyncio.Task[Outcome] | None = None
        if not connection.is_modern:
            self._work = asyncio.create_task(self._held())
            self._work.add_done_callback(self._ended)

    async def _call(self) -> Outcome:
        return await self.connection.client.session.call_tool(
            self.tool,
            self._arguments,
            progress_callback=self._moved,
            input_responses=self._responses,
            request_state=self._state,
            meta=cast("types.RequestParamsMeta | None", self._meta),
            allow_input_required=True,
        )

    async def _held(self) -> Outcome:
        CALL.set(self)
        questions = self.connection.questions
        await questions.enter(self)
        given_up = False
        try:
            return await self._call()
        except asyncio.CancelledError:
            given_up = True
            raise
        finally:
            questions.leave(self, given_up=given_up)
            # Nobody will answer any more, and the server may still wait for it.
            self.answer(types.ElicitResult(action="cancel"))

    def _ended(self, work: asyncio.Task[Outcome]) -> None:
        if not work.cancelled():
            work.exception()  # heard, so that nobody complains when nobody waits for it any more
        self._news.set()

    async def _moved(self, progress: float, total: float | None, message: str | None) -> None:
        moved = Progress(progress, total, message or "")
        if self._work is None:
            if self._told is not None:
                await self._told(moved)
        elif not self._work.done():
            self._progress = moved
            self._news.set()

    async def ask(self, params: types.ElicitRequestParams) -> types.ElicitResult:
        """The server asks something for this call."""
        if not self._asks:
            return types.ElicitResult(action="decline")
        async with self._asking:  # several at once are asked one after the other
            if self._work is None or self._work.done() or self.is_abandoned:
                return types.ElicitResult(action="cancel")
            self._answer = asyncio.get_running_loop().create_future()
            self._questions.append(params)
            self._news.set()
            try:
                return await self._answer
            finally:
                self._answer = None

    # -- for who waits -------------------------------------------------------------------------------------------------

    @property
    def waits(self) -> bool:
        """True when the server still waits for an answer."""
        return self._answer is not None and not self._answer.done()

    def answer(self, result: types.ElicitResult) -> None:
        """Answer the question that waits, if it still does."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(result)

    async def next(self) -> Progress | Question | Outcome:
        """What happens next.

        Raises:
            MCPError: the server refused, or is gone.
            ValueError: it answered what is not MCP.
        """
        if self._work is None:
            return await self._call()
        while True:
            if self._work.done():
                return await self._work
            if self._questions:
                return Question(self._questions.popleft())
            if self._progress is not None:
                progress, self._progress = self._progress, None
                return progress
            self._news.clear()
            await self._news.wait()

    async def cancel(self) -> None:
        """Stop it: the server is told so. One without a task of its own was stopped with the run that made it.

        A server that does not even take that in is of no use to anybody: then the connection is over.
        """
        work = self._work
        if work is None:
            return
        self.is_abandoned = True
        if self.waits:
            # Without its answer it mostly ends by itself. Then it is known that it will ask nothing more.
            self.answer(types.ElicitResult(action="cancel"))
            await asyncio.wait((work,), timeout=FINAL_SECONDS)
        work.cancel()
        done, _ = await asyncio.wait((work,), timeout=CANCEL_SECONDS)
        if not done:
            self.connection.end("it does not read what it is sent")


def is_too_deep(value: object) -> bool:
    """True when a JSON value is nested deeper than what can be sent."""
    level: list[object] = [value]
    for _ in range(NESTING):
        level = [inner for each in level for inner in _inside(each)]
        if not level:
            return False
    return True


def _inside(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return cast("dict[str, object]", value).values()
    return cast("list[object]", value) if isinstance(value, list) else ()


def is_lost(error: MCPError) -> bool:
    """True when an error says that the connection is over. Servers use the same code for errors of their own."""
    return error.code == types.CONNECTION_CLOSED and error.message == "Connection closed"


def is_cut(error: MCPError) -> bool:
    """True when an error says that the answer to this call broke off. What others wait for may still come."""
    return error.code == types.CONNECTION_CLOSED and error.message.startswith("SSE stream")


def is_outdated(error: MCPError) -> bool:
    """True when an error says that the server will not go on from what it had us keep for it."""
    data: object = error.data
    return isinstance(data, dict) and cast("dict[str, Any]", data).get("reason") == "invalid_request_state"


def is_forgotten(error: MCPError) -> bool:
    """True when an error says that the server does not know the session any more: it has done nothing for this call."""
    return error.message in ("Session terminated", "Session not found")
