"""The blocking client, for scripts and notebooks; it works while another event loop is running."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from dragoman.client.client import Client as AsyncClient
from dragoman.client.options import ClientOptions, SendTurnOptions, TurnOptions, takes
from dragoman.model.error import DragomanError

if TYPE_CHECKING:
    from types import TracebackType

    from dragoman.client.client import Chat as AsyncChat
    from dragoman.client.event import Event
    from dragoman.client.options import TaskLike
    from dragoman.client.streams.stream import EventStream as AsyncStream
    from dragoman.client.streams.text import TextChunk
    from dragoman.model.message import Message
    from dragoman.model.task import Task

P = ParamSpec("P")
T = TypeVar("T")


class Portal:
    """An event loop in a thread of its own, on which any thread can run coroutines and wait for them."""

    def __init__(self, name: str = "dragoman") -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    @property
    def is_open(self) -> bool:
        """True until `close`."""
        return not self._loop.is_closed()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result, or raise its exception. An interrupt of the caller cancels it."""
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("a sync Client cannot wait for itself: use dragoman.Client here")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except DragomanError as error:
            # The frames below are those of another thread, and say nothing about the caller's code.
            raise error.with_traceback(None) from None
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Cancel what is still running, and stop the loop."""
        if self._loop.is_closed():
            return
        self.run(_cancel_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
    await asyncio.get_running_loop().shutdown_default_executor()


def run_blocking(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run one coroutine on a new loop in a thread of its own and return its result. Raises its exception."""
    portal = Portal()
    try:
        return portal.run(coroutine)
    finally:
        portal.close()


def _blocking(
    method: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Client, P], T]:
    """Wrap a method of the async client: run it and return its result."""

    @wraps(method)
    def call(self: Client, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._portal.run(method(self._client, *args, **kwargs))  # pyright: ignore[reportPrivateUsage]

    return call


def _streaming(
    method: Callable[Concatenate[AsyncClient, P], AsyncStream],
) -> Callable[Concatenate[Client, P], EventStream]:
    """Wrap a method of the async client that returns an event stream."""

    @wraps(method)
    def call(self: Client, *args: P.args, **kwargs: P.kwargs) -> EventStream:
        return EventStream(self._portal, method(self._client, *args, **kwargs))  # pyright: ignore[reportPrivateUsage]

    return call


def _listing(
    method: Callable[Concatenate[AsyncClient, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate[Client, P], Iterator[T]]:
    """Wrap a method of the async client that returns an async generator."""

    @wraps(method)
    def call(self: Client, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return _iterate(self._portal, method(self._client, *args, **kwargs))  # pyright: ignore[reportPrivateUsage]

    return call


class Client:
    """A blocking client for one agent, with the options and methods of `dragoman.Client`.

    Close it, or use it in a `with` statement.

    Raises:
        ConfigError: the target cannot be called, or an option is wrong.
        BadCard: the given card cannot be parsed.
    """

    @takes(ClientOptions.__init__, ClientOptions)
    def __init__(self, *args: Any, **keywords: Any) -> None:
        self._client = AsyncClient(*args, **keywords)
        self._portal = Portal("dragoman-client")

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. Remote tasks continue."""
        if self._portal.is_open:
            try:
                self._portal.run(self._client.close())
            finally:
                self._portal.close()

    @property
    def protocol(self) -> str | None:
        """The version of A2A that is spoken with the agent, such as `"1.0"`; None before its card has been read."""
        return self._client.protocol

    @property
    def transport(self) -> str | None:
        """`"jsonrpc"` or `"rest"`; None before the agent's card has been read, and for an agent in this process."""
        return self._client.transport

    def chat(self, context: TaskLike | None = None, *, auth: object = None) -> Chat:
        """Return a conversation that keeps track of the context and of the task that waits for input."""
        return Chat(self._portal, self._client.chat(context, auth=auth))

    def as_tool(
        self, name: str | None = None, description: str | None = None, tool: str | None = None
    ) -> Callable[..., Any]:
        """Return the agent as a typed function; the options are those of `dragoman.Client.as_tool`."""
        from dragoman.client.tool import make_blocking

        return make_blocking(self._client.as_tool(name, description, tool), self._portal)

    send = _blocking(AsyncClient.send)
    stream = _streaming(AsyncClient.stream)
    call = _blocking(AsyncClient.call)
    wait = _blocking(AsyncClient.wait)
    subscribe = _streaming(AsyncClient.subscribe)
    get_task = _blocking(AsyncClient.get_task)
    list_tasks = _listing(AsyncClient.list_tasks)
    cancel_task = _blocking(AsyncClient.cancel_task)
    create_push_config = _blocking(AsyncClient.create_push_config)
    get_push_config = _blocking(AsyncClient.get_push_config)
    list_push_configs = _blocking(AsyncClient.list_push_configs)
    delete_push_config = _blocking(AsyncClient.delete_push_config)
    card = _blocking(AsyncClient.card)
    extended_card = _blocking(AsyncClient.extended_card)


class EventStream:
    """The events of one message or task, to be iterated over once. `task` is the task assembled from them so far."""

    def __init__(self, portal: Portal, stream: AsyncStream) -> None:
        self._portal = portal
        self._stream = stream

    @property
    def result(self) -> Task | Message:
        """The task or message so far. Raises BadResponse before the first event."""
        return self._stream.result

    @property
    def task(self) -> Task:
        """The task so far. Raises BadResponse when there is none, as with a bare message."""
        return self._stream.task

    def __iter__(self) -> Iterator[Event]:
        """Return the events. Raises RuntimeError the second time."""
        return _iterate(self._portal, aiter(self._stream))

    def text(self) -> Iterator[TextChunk]:
        """Return the text of the answer in pieces to print, as `dragoman.Client` does. Raises RuntimeError if read."""
        return _iterate(self._portal, self._stream.text())


class Chat:
    """The blocking form of a conversation from `Client.chat`."""

    def __init__(self, portal: Portal, chat: AsyncChat) -> None:
        self._portal = portal
        self._chat = chat

    @property
    def last(self) -> Task | Message | None:
        """The last task or message; None before the first response."""
        return self._chat.last

    @property
    def context_id(self) -> str | None:
        """The context id of the conversation; None before the first response."""
        return self._chat.context_id

    @property
    def question(self) -> str | None:
        """The open question of the agent, or None."""
        return self._chat.question

    @takes(SendTurnOptions.__init__, SendTurnOptions)
    def send(self, *args: Any, **keywords: Any) -> Task | Message:
        """Send the next message with the options of `Client.send`. Raises the same errors."""
        return self._portal.run(self._chat.send(*args, **keywords))

    @takes(TurnOptions.__init__, TurnOptions)
    def stream(self, *args: Any, **keywords: Any) -> EventStream:
        """Send the next message with the options of `Client.stream` and return its stream. Raises the same errors."""
        return EventStream(self._portal, self._chat.stream(*args, **keywords))


def _iterate(portal: Portal, items: AsyncGenerator[T, None]) -> Iterator[T]:
    async def advance() -> list[T]:
        try:
            return [await anext(items)]
        except StopAsyncIteration:
            return []

    try:
        while batch := portal.run(advance()):
            yield batch[0]
    finally:
        if portal.is_open:
            portal.run(items.aclose())
