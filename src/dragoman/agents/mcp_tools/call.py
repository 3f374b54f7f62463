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

    from dragoman.agents.mcp_tools.connection import ServerConnection

logger = logging.getLogger("dragoman.mcp")
# The call on whose behalf something is done. Over HTTP a question comes in the answer to its call, and brings it along.
CURRENT_CALL: ContextVar[ToolCall | None] = ContextVar("dragoman_mcp_call", default=None)
ROUTING_TIMEOUT = 30.0
# How many calls that were given up are remembered. With more of them, no question is anybody's until the session ends.
MAX_ABANDONED = 1000


class ElicitationRouter:
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
        self._asking_tools: set[str] = set()
        # What is known of calls on the wire: only some transports tell.
        self._calls_by_id: dict[str, ToolCall] = {}
        self._ids_by_call: dict[ToolCall, str] = {}
        self._responded: set[ToolCall] = set()
        self._abandoned: dict[ToolCall, float] = {}
        self._has_overflowed = False
        self._undecided = 0
        self._turn = asyncio.Lock()
        self._turn_holder: ToolCall | None = None
        self._calls_changed = asyncio.Event()

    def close(self) -> None:
        """The connection is over: nobody asks any more."""
        for known in (self._calls, self._calls_by_id, self._ids_by_call, self._responded, self._abandoned):
            known.clear()
        self._notify()

    # -- calls come and go ---------------------------------------------------------------------------------------------

    async def add_call(self, call: ToolCall) -> None:
        """A call is about to begin; it may have to wait for its turn."""
        if call.tool in self._asking_tools:
            await self._turn.acquire()
            self._turn_holder = call
        self._calls[call] = False

    def remove_call(self, call: ToolCall, *, abandoned: bool = False) -> None:
        """A call has ended, or nobody waits for it any more."""
        self._calls.pop(call, None)
        if not abandoned:
            self._discard(call)
        elif call not in self._responded:
            if len(self._abandoned) < MAX_ABANDONED:
                self._abandoned[call] = asyncio.get_running_loop().time()
            else:
                self._has_overflowed = True
        self._responded.discard(call)
        self._release_turn(call)
        self._notify()

    def record_sent(self, id: types.RequestId) -> None:
        """The call on whose behalf something is done has been sent, under this id. Only some transports tell that."""
        call = CURRENT_CALL.get()
        if call is not None:
            self._ids_by_call[call] = str(id)
            self._calls_by_id[str(id)] = call

    def record_response(self, id: types.RequestId | None) -> None:
        """The server has answered what was sent under this id: that call asks nothing any more, given up or not."""
        call = self._calls_by_id.get(str(id))
        if call is not None:
            if call in self._calls:
                self._responded.add(call)
            self._discard(call)

    def _discard(self, call: ToolCall) -> None:
        self._calls_by_id.pop(self._ids_by_call.pop(call, ""), None)
        self._abandoned.pop(call, None)

    def _release_turn(self, call: ToolCall) -> None:
        if self._turn_holder is call:
            self._turn_holder = None
            self._turn.release()

    def _notify(self) -> None:
        self._calls_changed.set()
        self._calls_changed = asyncio.Event()

    # -- questions -----------------------------------------------------------------------------------------------------

    async def on_elicitation(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """A server asks. The SDK's callback."""
        call = CURRENT_CALL.get()
        if call is None:
            call = await self._find_call()
            if call is None:
                logger.warning("%s asks, and it cannot be told for whom: it gets no answer", self._server)
                return types.ElicitResult(action="cancel")
            self._asking_tools.add(call.tool)
        elif call not in self._calls:  # it was given up, and its question is nobody else's
            return types.ElicitResult(action="cancel")
        self._calls[call] = True
        self._release_turn(call)
        self._notify()
        try:
            answer = await call.ask(params)
            if call.tool in self._asking_tools and self._turn_holder is not call and not call.is_abandoned:
                # It goes on, and may ask again: not while another that asks is at work.
                await self._turn.acquire()
                if call in self._calls:
                    self._turn_holder = call
                else:
                    self._turn.release()
            return answer
        finally:
            if call in self._calls:
                self._calls[call] = False

    async def _find_call(self) -> ToolCall | None:
        # Where none is at work, one that waits asks several things at once.
        suspects = self._active_calls() or set(self._calls)
        self._undecided += 1
        self._notify()
        try:
            async with asyncio.timeout(ROUTING_TIMEOUT):
                while suspects and not self._may_belong_to_inactive(suspects):
                    if len(suspects) == 1:
                        return next(iter(suspects))
                    if self._undecided >= len(self._active_calls()):
                        # Each of them asks, and none would ever end. One goes without an answer, which tells the rest.
                        self._asking_tools |= {call.tool for call in suspects}
                        return None
                    await self._calls_changed.wait()
                    suspects &= self._active_calls()
        except TimeoutError:
            return None
        finally:
            self._undecided -= 1
        return None

    def _may_belong_to_inactive(self, suspects: set[ToolCall]) -> bool:
        """True when the question may be that of a call which is not at work."""
        callers = {call.caller for call in suspects}
        waiting = {call.caller for call, waits in self._calls.items() if waits}
        lately = asyncio.get_running_loop().time() - ROUTING_TIMEOUT
        return (
            self._has_overflowed
            or not waiting <= callers
            or any(when > lately or call.caller not in callers for call, when in self._abandoned.items())
        )

    def _active_calls(self) -> set[ToolCall]:
        return {call for call, waits in self._calls.items() if not waits}


# How deeply what is sent may be nested. The SDK cannot write more than about 250 levels, and ends the connection when
# it tries, with every call that others have there.
MAX_NESTING = 100
# How long a call whose question is canceled may take to end by itself, and then how long telling the server to stop.
SELF_END_SECONDS, CANCEL_SECONDS = 1.0, 2.0
# Whom a call is for: the tenant, the user, and for strangers the conversation, for that is all that tells them apart.
Caller = tuple[str, str, str]


class Progress(Struct, frozen=True):
    """How far the tool is."""

    done: float
    total: float | None
    text: str


class ElicitationPause(Struct, frozen=True):
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
        connection: ServerConnection,
        tool: str,
        arguments: dict[str, Any],
        *,
        caller: Caller = ("", "", ""),
        meta: dict[str, Any] | None = None,
        state: str | None = None,
        responses: InputResponses | None = None,
        asks: bool = True,
        on_progress: Callable[[Progress], Awaitable[None]] | None = None,
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
        self._report_progress = on_progress
        self._progress: Progress | None = None
        self._pending: deque[types.ElicitRequestParams] = deque()
        self._answer: asyncio.Future[types.ElicitResult] | None = None
        self._asking = asyncio.Lock()
        self._wakeup = asyncio.Event()
        self._task: asyncio.Task[Outcome] | None = None
        if not connection.is_modern:
            self._task = asyncio.create_task(self._run())
            self._task.add_done_callback(self._on_done)

    async def _call(self) -> Outcome:
        return await self.connection.client.session.call_tool(
            self.tool,
            self._arguments,
            progress_callback=self._on_progress,
            input_responses=self._responses,
            request_state=self._state,
            meta=cast("types.RequestParamsMeta | None", self._meta),
            allow_input_required=True,
        )

    async def _run(self) -> Outcome:
        CURRENT_CALL.set(self)
        questions = self.connection.elicitations
        await questions.add_call(self)
        given_up = False
        try:
            return await self._call()
        except asyncio.CancelledError:
            given_up = True
            raise
        finally:
            questions.remove_call(self, abandoned=given_up)
            # Nobody will answer any more, and the server may still wait for it.
            self.answer(types.ElicitResult(action="cancel"))

    def _on_done(self, work: asyncio.Task[Outcome]) -> None:
        if not work.cancelled():
            work.exception()  # heard, so that nobody complains when nobody waits for it any more
        self._wakeup.set()

    async def _on_progress(self, progress: float, total: float | None, message: str | None) -> None:
        moved = Progress(progress, total, message or "")
        if self._task is None:
            if self._report_progress is not None:
                await self._report_progress(moved)
        elif not self._task.done():
            self._progress = moved
            self._wakeup.set()

    async def ask(self, params: types.ElicitRequestParams) -> types.ElicitResult:
        """The server asks something for this call."""
        if not self._asks:
            return types.ElicitResult(action="decline")
        async with self._asking:  # several at once are asked one after the other
            if self._task is None or self._task.done() or self.is_abandoned:
                return types.ElicitResult(action="cancel")
            self._answer = asyncio.get_running_loop().create_future()
            self._pending.append(params)
            self._wakeup.set()
            try:
                return await self._answer
            finally:
                self._answer = None

    # -- for who waits -------------------------------------------------------------------------------------------------

    @property
    def is_waiting(self) -> bool:
        """True when the server still waits for an answer."""
        return self._answer is not None and not self._answer.done()

    def answer(self, result: types.ElicitResult) -> None:
        """Answer the question that waits, if it still does."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(result)

    async def next(self) -> Progress | ElicitationPause | Outcome:
        """What happens next.

        Raises:
            MCPError: the server refused, or is gone.
            ValueError: it answered what is not MCP.
        """
        if self._task is None:
            return await self._call()
        while True:
            if self._task.done():
                return await self._task
            if self._pending:
                return ElicitationPause(self._pending.popleft())
            if self._progress is not None:
                progress, self._progress = self._progress, None
                return progress
            self._wakeup.clear()
            await self._wakeup.wait()

    async def cancel(self) -> None:
        """Stop it: the server is told so. One without a task of its own was stopped with the run that made it.

        A server that does not even take that in is of no use to anybody: then the connection is over.
        """
        work = self._task
        if work is None:
            return
        self.is_abandoned = True
        if self.is_waiting:
            # Without its answer it mostly ends by itself. Then it is known that it will ask nothing more.
            self.answer(types.ElicitResult(action="cancel"))
            await asyncio.wait((work,), timeout=SELF_END_SECONDS)
        work.cancel()
        done, _ = await asyncio.wait((work,), timeout=CANCEL_SECONDS)
        if not done:
            self.connection.fail("it does not read what it is sent")


def is_too_deep(value: object) -> bool:
    """True when a JSON value is nested deeper than what can be sent."""
    level: list[object] = [value]
    for _ in range(MAX_NESTING):
        level = [inner for each in level for inner in _children(each)]
        if not level:
            return False
    return True


def _children(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return cast("dict[str, object]", value).values()
    return cast("list[object]", value) if isinstance(value, list) else ()


def is_connection_closed(error: MCPError) -> bool:
    """True when an error says that the connection is over. Servers use the same code for errors of their own."""
    return error.code == types.CONNECTION_CLOSED and error.message == "Connection closed"


def is_stream_cut(error: MCPError) -> bool:
    """True when an error says that the answer to this call broke off. What others wait for may still come."""
    return error.code == types.CONNECTION_CLOSED and error.message.startswith("SSE stream")


def is_state_expired(error: MCPError) -> bool:
    """True when an error says that the server will not go on from what it had us keep for it."""
    data: object = error.data
    return isinstance(data, dict) and cast("dict[str, Any]", data).get("reason") == "invalid_request_state"


def is_session_unknown(error: MCPError) -> bool:
    """True when an error says that the server does not know the session any more: it has done nothing for this call."""
    return error.message in ("Session terminated", "Session not found")
