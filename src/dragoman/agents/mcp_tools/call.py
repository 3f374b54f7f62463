"""One tool call in progress, and the routing of server questions to the calls they belong to."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast

import mcp_types as types
from mcp import MCPError
from msgspec import Struct

from dragoman.telemetry import trace
from dragoman.telemetry.mcp_calls import describe_result, tool_span
from dragoman.telemetry.spans import TRACING

if TYPE_CHECKING:
    from mcp.client.session import ClientRequestContext
    from mcp_types import InputResponses

    from dragoman.agents.mcp_tools.connection import ServerConnection

logger = logging.getLogger("dragoman.mcp")
# The call that the running code works for. Over HTTP a question arrives on its call's response stream, with it set.
CURRENT_CALL: ContextVar[ToolCall | None] = ContextVar("dragoman_mcp_call", default=None)
# Seconds for which an abandoned call puts the questions of the same caller in doubt.
ROUTING_TIMEOUT = 30.0
# Abandoned calls remembered. Beyond that, no question can be routed until the session ends.
MAX_ABANDONED = 1000


class ElicitationState:
    """What the routers of one server share: the names of the tools that have asked, and a signal for whoever waits.

    The signal is given when a call ends or asks.
    """

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._changed = asyncio.Event()

    def notify(self) -> None:
        """Give the signal."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait(self) -> None:
        """Wait for the next signal."""
        await self._changed.wait()


