"""What the live tasks of one agent have in common: where and how they are written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.clock import Clock
    from dragoman.engine.journal.live import LiveTask
    from dragoman.engine.ports.bus import Bus
    from dragoman.engine.ports.ownership import Ownership
    from dragoman.engine.ports.store import Store


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


class Journal:
    """Where the tasks of one agent are written.

    `sharing` is None unless other processes use the same store. `status_metadata` is added to every status. `stopping`
    is True when this process stops, and all runs with it. `on_refused` is called with a live task a write of which the
    store has refused.
    """

    __slots__ = ("bus", "clock", "on_refused", "pins", "serial", "sharing", "status_metadata", "stopping", "store")

    def __init__(
        self,
        store: Store,
        bus: Bus,
        clock: Clock,
        sharing: Sharing | None = None,
        status_metadata: dict[str, Any] | None = None,
        on_refused: Callable[[LiveTask], None] | None = None,
    ) -> None:
        self.store = store
        self.bus = bus
        self.clock = clock
        self.sharing = sharing
        self.serial = sharing is not None and sharing.serial
        self.pins = sharing is not None and sharing.pins
        self.status_metadata = status_metadata
        self.on_refused = on_refused
        self.stopping = False

    def stop(self) -> None:
        """Note that this process stops."""
        self.stopping = True
