"""What stands between an agent of another framework and the engine."""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from dragoman.agents.functions.skill import Offer
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


async def value_for(ctx: Context, given: Any) -> Any:
    """The value for this run. Functions, methods, classes and partials make it; other things that can be called are it.

    An object may be callable for its own reasons, such as a client that its tools call.
    """
    if not (inspect.isroutine(given) or isinstance(given, type | partial)):
        return given
    made = cast("Callable[[Context], Any]", given)(ctx)
    return await made if inspect.isawaitable(made) else made