class ElicitationRouter:
    """Routes the elicitation requests of one connection to the tool calls they belong to.

    Before the newest protocol revision, a request does not name its call. The call that asked is blocked until it is
    answered, so it is identified once every other call has ended or asks, too: until then the request waits. A question
    is never shown to a wrong caller. To make doubt rare, tools that have asked before take turns: at most one of them
    is active, that is, running and not waiting for its answer. And they are not called here at all (`admits`) beside
    two kinds of calls of other callers that cause doubt without being active: one that waits for its answer may ask
    something else meanwhile; and not every server stops an abandoned call. An abandoned call of the same caller causes
    doubt for ROUTING_TIMEOUT.

    What cannot be decided at all is answered with `cancel`: a request that an abandoned call may have sent, and one of
    several when all active calls ask at once. The call that this concerns is marked, and fails.
    """

    def __init__(self, server: str, asking: ElicitationState | None = None) -> None:
        self._server = server
        self._asking = asking or ElicitationState()
        # True for a call that waits for its answer.
        self._calls: dict[ToolCall, bool] = {}
        # Request ids of calls: only the stdio transport reports them.
        self._calls_by_id: dict[str, ToolCall] = {}
        self._ids_by_call: dict[ToolCall, str] = {}
        self._responded: set[ToolCall] = set()
        self._abandoned: dict[ToolCall, float] = {}
        self._has_overflowed = False
        self._undecided = 0
        self._turn_holder: ToolCall | None = None
        # For each request that got no answer, the calls that may have sent it.
        self._unanswered: list[set[ToolCall]] = []

    @property
    def is_idle(self) -> bool:
        """True when no call is open."""
        return not self._calls

    def close(self) -> None:
        """Forget all calls: the connection is closed."""
        for collection in (self._calls, self._calls_by_id, self._ids_by_call, self._responded, self._abandoned):
            collection.clear()
        self._unanswered.clear()
        self._turn_holder = None
        self._asking.notify()

    # -- calls ---------------------------------------------------------------------------------------------------------

    def admits(self, call: ToolCall) -> bool:
        """True when a question of this call could be told from those of other callers, or its tool has never asked."""
        if call.tool not in self._asking.names:
            return True
        waiting = {each.caller for each, waits in self._calls.items() if waits}
        return waiting <= {call.caller} and not self._may_be_abandoned({call.caller})

    def add_call(self, call: ToolCall) -> bool:
        """Register a call that is about to be sent; False when its tool asks and has to wait for its turn."""
        if call.tool in self._asking.names:
            if self._turn_holder is not None:
                return False
            self._turn_holder = call
        self._calls[call] = False
        return True

    def remove_call(self, call: ToolCall, *, abandoned: bool = False) -> None:
        """Unregister a call that has ended or was abandoned."""
        self._calls.pop(call, None)
        self._settle_unanswered(call, ended=not abandoned)
        if not abandoned:
            self._discard(call)
        elif call not in self._responded:
            if len(self._abandoned) < MAX_ABANDONED:
                self._abandoned[call] = asyncio.get_running_loop().time()
            else:
                self._has_overflowed = True
        self._responded.discard(call)
        self._release_turn(call)
        self._asking.notify()

    def _settle_unanswered(self, call: ToolCall, *, ended: bool) -> None:
        """Mark a call whose question got no answer: the first to end of those that may have asked it."""
        for calls in self._unanswered:
            if call in calls:
                call.is_unanswered = ended
                calls.remove(call)
                if ended or not calls:
                    self._unanswered.remove(calls)
                return

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
            self._asking.names.add(call.tool)
        elif call not in self._calls:  # abandoned: its question belongs to no other call
            return types.ElicitResult(action="cancel")
        self._calls[call] = True
        self._release_turn(call)
        self._asking.notify()
        try:
            answer = await call.ask(params)
            if call.tool in self._asking.names and not call.is_abandoned:
                # It continues and may ask again: it needs a turn like any other asking tool.
                await self._take_turn(call)
            return answer
        finally:
            if call in self._calls:
                self._calls[call] = False
                self._asking.notify()

    async def _take_turn(self, call: ToolCall) -> None:
        while call in self._calls and self._turn_holder not in (None, call):
            await self._asking.wait()
        if call in self._calls:
            self._turn_holder = call

    async def _find_call(self) -> ToolCall | None:
        """Return the call that a request belongs to, as soon as it is certain; None when that will never be."""
        waiting = {call for call, waits in self._calls.items() if waits}
        # With no active call, a waiting one asks several questions at once.
        candidates = self._active_calls() or set(waiting)
        is_active = not candidates <= waiting
        self._undecided += 1
        self._asking.notify()
        try:
            while candidates:
                callers = {call.caller for call in candidates}
                if self._may_be_abandoned(callers):
                    break
                suspects = {call for call in waiting & set(self._calls) if call.caller not in callers}
                if len(candidates) == 1:
                    (call,) = candidates
                    if not suspects:
                        return call
                    self._asking.names.add(call.tool)
                elif is_active and self._undecided >= len(self._active_calls()):
                    # All of them ask, so none would ever end. One gets no answer, which identifies the others.
                    break
                await self._asking.wait()
                candidates &= self._active_calls() if is_active else set(self._calls)
            else:
                # No candidate is left, so a call that was waiting has asked something else.
                candidates = waiting & set(self._calls)
                if len(candidates) == 1 and not self._may_be_abandoned({call.caller for call in candidates}):
                    return next(iter(candidates))
            if candidates:
                self._asking.names |= {call.tool for call in candidates}
                self._unanswered.append(set(candidates))
            return None
        finally:
            self._undecided -= 1

    def _may_be_abandoned(self, callers: set[Caller]) -> bool:
        """True when a request beside calls of these callers may belong to an abandoned call."""
        cutoff = asyncio.get_running_loop().time() - ROUTING_TIMEOUT
        return self._has_overflowed or any(
            when > cutoff or call.caller not in callers for call, when in self._abandoned.items()
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


class ToolProgress(Struct, frozen=True):
    """A progress notification of a tool."""

    done: float
    total: float | None
    text: str


class ElicitationPause(Struct, frozen=True):
    """The tool waits for an answer; its call stays open until then."""

    params: types.ElicitRequestParams


Outcome = types.CallToolResult | types.InputRequiredResult


class ToolCall:
    """A tool call and the events it produces: progress, questions, its result. It has no connection until `start`.

    Where a server asks within a call, the call has an asyncio task of its own: while its question waits, it outlives
    the run that started it. Servers that return their questions are called directly.

    `is_unanswered` is set when the call has ended after a question of it was answered with `cancel`, because it could
    not be determined which call had asked.
    """

    connection: ServerConnection

    def __init__(
        self,
        tool: str,
        arguments: dict[str, Any],
        *,
        caller: Caller = ("", "", ""),
        meta: dict[str, Any] | None = None,
        state: str | None = None,
        responses: InputResponses | None = None,
        asks: bool = True,
        on_progress: Callable[[ToolProgress], Awaitable[None]] | None = None,
    ) -> None:
        self.tool = tool
        self.caller = caller
        self.is_abandoned = False
        self.is_unanswered = False
        self._is_sent = False
        self._arguments = arguments
        self._meta = meta
        self._state = state
        self._responses = responses
        self._asks = asks
        self._report_progress = on_progress
        self._progress: ToolProgress | None = None
        self._pending: deque[types.ElicitRequestParams] = deque()
        self._answer: asyncio.Future[types.ElicitResult] | None = None
        self._ask_lock = asyncio.Lock()
        self._wakeup = asyncio.Event()
        self._task: asyncio.Task[Outcome] | None = None

    def start(self, connection: ServerConnection) -> None:
        """Call the tool on this connection. Its router has registered the call, if the server asks within calls."""
        self.connection = connection
        if not connection.is_modern:
            self._task = asyncio.create_task(self._run())
            self._task.add_done_callback(self._on_done)

    async def _call(self) -> Outcome:
        meta = dict(self._meta or {})
        client = self.connection.client
        span_or_none = tool_span(self.tool, self._arguments, client.protocol_version) if TRACING.on else nullcontext()
        with span_or_none as span:
            if span is not None:
                trace.inject(meta)
            else:
                meta |= trace.current.get() or {}
            result = await client.session.call_tool(
                self.tool,
                self._arguments,
                progress_callback=self._on_progress,
                input_responses=self._responses,
                request_state=self._state,
                meta=cast("types.RequestParamsMeta | None", meta or None),
                allow_input_required=True,
            )
            if span is not None and isinstance(result, types.CallToolResult):
                describe_result(span, result)
            return result

    async def _run(self) -> Outcome:
        CURRENT_CALL.set(self)
        self._is_sent = True
        router = self.connection.elicitations
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
        if not self._is_sent:  # canceled before its first step
            self.connection.elicitations.remove_call(self)
        if not work.cancelled():
            work.exception()  # retrieved, so that asyncio does not log it when nobody awaits the task
        self._wakeup.set()

    async def _on_progress(self, progress: float, total: float | None, message: str | None) -> None:
        update = ToolProgress(progress, total, message or "")
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

    async def next(self) -> ToolProgress | ElicitationPause | Outcome:
        """Return the next event of the call.

        Raises:
            MCPError: the server refused, or the connection is lost.
            ValueError: its response is not valid MCP.
        """
        if self._task is None:
            return await self._call()
        while True:
            if self._progress is not None:  # first: the result may have arrived together with it
                progress, self._progress = self._progress, None
                return progress
            if self._task.done():
                return await self._task
            if self._pending:
                return ElicitationPause(self._pending.popleft())
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


# How FastMCP and the official SDK report that a tool asks within a call on a revision that has no such questions.
_CANNOT_ASK = re.compile(
    r"elicitation via server-initiated requests is unavailable|Cannot send 'elicitation/create': .*no back-channel"
)


def needs_older_revision(error: str) -> bool:
    """True when an error text means that a tool could not ask, because the protocol revision is too new for it."""
    return _CANNOT_ASK.search(error) is not None
