"""The client without `await`: for scripts and notebooks, also where a loop is running already."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from dragoman.client.client import Client as AsyncClient
from dragoman.client.follow import DEFAULT_LIMIT

if TYPE_CHECKING:
    from datetime import datetime
    from types import TracebackType

    from dragoman.client.client import Chat as AsyncChat
    from dragoman.client.client import EventStream as AsyncStream
    from dragoman.client.client import TaskLike
    from dragoman.client.connect import Verify
    from dragoman.client.event import Event
    from dragoman.client.message import Attachment
    from dragoman.client.trust import Trusted
    from dragoman.model.card import AgentCard
    from dragoman.model.message import Message
    from dragoman.model.operation import TaskPushNotificationConfig
    from dragoman.model.state import State
    from dragoman.model.task import Task
    from dragoman.net.exchange import Interceptor

T = TypeVar("T")


class Portal:
    """Runs coroutines on its own loop and waits for them. Open until closed; may be used from any thread."""

    def __init__(self, name: str = "dragoman") -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    @property
    def is_open(self) -> bool:
        """False once it has been closed."""
        return not self._loop.is_closed()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and give its result, or raise what it raises. An interrupt here cancels it there."""
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("a sync Client cannot wait for itself: use dragoman.Client here")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Stop the loop, once what it still does has been cancelled."""
        if self._loop.is_closed():
            return
        self.run(_finish())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _finish() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
    await asyncio.get_running_loop().shutdown_default_executor()


def run_apart(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run one coroutine on a loop of its own, wherever this is called. Raises what it raises."""
    portal = Portal()
    try:
        return portal.run(coroutine)
    finally:
        portal.close()


class Client:
    """Calls one agent and waits for it; see `dragoman.Client`. Close it, or use it in a `with`.

    Raises:
        ConfigError: the target cannot be called, or an option is wrong.
        BadCard: the card given cannot be read.
    """

    def __init__(
        self,
        target: object,
        *,
        auth: object = None,
        protocol: str | None = None,
        transport: str | None = None,
        connect_timeout: float | None = 10.0,
        idle_timeout: float | None = None,
        retries: int = 5,
        limit: int | None = DEFAULT_LIMIT,
        verify: Verify = True,
        headers: Mapping[str, str] | None = None,
        interceptors: Sequence[Interceptor] = (),
        trust: Trusted = None,
    ) -> None:
        self._client = AsyncClient(
            target,
            auth=auth,
            protocol=protocol,
            transport=transport,
            connect_timeout=connect_timeout,
            idle_timeout=idle_timeout,
            retries=retries,
            limit=limit,
            verify=verify,
            headers=headers,
            interceptors=interceptors,
            trust=trust,
        )
        self._portal = Portal("dragoman-client")

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the agent. Tasks go on without us."""
        if self._portal.is_open:
            try:
                self._portal.run(self._client.close())
            finally:
                self._portal.close()

    def send(
        self,
        text: str | None = None,
        *,
        tool: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        data: Any = None,
        files: Iterable[Attachment] = (),
        task: TaskLike | None = None,
        context: TaskLike | None = None,
        metadata: Mapping[str, Any] | None = None,
        wait: bool = True,
        push: str | TaskPushNotificationConfig | None = None,
        message_id: str | None = None,
    ) -> Task | Message:
        """Send a message; see `dragoman.Client.send`. Raises what it raises."""
        return self._portal.run(
            self._client.send(
                text,
                tool=tool,
                arguments=arguments,
                data=data,
                files=files,
                task=task,
                context=context,
                metadata=metadata,
                wait=wait,
                push=push,
                message_id=message_id,
            )
        )

    def stream(
        self,
        text: str | None = None,
        *,
        tool: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        data: Any = None,
        files: Iterable[Attachment] = (),
        task: TaskLike | None = None,
        context: TaskLike | None = None,
        metadata: Mapping[str, Any] | None = None,
        push: str | TaskPushNotificationConfig | None = None,
        message_id: str | None = None,
    ) -> EventStream:
        """Send a message and iterate over what happens; see `dragoman.Client.stream`."""
        stream = self._client.stream(
            text,
            tool=tool,
            arguments=arguments,
            data=data,
            files=files,
            task=task,
            context=context,
            metadata=metadata,
            push=push,
            message_id=message_id,
        )
        return EventStream(self._portal, stream)

    def call(self, tool: str, /, **arguments: Any) -> Any:
        """Call a tool and give its value; see `dragoman.Client.call`. Raises what it raises."""
        return self._portal.run(self._client.call(tool, **arguments))

    def chat(self, context: TaskLike | None = None) -> Chat:
        """A conversation: it remembers the context, and the task that asked something."""
        return Chat(self._portal, self._client.chat(context))

    def as_tool(
        self, name: str | None = None, description: str | None = None, tool: str | None = None
    ) -> Callable[..., Any]:
        """The agent as a typed function; see `dragoman.Client.as_tool`."""
        from dragoman.client.tool import without_await

        return without_await(self._client.as_tool(name, description, tool), self._portal)

    def wait(self, task: TaskLike) -> Task:
        """Wait until a task ends or asks, and give it. Raises TaskNotFound when there is none."""
        return self._portal.run(self._client.wait(task))

    def subscribe(self, task: TaskLike, after: int | None = None) -> EventStream:
        """Follow a task until it ends; see `dragoman.Client.subscribe`."""
        return EventStream(self._portal, self._client.subscribe(task, after))

    def get_task(self, task: TaskLike, *, history_length: int | None = None) -> Task:
        """Read a task. Raises TaskNotFound when there is none."""
        return self._portal.run(self._client.get_task(task, history_length=history_length))

    def list_tasks(
        self,
        *,
        context: TaskLike | None = None,
        state: State | str | None = None,
        since: datetime | str | None = None,
        artifacts: bool = False,
        page_size: int | None = None,
    ) -> Iterator[Task]:
        """All tasks of the caller; see `dragoman.Client.list_tasks`. Raises what it raises."""
        return _each(
            self._portal,
            self._client.list_tasks(
                context=context, state=state, since=since, artifacts=artifacts, page_size=page_size
            ),
        )

    def cancel_task(self, task: TaskLike, *, metadata: Mapping[str, Any] | None = None) -> Task:
        """Cancel a task. Raises TaskNotFound or TaskNotCancelable."""
        return self._portal.run(self._client.cancel_task(task, metadata=metadata))

    def create_push_config(
        self,
        task: TaskLike,
        url: str,
        *,
        id: str | None = None,
        token: str | None = None,
        auth: tuple[str, str] | None = None,
    ) -> TaskPushNotificationConfig:
        """Have a task's events posted to a webhook. Raises A2AError when the agent does not do that."""
        return self._portal.run(self._client.create_push_config(task, url, id=id, token=token, auth=auth))

    def get_push_config(self, task: TaskLike, id: str) -> TaskPushNotificationConfig:
        """Read a webhook of a task. Raises TaskNotFound when there is none."""
        return self._portal.run(self._client.get_push_config(task, id))

    def list_push_configs(self, task: TaskLike) -> tuple[TaskPushNotificationConfig, ...]:
        """The webhooks of a task. Raises TaskNotFound when there is no such task."""
        return self._portal.run(self._client.list_push_configs(task))

    def delete_push_config(self, task: TaskLike, id: str) -> None:
        """Remove a webhook of a task; one that is gone already is no error."""
        self._portal.run(self._client.delete_push_config(task, id))

    def card(self) -> AgentCard:
        """The agent's card. Raises BadCard or CannotConnect."""
        return self._portal.run(self._client.card())

    def extended_card(self) -> AgentCard:
        """The card for callers who say who they are. Raises A2AError when there is none."""
        return self._portal.run(self._client.extended_card())


