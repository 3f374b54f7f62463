"""A conversation with an agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dragoman.model.task import Task

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from dragoman.client.client import Client, EventStream, TaskLike
    from dragoman.client.event import Event
    from dragoman.model.message import Message


class Chat:
    """Remembers where the conversation is: what is said next answers an open question, or goes on in its context."""

    def __init__(self, client: Client, context: TaskLike | None = None) -> None:
        self._client = client
        self._context = context
        self.last: Task | Message | None = None

    @property
    def context_id(self) -> str | None:
        """The conversation's id, once there is one."""
        if self.last is not None and self.last.context_id:
            return self.last.context_id
        return self._context if self._context is None or isinstance(self._context, str) else self._context.context_id

    @property
    def question(self) -> str | None:
        """What the agent waits to hear, or None."""
        return self.last.question if self.last is not None else None

    async def send(self, text: str | None = None, **options: Any) -> Task | Message:
        """Say something; see `Client.send`. Raises what it raises."""
        self.last = await self._client.send(text, **self._place(), **options)
        return self.last

    async def stream(self, text: str | None = None, **options: Any) -> AsyncGenerator[Event, None]:
        """Say something and tell what happens; see `Client.stream`. Raises what it raises."""
        stream: EventStream = self._client.stream(text, **self._place(), **options)
        async for event in stream:
            self.last = stream.result
            yield event
        self.last = stream.result
        if isinstance(self.last, Task) and not self.last.context_id:
            # Events of 0.1 do not name the conversation; the task does.
            self.last = await self._client.get_task(self.last)

    def _place(self) -> dict[str, Any]:
        if isinstance(self.last, Task) and self.last.state.waiting:
            return {"task": self.last}
        return {"context": self.context_id}
