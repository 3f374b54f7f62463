"""Tools from elsewhere, as an agent offers them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from dragoman.agents.skill import Offer
    from dragoman.engine.context import Context


class Toolset(Protocol):
    """Tools of other servers. They are known once it is open, and may change from then on."""

    @property
    def revision(self) -> int:
        """Grows whenever the tools change."""
        ...

    @property
    def offers(self) -> Sequence[Offer]:
        """The tools, in the order in which their servers list them."""
        ...

    @property
    def about(self) -> tuple[str, str]:
        """What their servers say of themselves: a description and a version, either may be empty."""
        ...

    def schemas(self, ids: Sequence[str]) -> Mapping[str, Any]:
        """The JSON schemas of these tools, by id."""
        ...

    def restarts(self, ctx: Context) -> bool:
        """True when the tool a message means may run again after a crash."""
        ...

    def run(self, ctx: Context) -> AsyncIterator[Any]:
        """Do what a message asks."""
        ...

    async def canceled(self, ref: Any) -> None:
        """Hear that a waiting task was canceled."""
        ...

    async def open(self) -> None:
        """Make ready. Raises DragomanError when the servers cannot be reached or started."""
        ...

    async def close(self) -> None:
        """Let go of the servers."""
        ...
