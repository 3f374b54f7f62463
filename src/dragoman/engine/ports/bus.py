"""The bus port: wakes subscribers when a task has new records."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol


class Watch(Protocol):
    """A subscription to one task that remembers the latest generation it was notified of."""

    @property
    def generation(self) -> int:
        """The latest generation that it was notified of or waited past."""
        ...

    @property
    def timed_out(self) -> bool:
        """True when the last wait ended without a wake-up: nothing has happened to the task."""
        ...

    async def wait_past(self, generation: int, seconds: float) -> bool:
        """Wait for a notification. True when the task is past `generation`; False after a timeout or other wake-up."""
        ...


class Bus(Protocol):
    """Notifies subscribers. It carries no data, so a lost notification costs time and never an event."""

    async def open(self) -> None:
        """Start to reach other processes, if there can be any. It works within its process before that, too."""
        ...

    async def close(self) -> None:
        """Stop to reach other processes, after what was notified has been sent."""
        ...

    def watch(self, task_id: str) -> AbstractContextManager[Watch]:
        """Subscribe to a task while the context manager is open."""
        ...

    def add_callback(self, task_id: str, callback: Callable[[int], None]) -> Callable[[], None]:
        """Call back with the new generation whenever a task has new records. Returns a function that unsubscribes."""
        ...

    def notify(self, task_id: str, generation: int) -> None:
        """Notify all subscribers that the task has reached `generation`."""
        ...

    def wake_all(self) -> None:
        """Wake every subscriber without a new generation, for instance because the server stops."""
        ...
