"""The agent port: what the engine needs from an agent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from msgspec import Struct

from dragoman.model.card import AgentExtension

if TYPE_CHECKING:
    from dragoman.engine.call import ClosingChoice
    from dragoman.engine.execute.context import Context


class Plan(NamedTuple):
    """How an agent handles one message, decided before anything is written.

    `run` is an async generator function that yields outputs. With `replies` it may answer with a bare Message, so no
    task is created before its first output. `restarts` says whether the run may be repeated after a crash; a callable
    is evaluated only when the answer is needed. `prepare` is awaited before the run starts; until it returns, the task
    stays submitted.
    """

    run: Callable[[Context], AsyncIterator[Any]]
    replies: bool = False
    restarts: bool | Callable[[], bool] = False
    prepare: Callable[[Context], Awaitable[None]] | None = None


class ForeignTasks(NamedTuple):
    """Says of a task that waits because a task of another agent does whether that one has gone on.

    `has_moved` gets the `ref` of the `Ask`. `address` is where the other agent is: few are read there at a time.
    """

    address: str
    has_moved: Callable[[Any], Awaitable[bool]]


class OutputMetadata(Struct, frozen=True):
    """Metadata that an agent adds: `task` to its tasks and their statuses, `progress` to the text of its progress.

    `failure` is that of the message with the reason of a failed task.
    """

    task: dict[str, Any] = {}
    progress: dict[str, Any] = {}
    failure: dict[str, Any] = {}


class Runnable(Protocol):
    """An agent as the engine sees it: `plan`, which decides how a message is handled, and a few constants."""

    @property
    def name(self) -> str:
        """The agent's name, part of the scope of its tasks."""
        ...

    @property
    def extensions(self) -> Sequence[AgentExtension]:
        """The protocol extensions the agent supports or requires."""
        ...

    @property
    def closing(self) -> ClosingChoice:
        """How a streamed text ends: with the whole text once more, with the last chunk, or as its caller reads it."""
        ...

    @property
    def closing_message(self) -> bool:
        """True when the status that completes a task repeats the text of the answer."""
        ...

    @property
    def parallel(self) -> bool:
        """True when several runs of one context may execute at the same time."""
        ...

    @property
    def pinned(self) -> bool:
        """True when a conversation has something that only the process of its first run has, such as a program."""
        ...

    @property
    def streams(self) -> bool:
        """False when the agent's card declares that it does not stream."""
        ...

    @property
    def output_metadata(self) -> OutputMetadata | None:
        """Metadata the agent adds to its tasks, statuses and progress messages, if any."""
        ...

    @property
    def foreign(self) -> ForeignTasks | None:
        """What its waiting tasks wait for, where that goes on by itself: after a login elsewhere, for instance."""
        ...

    def plan(self, ctx: Context) -> Plan:
        """Choose how to handle a message. Never raises: errors in the message are reported by the run."""
        ...

    async def canceled(self, ref: Any) -> None:
        """Called when a task is ended while it waits for an answer; `ref` is the `ref` of its `Ask`."""
        ...