class EventStream:
    """The events of one message or task, once. `task` is what they have made so far."""

    def __init__(self, portal: Portal, stream: AsyncStream) -> None:
        self._portal = portal
        self._stream = stream

    @property
    def result(self) -> Task | Message:
        """The answer so far. Raises BadResponse when nothing has arrived."""
        return self._stream.result

    @property
    def task(self) -> Task:
        """The task so far. Raises BadResponse when there is none."""
        return self._stream.task

    def __iter__(self) -> Iterator[Event]:
        return _each(self._portal, self._stream.__aiter__())


class Chat:
    """A conversation; see `dragoman.Client.chat`."""

    def __init__(self, portal: Portal, chat: AsyncChat) -> None:
        self._portal = portal
        self._chat = chat

    @property
    def last(self) -> Task | Message | None:
        """The last answer."""
        return self._chat.last

    @property
    def context_id(self) -> str | None:
        """The conversation's id, once there is one."""
        return self._chat.context_id

    @property
    def question(self) -> str | None:
        """What the agent waits to hear, or None."""
        return self._chat.question

    def send(self, text: str | None = None, **options: Any) -> Task | Message:
        """Say something; see `Client.send`. Raises what it raises."""
        return self._portal.run(self._chat.send(text, **options))

    def stream(self, text: str | None = None, **options: Any) -> Iterator[Event]:
        """Say something and tell what happens; see `Client.stream`. Raises what it raises."""
        return _each(self._portal, self._chat.stream(text, **options))


def _each(portal: Portal, items: AsyncGenerator[Any, None]) -> Iterator[Any]:
    async def following() -> list[Any]:
        try:
            return [await anext(items)]
        except StopAsyncIteration:
            return []

    try:
        while found := portal.run(following()):
            yield found[0]
    finally:
        if portal.is_open:
            portal.run(items.aclose())
