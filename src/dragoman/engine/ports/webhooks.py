"""The port to the sender of webhooks."""

from __future__ import annotations

from typing import Protocol

from dragoman.engine.ports.store import Push, TaskRow
from dragoman.model.operation import TaskPushNotificationConfig


class Outbox(Protocol):
    """Brings events to webhooks. What it owes is in the store; it is only told where to look."""

    async def ready(self) -> None:
        """Get ready for webhooks, before the first one. Raises ServerError when there can be none now."""
        ...

    def check(self, config: TaskPushNotificationConfig) -> None:
        """Raise InvalidParams when a webhook is not one, or its address may not be called."""
        ...

    def prepare(self, config: TaskPushNotificationConfig, *, task: int, dialect: str, cursor: int) -> Push:
        """A webhook as it is stored, its secrets sealed. Where it takes the place of one that is followed, it begins
        where that one is.

        Raises:
            InvalidParams: it is not one, or its address may not be called.
        """
        ...

    def is_unchanged(self, push: Push, config: TaskPushNotificationConfig, dialect: str) -> bool:
        """True when a stored webhook is what its owner asks for anyway."""
        ...

    def replaces(self, push: Push, dialect: str) -> bool:
        """True when a webhook without an id, registered in that dialect, takes the place of a stored one."""
        ...

    def redacted(self, push: Push, task_id: str) -> TaskPushNotificationConfig:
        """A webhook as its owner sees it again: without its secrets."""
        ...

    def follow(self, row: TaskRow, push: Push) -> None:
        """Bring the task's events to this webhook from now on, in place of one with the same id."""
        ...

    def unfollow(self, task: int, push_id: str) -> None:
        """Bring nothing more to a webhook."""
        ...
