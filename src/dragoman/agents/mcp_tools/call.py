"""One tool call in progress: its progress, its questions, its result, and what its errors mean."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, cast

import mcp_types as types
from mcp import MCPError
from msgspec import Struct

from dragoman.agents.mcp_tools.in_flight import CURRENT_CALL
from dragoman.telemetry import trace
from dragoman.telemetry.mcp_calls import describe_result, tool_span
from dragoman.telemetry.spans import TRACING

if TYPE_CHECKING:
    from mcp_types import InputResponses

    from dragoman.agents.mcp_tools.connection import ServerConnection

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

    `is_unanswered` is set when the call has ended after a question, of it as it seems, was answered with `cancel`,
    because it could not be determined which call had asked.
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
        self.is_unanswered = False
        self._is_abandoned = False
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
        """Call the tool on this connection."""
        self.connection = connection
        if not connection.is_modern:
            connection.in_flight.add(self)
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
        try:
            with self.connection.in_flight.hold(self):
                return await self._call()
        finally:
            # Nobody will answer now, and the server may still be waiting.
            self.answer(types.ElicitResult(action="cancel"))

    def _on_done(self, work: asyncio.Task[Outcome]) -> None:
        if not self._is_sent:  # canceled before its first step
            self.connection.in_flight.end(self)
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
            if self._task is None or self._task.done() or self._is_abandoned:
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

    async def read_resource(self, uri: str) -> types.ReadResourceResult:
        """Read a resource that the result of the call names. Raises MCPError."""
        with self.connection.in_flight.hold(self):  # a question that comes of it is nobody else's
            return await self.connection.client.read_resource(uri)

    async def cancel(self) -> None:
        """Cancel the call and notify the server. A call without a task of its own ends with the run that made it.

        A server that does not even read the notification is unusable: then the connection is closed.
        """
        work = self._task
        if work is None:
            return
        self._is_abandoned = True
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
