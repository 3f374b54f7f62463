"""The port to an agent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from dragoman.model.card import AgentExtension

if TYPE_CHECKING:
    from dragoman.engine.execute.context import Context
    from dragoman.engine.execute.outputs import OutputMetadata


class Plan(NamedTuple):
    """How an agent does what one message asks, decided before anything is written.

    `run` is an async generator of outputs. `replies` is True when it may answer with a bare Message, so that no task is
    made before its first output; `restarts` when this work may simply run again after a crash, or says so when somebody
    has to know. `prepare` is called before the work begins: the task is submitted until then.
    """

    run: Callable[[Context], AsyncIterator[Any]]
    replies: bool = False
    restarts: bool | Callable[[], bool] = False
    prepare: Callable[[Context], Awaitable[None]] | None = None


class Runnable(Protocol):
    """An agent as the engine sees it: one async generator and a few facts."""

    @property
    def name(self) -> str:
        """The agent's name, which scopes its tasks."""
        ...

    @property
    def extensions(self) -> Sequence[AgentExtension]:
        """The protocol extensions it knows, or demands."""
        ...

    @property
    def closing(self) -> Literal["whole", "last"]:
        """How a streamed text is closed."""
        ...

    @property
    def parallel(self) -> bool:
        """True when several runs of one context may go on at once."""
        ...

    @property
    def streams(self) -> bool:
        """False when the agent's card says that it does not stream."""
        ...

    @property
    def output_metadata(self) -> OutputMetadata | None:
        """What it writes on everything it says, if anything."""
        ...

    def plan(self, ctx: Context) -> Plan:
        """How to do what a message asks. Never raises: what is wrong with it is for the run to say."""
        ...

    async def canceled(self, ref: Any) -> None:
        """Hear that a task was canceled while it waited for an answer; `ref` is what came with its question."""
        ...
