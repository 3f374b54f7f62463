"""What stands between an agent of another framework and the engine."""

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
    """An agent of another framework, as the engine can run it."""

    @property
    def name(self) -> str:
        """What it is called there."""
        ...

    @property
    def description(self) -> str:
        """What it says of itself; may be empty."""
        ...

    def offers(self) -> Iterable[Offer]:
        """What it can do, for the card."""
        ...

    def run(self, ctx: Context) -> AsyncIterator[Any]:
        """Do what a message asks."""
        ...

    async def close(self) -> None:
        """Let go of what it holds open."""
        ...


class PausingBridge(ABC):
    """A `Bridge` whose questions are a `Pause`: a framework says what it is called, what it can do, and how it runs."""

    def __init__(self, name: str, description: str = "") -> None:
        self.name = name.replace("/", "-")
        self.description = description

    @abstractmethod
    def tools(self) -> Iterable[tuple[str, str]]:
        """The tools it has, as far as they are known before a run: their names and descriptions."""

    @abstractmethod
    def turn(self, ctx: Context, pause: Pause | None) -> AsyncGenerator[Any, None]:
        """Give the message to the agent, or go on from a pause that is answered, and pass on what it says."""

    def offers(self) -> tuple[NamedSkill, ...]:
        """The agent, and its tools."""
        return offers_with_tools(self.name, self.description, self.tools())

    async def run(self, ctx: Context) -> AsyncGenerator[Any, None]:
        """Do what a message asks; ask again as long as there is something that nobody has answered."""
        pause = pause_of(ctx.resume)
        if pause is not None and pause.open:
            yield pause.ask()
            return
        async with aclosing(self.turn(ctx, pause)) as outputs:
            async for output in outputs:
                yield output

    async def close(self) -> None:  # noqa: B027 - there is nothing to do, unless a framework has something
        """Nothing is held open between runs."""


async def value_for(ctx: Context, source: Any) -> Any:
    """The value for this run. Functions, methods, classes and partials make it; other things that can be called are it.

    An object may be callable for its own reasons, such as a client that its tools call.
    """
    if not (inspect.isroutine(source) or isinstance(source, type | partial)):
        return source
    value = cast("Callable[[Context], Any]", source)(ctx)
    return await value if inspect.isawaitable(value) else value
