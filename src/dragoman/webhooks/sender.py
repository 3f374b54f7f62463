"""The sender port: replaces the HTTP request of a webhook delivery for the tasks of one agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from dragoman.model.operation import TaskPushNotificationConfig
    from dragoman.model.task import Task


class WebhookNotFound(Exception):
    """The webhook does not exist any more: nothing is sent to it again."""


class WebhookSender(Protocol):
    """Sends tasks to webhooks in some way of its own. Order, retries and backoff are those of the delivery."""

    async def send(self, task: Task, config: TaskPushNotificationConfig) -> str | None:
        """Send a task as it is after a change; return why that failed, or None. A failure is retried.

        Raises:
            WebhookNotFound: the webhook is given up.
        """
        ...
