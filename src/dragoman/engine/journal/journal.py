"""What the live tasks of one agent have in common: where and how they are written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.clock import Clock
    from dragoman.engine.journal.live import LiveTask
    from dragoman.engine.ports.bus import Bus
    from dragoman.engine.ports.ownership import Ownership
    from dragoman.engine.ports.store import Store


class Journal:
    """Where the tasks of one agent are written.

    `serial` and `pins` are flags of `Write`. `status_metadata` is added to every status. `stopping` is True when this
    process stops, and all runs with it. `on_refused` is called with a live task a write of which the store has refused.
    """

    __slots__ = (
        "bus",
        "clock",
        "on_refused",
        "ownership",
        "pins",
        "serial",
        "status_metadata",
        "stopping",
        "store",
    )

    def __init__(
        self,
        store: Store,
        bus: Bus,
        clock: Clock,
        ownership: Ownership,
        *,
        serial: bool = True,
        pins: bool = False,
        status_metadata: dict[str, Any] | None = None,
        on_refused: Callable[[LiveTask], None] | None = None,
    ) -> None:
        self.store = store
        self.bus = bus
        self.clock = clock
        self.ownership = ownership
        self.serial = serial
        self.pins = pins
        self.status_metadata = status_metadata
        self.on_refused = on_refused
        self.stopping = False

    async def wait_lease(self) -> None:
        """Wait, before anything that has an effect outside, until this process may work on its tasks.

        Raises:
            OwnershipLost: other processes have taken over the tasks of this one.
        """
        if self.ownership.expired:
            await self.ownership.wait_renewed()

    def stop(self) -> None:
        """Note that this process stops."""
        self.stopping = True
