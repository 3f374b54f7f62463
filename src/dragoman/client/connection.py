"""What a client needs from whatever carries its requests."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from dragoman.client.received import Received
    from dragoman.dialects.base import Result
    from dragoman.engine.clock import Clock
    from dragoman.model.card import AgentCard
    from dragoman.model.event import ArtifactUpdate, StatusUpdate
    from dragoman.model.message import Message
    from dragoman.model.operation import Operation
    from dragoman.model.request import Request, SendMessageRequest, SubscribeToTaskRequest
    from dragoman.model.task import Task


class Arrived(Protocol):
    """An event as it comes: `generation` is its number in the task, 0 when the server does not number."""

    @property
    def generation(self) -> int:
        """The number, or 0."""
        ...

    @property
    def event(self) -> Task | Message | StatusUpdate | ArtifactUpdate:
        """The event itself."""
        ...


class Connection(Protocol):
    """One agent, reachable."""

    @property
    def clock(self) -> Clock:
        """Whose time passes while it is waited for."""
        ...

    @property
    def known_card(self) -> AgentCard | None:
        """The agent's card, if it is known already."""
        ...

    @property
    def reached(self) -> bool:
        """True once the agent, or whoever is in its place, has answered."""
        ...

    @property
    def subscribes_again(self) -> bool:
        """False where a further subscription to a task may do harm."""
        ...

    async def open(self) -> None:
        """Make ready."""
        ...

    async def close(self) -> None:
        """Let go."""
        ...

    async def card(self) -> AgentCard:
        """The agent's card. Raises BadCard or CannotConnect."""
        ...

    async def perform(self, operation: Operation, request: Request) -> Result:
        """Carry out an operation whose answer is no stream, trying again where that is safe.

        Raises:
            A2AError: the agent says no.
            CannotConnect: nobody answers.
        """
        ...

    def open_stream(
        self,
        operation: Operation,
        request: SendMessageRequest | SubscribeToTaskRequest,
        after: int | None,
        received: Received | None = None,
    ) -> AsyncGenerator[Sequence[Arrived], None]:
        """Follow events until the stream ends or breaks; nothing is tried again here.

        What comes over a wire is counted by `received`.

        Raises:
            A2AError: the agent says no.
            CannotConnect: nobody answers, or no more.
            ResponseTooLarge: the task brings more than its limit.
        """
        ...


@runtime_checkable
class InProcess(Protocol):
    """Anything that can be called without a network: an Agent, a Server."""

    def in_process(self) -> Connection:
        """A connection to it in this process."""
        ...
