"""Base of the bridges between the engine and agents of other frameworks."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

from dragoman.agents.offers import offers_with_tools
from dragoman.agents.pause import pause_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable

    from dragoman.agents.functions.skill import Offer
    from dragoman.agents.offers import NamedSkill
    from dragoman.agents.pause import Pause
    from dragoman.engine.execute.context import Context


class Bridge(Protocol):
    """An agent of another framework in the form that the engine runs."""

    @property
    def name(self) -> str:
        """The agent's name in its framework."""
        ...

    @property
    def description(self) -> str:
        """The agent's own description; may be empty."""
        ...

    def offers(self) -> Iterable[Offer]:
        """Return the skills for the agent card."""
        ...

    def run(self, ctx: Context) -> AsyncIterator[Any]:
        """Run the agent on the task's message and yield its outputs."""
        ...

    async def close(self) -> None:
        """Release the resources that stay open between runs."""
        ...


class PausingBridge(ABC):
    """A `Bridge` whose questions are stored as a `Pause`.

    Subclasses, one per framework, implement `tools` and `turn`. While a question of the pause is open, `run` asks it
    and does not call `turn`.
    """

    def __init__(self, name: str, description: str = "") -> None:
        self.name = name.replace("/", "-")
        self.description = description

    @abstractmethod
    def tools(self) -> Iterable[tuple[str, str]]:
        """Return the names and descriptions of the tools, as far as they can be listed without a run."""

    @abstractmethod
    def turn(self, ctx: Context, pause: Pause | None) -> AsyncGenerator[Any, None]:
        """Run the agent on the message, or resume it from a pause that is fully answered, and yield its outputs."""

    def offers(self) -> tuple[NamedSkill, ...]:
        """Return one skill for the agent and one for each of its tools."""
        return offers_with_tools(self.name, self.description, self.tools())

    async def run(self, ctx: Context) -> AsyncGenerator[Any, None]:
        """Run the agent on the message, or ask the next unanswered question of its pause."""
        pause = pause_of(ctx.resume)
        if pause is not None and pause.open:
            yield pause.ask()
            return
        async with aclosing(self.turn(ctx, pause)) as outputs:
            async for output in outputs:
                yield output

    async def close(self) -> None:  # noqa: B027 - optional to override
        """Do nothing: most frameworks hold nothing open between runs."""


async def value_for(ctx: Context, source: Any) -> Any:
    """Return the value for this run: call `source` with the context if it is a factory, else return it unchanged.

    Functions, methods, classes and partials are factories. Any other object is the value itself, even if it is
    callable, such as a client that tools call.
    """
    if not (inspect.isroutine(source) or isinstance(source, type | partial)):
        return source
    value = cast("Callable[[Context], Any]", source)(ctx)
    return await value if inspect.isawaitable(value) else value
