"""One call of a tool that is under way."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, cast

import mcp_types as types
from mcp import MCPError
from msgspec import Struct

from dragoman.agents.mcp_tools.questions import CALL

if TYPE_CHECKING:
    from mcp_types import InputResponses

    from dragoman.agents.mcp_tools.connection import Connection


# How deeply what is sent may be nested. The SDK cannot write more than about 250 levels, and ends the connection when
# it tries, with every call that others have there.
NESTING = 100
# How long a call whose question is canceled may take to end by itself, and then how long telling the server to stop.
LAST_SECONDS, CANCEL_SECONDS = 1.0, 2.0
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
        # What `Questions` knows of it: its id on the wire, where that is seen, and what has become of it.
        self.id = ""
        self.is_answered = False
        self.has_turn = False
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
            await asyncio.wait((work,), timeout=LAST_SECONDS)
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
