"""Webhooks as every version before 1.0 spells them: a list of schemes, the task beside the config."""

from __future__ import annotations

from msgspec import Struct

from dragoman.dialects.reading.invalid import missing_field
from dragoman.model.operation import AuthenticationInfo, TaskPushNotificationConfig

_USUAL = ("bearer", "basic")


class Auth03(Struct, frozen=True, omit_defaults=True):
    """The schemes a receiver takes, best first, and the credentials."""

    schemes: tuple[str, ...] = ()
    credentials: str | None = None


class Push03(Struct, frozen=True, omit_defaults=True):
    """A webhook without its task."""

    url: str
    id: str | None = None
    token: str | None = None
    authentication: Auth03 | None = None


def push_to_03(config: TaskPushNotificationConfig) -> Push03:
    """Spell a webhook."""
    said = config.authentication
    auth = None if said is None else Auth03((said.scheme,), said.credentials)
    return Push03(config.url, config.id, config.token, auth)


def push_from_03(push: Push03, at: str, task_id: str | None = None) -> TaskPushNotificationConfig:
    """Read a webhook that stands at the path `at`; of several schemes a usual one is taken.

    Raises:
        InvalidParams: it has no address.
    """
    if not push.url:
        raise missing_field(f"{at}.url")
    return TaskPushNotificationConfig(
        url=push.url,
        id=push.id or None,
        task_id=task_id,
        token=push.token,
        authentication=None if push.authentication is None else _auth(push.authentication),
    )


def _auth(auth: Auth03) -> AuthenticationInfo | None:
    usual = [scheme for scheme in auth.schemes if scheme.lower() in _USUAL]
    scheme = (usual or list(auth.schemes) or ["Bearer"])[0]
    return AuthenticationInfo(scheme, auth.credentials) if auth.schemes or auth.credentials else None
