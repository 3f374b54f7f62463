"""What stands between an agent of another framework and the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from dragoman.agents.skill import Offer
    from dragoman.engine.context import Context


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
