"""Where a task's events are to be posted."""

from __future__ import annotations

from msgspec import Struct


class AuthenticationInfo(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What a webhook's receiver wants to see in `Authorization`."""

    scheme: str
    credentials: str | None = None


class TaskPushNotificationConfig(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One webhook of one task."""

    url: str
    id: str | None = None
    task_id: str | None = None
    token: str | None = None
    authentication: AuthenticationInfo | None = None
    tenant: str | None = None
