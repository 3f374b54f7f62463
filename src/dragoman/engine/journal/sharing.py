"""What a live task needs to know when other processes use the same store."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from dragoman.engine.ports.ownership import Ownership


class Sharing(NamedTuple):
    """How the tasks of one agent are written to a store that other processes use too.

    The flags are those of `Write`: runs of one context are `serial`, and a run `pins` its context to this node.
    """

    ownership: Ownership
    serial: bool
    pins: bool

    async def wait_lease(self) -> None:
        """Wait, before anything that has an effect outside, until this process may work on its tasks.

        Raises:
            OwnershipLost: other processes have taken over the tasks of this one.
        """
        if self.ownership.expired:
            await self.ownership.wait_renewed()
