"""Webhooks of A2A 0.3."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from dragoman.compat.executor.wire import Wire, read
from dragoman.dialects.v03.dialect import V03_RPC
from dragoman.model.json import decode_any
from dragoman.model.operation import Operation

if TYPE_CHECKING:
    from dragoman.model.operation import TaskPushNotificationConfig


class PushAuthInfo(Wire, frozen=True):
    """What the receiver wants to see in `Authorization`."""

    schemes: tuple[str, ...]
    credentials: str | None = None


class PushConfig(Wire, frozen=True):
    """A webhook."""

    url: str
    id: str | None = None
    token: str | None = None
    authentication: PushAuthInfo | None = None


class TaskPushConfig(Wire, frozen=True):
    """A webhook and its task."""

    task_id: str
    push_notification_config: PushConfig

    def to_model(self) -> TaskPushNotificationConfig:
        """The webhook in the words of A2A 1.0; of several schemes it keeps one. Raises InvalidParams."""
        request = V03_RPC.request_from(Operation.CREATE_PUSH, self.to_map())
        return cast("TaskPushNotificationConfig", request)

    @classmethod
    def from_model(cls, config: TaskPushNotificationConfig) -> TaskPushConfig:
        """Spell a webhook of A2A 1.0."""
        return read(cls, decode_any(V03_RPC.params(Operation.CREATE_PUSH, config)))
