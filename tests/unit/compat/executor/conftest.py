"""Executors made of a function, and requests and exchanges to try them with."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from dragoman.compat.executor import (
    AgentExecutor,
    Artifact,
    Message,
    RequestContext,
    RequestHandler,
    Role,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    TextPart,
)
from dragoman.engine.settings import EngineSettings

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

    Work = Callable[["Reporter"], Awaitable[Any]]


class Reporter:
    """An executor's context, with short words for what it may enqueue."""

    def __init__(self, context: RequestContext) -> None:
        self.context = context

    async def status(self, state: TaskState, text: str | None = None) -> None:
        message = None if text is None else Message(Role.AGENT, (TextPart(text),))
        status = TaskStatus(state, message)
        event = TaskStatusUpdateEvent(self.context.task_id, self.context.context_id, status, state.terminal)
        await self.context.queue.enqueue(event)

    async def artifact(self, id: str, text: str | None, *, append: bool = False, last_chunk: bool = False) -> None:
        parts = () if text is None else (TextPart(text),)
        artifact = Artifact(id, parts)
        event = TaskArtifactUpdateEvent(self.context.task_id, self.context.context_id, artifact, append, last_chunk)
        await self.context.queue.enqueue(event)


class Doing(AgentExecutor):
    """An executor that does what a function says, and remembers what it was asked."""

    def __init__(self, work: Work, cancel: Work | None = None) -> None:
        self._work = work
        self._cancel = cancel
        self.executed: list[tuple[RequestContext, str]] = []
        self.canceled: list[tuple[RequestContext, str]] = []
        self.stopped = asyncio.Event()

    async def execute(self, context: RequestContext, task_id: str) -> Any:
        self.executed.append((context, task_id))
        return await self._work(Reporter(context))

    async def cancel(self, context: RequestContext, task_id: str) -> Any:
        self.canceled.append((context, task_id))
        try:
            return await self._cancel(Reporter(context)) if self._cancel else None
        finally:
            self.stopped.set()


@pytest.fixture
def doing() -> type[Doing]:
    """The class of executors made of a function."""
    return Doing


async def _echo(reporter: Reporter) -> None:
    await reporter.status(TaskState.COMPLETED, reporter.context.message.text)


@pytest.fixture
def echo() -> Doing:
    """An executor that says the message again."""
    return Doing(_echo)


def user_message(text: str) -> dict[str, Any]:
    return {"kind": "message", "role": "user", "messageId": "m", "parts": [{"kind": "text", "text": text}]}


class Caller:
    """Asks a handler, in few words."""

    def __init__(self, handler: RequestHandler) -> None:
        self.handler = handler

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        return await self.handler.handle({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})

    async def send(self, text: str, *, blocking: bool = True, **members: Any) -> dict[str, Any]:
        message = user_message(text) | members
        answer = await self.ask("message/send", message=message, configuration={"blocking": blocking})
        assert "error" not in answer, answer
        return answer["result"]

    def stream(self, text: str) -> AsyncGenerator[dict[str, Any]]:
        return self.follow("message/stream", message=user_message(text))

    def follow(self, method: str, **params: Any) -> AsyncGenerator[dict[str, Any]]:
        return self.handler.handle_stream({"jsonrpc": "2.0", "id": 7, "method": method, "params": params})


@pytest.fixture
async def calling() -> AsyncIterator[Callable[..., Caller]]:
    """Makes a caller of a new handler; the handlers are closed when the test ends, whatever still runs."""
    handlers: list[RequestHandler] = []

    def call(executor: Any, **options: Any) -> Caller:
        handlers.append(RequestHandler(executor, settings=EngineSettings(drain=0), **options))
        return Caller(handlers[-1])

    yield call
    for handler in handlers:
        await handler.close()


class Response(NamedTuple):
    """A whole HTTP response."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Exchange:
    """One HTTP exchange with an ASGI app, piece by piece; the caller may leave in the middle."""

    def __init__(self, app: Any, method: str, path: str, body: bytes, caller: str = "") -> None:
        self._sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._gone = asyncio.Event()
        self._body: bytes | None = body
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [
                (b"content-type", b"application/json"),
                (b"host", b"test"),
                *([(b"authorization", caller.encode())] if caller else []),
            ],
        }
        self._answering = asyncio.ensure_future(app(scope, self._receive, self._sent.put))

    async def _receive(self) -> dict[str, Any]:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def start(self) -> tuple[int, dict[str, str]]:
        """The status and the headers."""
        message = await self._sent.get()
        return message["status"], {name.decode(): value.decode() for name, value in message["headers"]}

    async def chunk(self) -> bytes | None:
        """The next piece of the body, or None at its end."""
        message = await self._sent.get()
        return message.get("body", b"") if message.get("more_body") or message.get("body") else None

    async def leave(self) -> None:
        """Disconnect, and wait until the app has noticed."""
        self._gone.set()
        await self._answering

    async def whole(self) -> Response:
        """The whole response."""
        await self._answering
        status, headers = await self.start()
        pieces = [self._sent.get_nowait().get("body", b"") for _ in range(self._sent.qsize())]
        return Response(status, headers, b"".join(pieces))


@pytest.fixture
def exchange() -> type[Exchange]:
    """The class of HTTP exchanges within the test's own loop."""
    return Exchange
