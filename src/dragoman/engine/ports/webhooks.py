"""The webhook port: what the engine needs from the component that delivers push notifications."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dragoman.engine.ports.store import Push, TaskRow
from dragoman.model.operation import TaskPushNotificationConfig


class Outbox(Protocol):
    """Delivers the events of tasks to their webhooks.

    The queue is the store: what is still to be delivered is the journal after each webhook's cursor.
    """

    async def ready(self) -> None:
        """Wait until webhooks can be accepted. Raises ServerError when they cannot be accepted now."""
        ...

    def check(self, config: TaskPushNotificationConfig) -> None:
        """Validate a webhook. Raises InvalidParams when it is malformed or its address is not allowed."""
        ...

    def prepare(self, config: TaskPushNotificationConfig, *, task: int, dialect: str, cursor: int) -> Push:
        """Build the stored form of a webhook, with its secrets encrypted.

        A webhook that replaces one being delivered starts at that one's cursor.

        Raises:
            InvalidParams: it is malformed, or its address is not allowed.
        """
        ...

    def is_unchanged(self, push: Push, config: TaskPushNotificationConfig, dialect: str) -> bool:
        """True when a stored webhook already equals the requested configuration."""
        ...

    def replaces(self, push: Push, dialect: str) -> bool:
        """True when a new webhook without an id, registered in that dialect, replaces this stored one."""
        ...

    def redacted(self, push: Push, task_id: str) -> TaskPushNotificationConfig:
        """The configuration of a stored webhook, without its secrets."""
        ...

    def config(self, push: Push, task_id: str) -> TaskPushNotificationConfig:
        """The configuration of a stored webhook, with its secrets. Raises BadSeal when their key is lost."""
        ...

    def follow(self, row: TaskRow, push: Push, *, may_be_behind: bool = False) -> None:
        """Start delivering the task's events to this webhook, in place of one with the same id.

        With `may_be_behind`, the task may have moved on since its row was read.
        """
        ...

    def unfollow(self, task: int, push_id: str) -> bool:
        """Stop delivering to a webhook. Returns whether this process did."""
        ...


class ConfigReader(Protocol):
    """A store of webhook configurations beside the engine's own: callers read their webhooks from it."""

    async def get(self, task_id: str, config_id: str | None) -> TaskPushNotificationConfig | None:
        """A webhook of a task, without an id the first; None when there is none. Raises ServerError."""
        ...

    async def list(self, task_id: str) -> Sequence[TaskPushNotificationConfig]:
        """All webhooks of a task. Raises ServerError."""
        ...
