"""The port to a bus: wake-ups."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol


class Watch(Protocol):
    """One listener's view of how far a task has come."""

    async def wait_past(self, generation: int, seconds: float) -> bool:
        """Wait for news; True when the task is known to be past that generation, False when time is up or it is not."""
        ...


class Bus(Protocol):
    """Wakes listeners up. It never carries the only copy of anything."""

    def watch(self, task_id: str) -> AbstractContextManager[Watch]:
        """Listen to a task for as long as the context is open."""
        ...

    def add_callback(self, task_id: str, callback: Callable[[int], None]) -> Callable[[], None]:
        """Call back with the generation whenever a task has come further. Gives the way to stop that."""
        ...

    def notify(self, task_id: str, generation: int) -> None:
        """Tell all listeners that the task has come this far."""
        ...

    def wake_all(self) -> None:
        """Let every listener look up, for instance because the server stops."""
        ...
