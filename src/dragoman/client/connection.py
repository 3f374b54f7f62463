"""What a client needs from whatever carries its requests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from dragoman.model.message import Message
    from dragoman.model.record import Record
    from dragoman.model.request import GetTaskRequest, SendMessageRequest
    from dragoman.model.task import Task


class Connection(Protocol):
    """One agent, reachable."""

    async def open(self) -> None:
        """Make ready."""
        ...

    async def close(self) -> None:
        """Let go."""
        ...

    async def send(self, request: SendMessageRequest) -> Task | Message:
        """Send a message and wait as the request says. Raises A2AError."""
        ...

    def stream(self, request: SendMessageRequest) -> AsyncIterator[Record]:
        """Send a message and follow what happens. Raises A2AError."""
        ...

    async def get_task(self, request: GetTaskRequest) -> Task:
        """Read a task. Raises A2AError."""
        ...


@runtime_checkable
class InProcess(Protocol):
    """Anything that can be called without a network: an Agent, a Server."""

    def in_process(self) -> Connection:
        """A connection to it in this process."""
        ...
