"""One tool call in progress, and the routing of server questions to the calls they belong to."""

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
# The call that the running code works for. Over HTTP a question arrives on its call's response stream, with it set.
CURRENT_CALL: ContextVar[ToolCall | None] = ContextVar("dragoman_mcp_call", default=None)
# Seconds to find the call of a question, and for which an abandoned call of the same caller puts it in doubt.
ROUTING_TIMEOUT = 30.0
# Abandoned calls remembered. Beyond that, no question can be routed until the session ends.
MAX_ABANDONED = 1000


class ElicitationRouter:
    """Routes the elicitation requests of one connection to the tool calls they belong to.

    Before the newest protocol revision, a request does not name its call. The call that asked is blocked until it is
    answered, so it is identified once every other call has ended or asks, too. A question is never shown to a wrong
    caller: when the call stays ambiguous, the request is answered with `cancel`. To make that rare, tools that have
    asked before take turns: at most one of them is active, that is, running and not waiting for its answer.

    Two kinds of calls cause doubt without being active. A call that waits for its answer may ask something else
    meanwhile. And not every server stops an abandoned call: until it has responded, the next request may belong to that
    call. Beside such a call of another caller no request is routed, however long it takes; beside an abandoned call of
    the same caller, none for ROUTING_TIMEOUT.
    """

    def __init__(self, server: str) -> None:
        self._server = server
        # True for a call that waits for its answer.
        self._calls: dict[ToolCall, bool] = {}
        self._asking_tools: set[str] = set()
        # Request ids of calls: only the stdio transport reports them.
        self._calls_by_id: dict[str, ToolCall] = {}
        self._ids_by_call: dict[ToolCall, str] = {}
        self._responded: set[ToolCall] = set()
        self._abandoned: dict[ToolCall, float] = {}
        self._has_overflowed = False
        self._undecided = 0
        self._turn_lock = asyncio.Lock()
        self._turn_holder: ToolCall | None = None
        self._calls_changed = asyncio.Event()

    def close(self) -> None:
        """Forget all calls: the connection is closed."""
        for collection in (self._calls, self._calls_by_id, self._ids_by_call, self._responded, self._abandoned):
            collection.clear()
        self._notify()

    # -- calls ---------------------------------------------------------------------------------------------------------

    async def add_call(self, call: ToolCall) -> None:
        """Register a call that is about to be sent; wait for its turn if its tool is known to ask."""
        if call.tool in self._asking_tools:
            await self._turn_lock.acquire()
            self._turn_holder = call
        self._calls[call] = False

    def remove_call(self, call: ToolCall, *, abandoned: bool = False) -> None:
        """Unregister a call that has ended or was abandoned."""
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
        """Record the request id of the current call. Only the stdio transport reports it."""
        call = CURRENT_CALL.get()
        if call is not None:
            self._ids_by_call[call] = str(id)
            self._calls_by_id[str(id)] = call

    def record_response(self, id: types.RequestId | None) -> None:
        """Record that the server has responded to a request: that call asks nothing any more, abandoned or not."""
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
            self._turn_lock.release()

    def _notify(self) -> None:
        self._calls_changed.set()
        self._calls_changed = asyncio.Event()

    # -- questions -----------------------------------------------------------------------------------------------------

    async def on_elicitation(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """Handle an elicitation request of the server: the SDK's callback."""
        call = CURRENT_CALL.get()
        if call is None:
            call = await self._find_call()
            if call is None:
                logger.warning("%s asks, but it cannot be determined for whom: it gets no answer", self._server)
                return types.ElicitResult(action="cancel")
            self._asking_tools.add(call.tool)
        elif call not in self._calls:  # abandoned: its question belongs to no other call
            return types.ElicitResult(action="cancel")
        self._calls[call] = True
        self._release_turn(call)
        self._notify()
        try:
            answer = await call.ask(params)
            if call.tool in self._asking_tools and self._turn_holder is not call and not call.is_abandoned:
                # It continues and may ask again: it needs a turn like any other asking tool.
                await self._turn_lock.acquire()
                if call in self._calls:
                    self._turn_holder = call
                else:
                    self._turn_lock.release()
            return answer
        finally:
            if call in self._calls:
                self._calls[call] = False

    async def _find_call(self) -> ToolCall | None:
        # With no active call, a waiting one asks several questions at once.
        candidates = self._active_calls() or set(self._calls)
        self._undecided += 1
        self._notify()
        try:
            async with asyncio.timeout(ROUTING_TIMEOUT):
                while candidates and not self._may_belong_to_inactive(candidates):
                    if len(candidates) == 1:
                        return next(iter(candidates))
                    if self._undecided >= len(self._active_calls()):
                        # All of them ask, so none would ever end. One gets no answer, which identifies the others.
                        self._asking_tools |= {call.tool for call in candidates}
                        return None
                    await self._calls_changed.wait()
                    candidates &= self._active_calls()
        except TimeoutError:
            return None
        finally:
            self._undecided -= 1
        return None

    def _may_belong_to_inactive(self, candidates: set[ToolCall]) -> bool:
        """True when the request may belong to a call that is not active."""
        callers = {call.caller for call in candidates}
        waiting = {call.caller for call, waits in self._calls.items() if waits}
        cutoff = asyncio.get_running_loop().time() - ROUTING_TIMEOUT
        return (
            self._has_overflowed
            or not waiting <= callers
            or any(when > cutoff or call.caller not in callers for call, when in self._abandoned.items())
        )

    def _active_calls(self) -> set[ToolCall]:
        return {call for call, waits in self._calls.items() if not waits}


# Maximum nesting of arguments. The SDK cannot encode more than about 250 levels: when it tries, the connection ends,
# and with it the calls of all other callers.
MAX_NESTING = 100
# Seconds a call may take to end after its question was canceled, and then for sending the cancellation.
SELF_END_SECONDS, CANCEL_SECONDS = 1.0, 2.0
# The tenant, the user, and for anonymous users the conversation, which is all that distinguishes them.
Caller = tuple[str, str, str]


class Progress(Struct, frozen=True):
    """A progress notification of a tool."""

    done: float
    total: float | None
    text: str


class ElicitationPause(Struct, frozen=True):
    """The tool waits for an answer; its call stays open until then."""

    params: types.ElicitRequestParams


Outcome = types.CallToolResult | types.InputRequiredResult


class ToolCall:
    """A tool call and the events it produces: progress, questions, its result.

    Where a server asks within a call, the call has an asyncio task of its own: while its question waits, it outlives
    the run that started it. Servers that return their questions are called directly.
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
        self._ask_lock = asyncio.Lock()
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
        router = self.connection.elicitations
        await router.add_call(self)
        abandoned = False
        try:
            return await self._call()
        except asyncio.CancelledError:
            abandoned = True
            raise
        finally:
            router.remove_call(self, abandoned=abandoned)
            # Nobody will answer now, and the server may still be waiting.
            self.answer(types.ElicitResult(action="cancel"))

    def _on_done(self, work: asyncio.Task[Outcome]) -> None:
        if not work.cancelled():
            work.exception()  # retrieved, so that asyncio does not log it when nobody awaits the task
        self._wakeup.set()

    async def _on_progress(self, progress: float, total: float | None, message: str | None) -> None:
        update = Progress(progress, total, message or "")
        if self._task is None:
            if self._report_progress is not None:
                await self._report_progress(update)
        elif not self._task.done():
            self._progress = update
            self._wakeup.set()

    async def ask(self, params: types.ElicitRequestParams) -> types.ElicitResult:
        """Put a question of the server to the caller and return the answer.

        It is declined if the caller cannot be asked, and canceled if the call has ended or was abandoned.
        """
        if not self._asks:
            return types.ElicitResult(action="decline")
        async with self._ask_lock:  # concurrent questions are asked one after the other
            if self._task is None or self._task.done() or self.is_abandoned:
                return types.ElicitResult(action="cancel")
            self._answer = asyncio.get_running_loop().create_future()
            self._pending.append(params)
            self._wakeup.set()
            try:
                return await self._answer
            finally:
                self._answer = None

    # -- for the caller ------------------------------------------------------------------------------------------------

    @property
    def is_waiting(self) -> bool:
        """True while the server waits for an answer."""
        return self._answer is not None and not self._answer.done()

    def answer(self, result: types.ElicitResult) -> None:
        """Answer the pending question, if there still is one."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(result)

    async def next(self) -> Progress | ElicitationPause | Outcome:
        """Return the next event of the call.

        Raises:
            MCPError: the server refused, or the connection is lost.
            ValueError: its response is not valid MCP.
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
        """Cancel the call and notify the server. A call without a task of its own ends with the run that made it.

        A server that does not even read the notification is unusable: then the connection is closed.
        """
        work = self._task
        if work is None:
            return
        self.is_abandoned = True
        if self.is_waiting:
            # It usually ends by itself then, and is known to ask nothing more.
            self.answer(types.ElicitResult(action="cancel"))
            await asyncio.wait((work,), timeout=SELF_END_SECONDS)
        work.cancel()
        done, _ = await asyncio.wait((work,), timeout=CANCEL_SECONDS)
        if not done:
            self.connection.fail("it does not read what it is sent")


def is_too_deep(value: object) -> bool:
    """True when a JSON value is nested deeper than MAX_NESTING."""
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
    """True when an error means that the connection is lost. Servers use the same code for errors of their own."""
    return error.code == types.CONNECTION_CLOSED and error.message == "Connection closed"


def is_stream_cut(error: MCPError) -> bool:
    """True when an error means that the response stream of this call broke off. Other calls may still complete."""
    return error.code == types.CONNECTION_CLOSED and error.message.startswith("SSE stream")


def is_state_expired(error: MCPError) -> bool:
    """True when an error means that the server does not accept the request state it had returned."""
    data: object = error.data
    return isinstance(data, dict) and cast("dict[str, Any]", data).get("reason") == "invalid_request_state"


def is_session_unknown(error: MCPError) -> bool:
    """True when an error means that the server does not know the session: it has not started this call."""
    return error.message in ("Session terminated", "Session not found")
