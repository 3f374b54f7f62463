"""The async client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from dragoman.client.connection import Connection, InProcess
from dragoman.client.event import Assembly, Event
from dragoman.model.error import BadResponse, ConfigError
from dragoman.model.file import File
from dragoman.model.ids import new_id
from dragoman.model.message import Message
from dragoman.model.part import Part
from dragoman.model.request import GetTaskRequest, SendMessageConfiguration, SendMessageRequest
from dragoman.model.state import Role
from dragoman.model.task import Task

if TYPE_CHECKING:
    from types import TracebackType


class Client:
    """Calls one agent. `target` is an Agent or a Server; the call stays in this process, without a port or a file.

    Raises:
        ConfigError: the target cannot be called.
    """

    def __init__(self, target: object) -> None:
        if not isinstance(target, InProcess):
            raise ConfigError(
                f"a Client calls an Agent or a Server in this process, not {type(target).__name__!r}: "
                "addresses come with a later version"
            )
        self._connection: Connection = target.in_process()
        self._opened = False
        self._opening = asyncio.Lock()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of the agent."""
        if self._opened:
            self._opened = False
            await self._connection.close()

    async def _open(self) -> Connection:
        async with self._opening:
            if not self._opened:
                await self._connection.open()
                self._opened = True
        return self._connection

    async def send(
        self,
        text: str | None = None,
        *,
        tool: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        data: Any = None,
        files: Iterable[File | Part] = (),
        task: Task | Message | str | None = None,
        context: Task | Message | str | None = None,
        metadata: Mapping[str, Any] | None = None,
        wait: bool = True,
        message_id: str | None = None,
    ) -> Task | Message:
        """Send a message; by default wait until the task ends or asks. A failed task is returned, not raised.

        Raises:
            A2AError: the agent did not accept the message.
        """
        message = _message(text, tool, arguments, data, files, task, context, metadata, message_id)
        configuration = SendMessageConfiguration(return_immediately=not wait)
        return await (await self._open()).send(SendMessageRequest(message, configuration))

    def stream(
        self,
        text: str | None = None,
        *,
        tool: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        data: Any = None,
        files: Iterable[File | Part] = (),
        task: Task | Message | str | None = None,
        context: Task | Message | str | None = None,
        metadata: Mapping[str, Any] | None = None,
        message_id: str | None = None,
    ) -> EventStream:
        """Send a message and iterate over what happens; afterwards `stream.task` is the result."""
        message = _message(text, tool, arguments, data, files, task, context, metadata, message_id)
        return EventStream(self._follow(SendMessageRequest(message)))

    async def _follow(self, request: SendMessageRequest) -> AsyncIterator[Any]:
        connection = await self._open()
        records = connection.stream(request)
        try:
            async for record in records:
                yield record
        finally:  # a reader who leaves early is let go of now, not when the garbage is collected
            close = getattr(records, "aclose", None)
            if close is not None:
                await close()

    async def call(self, tool: str, /, **arguments: Any) -> Any:
        """Call a tool and give its value.

        Raises:
            TaskEnded: it failed, was rejected or canceled.
            InputRequired: it asks for something.
            A2AError: the agent did not accept the message.
        """
        result = await self.send(tool=tool, arguments=arguments)
        result.raise_for_state()
        return result.value

    async def get_task(self, task: Task | str, *, history_length: int | None = None) -> Task:
        """Read a task. Raises TaskNotFound when there is none."""
        return await (await self._open()).get_task(GetTaskRequest(_task_id(task), history_length))


class EventStream:
    """The events of one message, once. `task` is what they have made so far."""

    def __init__(self, records: AsyncIterator[Any]) -> None:
        self._records = records
        self._assembly = Assembly()

    @property
    def result(self) -> Task | Message:
        """The answer so far. Raises BadResponse when nothing has arrived."""
        if self._assembly.result is None:
            raise BadResponse("the stream has not said anything yet")
        return self._assembly.result

    @property
    def task(self) -> Task:
        """The task so far. Raises BadResponse when there is none."""
        if not isinstance(self.result, Task):
            raise BadResponse("the agent answered with a message and no task")
        return self.result

    async def __aiter__(self) -> AsyncIterator[Event]:
        async for record in self._records:
            yield self._assembly.take(record)


def _task_id(task: Task | Message | str) -> str:
    if isinstance(task, str):
        return task
    task_id = task.id if isinstance(task, Task) else task.task_id
    if task_id is None:
        raise ConfigError("this answer is a bare message without a task: go on with context= instead of task=")
    return task_id


def _message(
    text: str | None,
    tool: str | None,
    arguments: Mapping[str, Any] | None,
    data: Any,
    files: Iterable[File | Part],
    task: Task | Message | str | None,
    context: Task | Message | str | None,
    metadata: Mapping[str, Any] | None,
    message_id: str | None,
) -> Message:
    parts: list[Part] = []
    if text is not None:
        parts.append(Part(text=text))
    if tool is not None:
        parts.append(Part(data={"tool": tool, "arguments": dict(arguments or {})}))
    if data is not None:
        parts.append(Part(data=data))
    parts.extend(file.part() if isinstance(file, File) else file for file in files)
    if not parts:
        raise ConfigError("a message needs something to say: text, tool, data or files")
    context_id = context if context is None or isinstance(context, str) else context.context_id
    return Message(
        message_id or new_id(),
        Role.USER,
        tuple(parts),
        context_id,
        None if task is None else _task_id(task),
        dict(metadata) if metadata else None,
    )
