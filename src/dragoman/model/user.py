"""Authenticated callers, and user accounts as stores hold them."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct


class User(Struct, frozen=True):
    """An authenticated caller. Tasks belong to `id`; `permissions` give access to skills."""

    id: str
    name: str = ""
    permissions: frozenset[str] = frozenset()
    claims: dict[str, Any] | None = None


# No colon, which ends the name in HTTP Basic, and no bar, which separates an issuer from its users' names.
_NAME = re.compile(r"\w[\w.@+-]{0,99}")


class Account(Struct, frozen=True):
    """A user account as read at one moment. Times are milliseconds since 1970."""

    user: User
    """The user, with the permissions that are valid now. Its id is its name."""
    password: str
    """The password hash, or empty for an account without one."""
    epoch: int
    """Sessions and tokens issued for an earlier epoch are invalid."""
    fresh_until: int
    """Nothing in this account expires before that time."""


class Grant(Struct, frozen=True):
    """A permission, until a time or without a limit."""

    permission: str
    until: int | None = None


class KeySummary(Struct, frozen=True):
    """An API key as listed: its last characters, when it was created, and when it expires."""

    hint: str
    created: int
    until: int | None = None


class UserSummary(Struct, frozen=True):
    """A user as listed for an administrator."""

    name: str
    created: int
    has_password: bool
    grants: tuple[Grant, ...]
    keys: tuple[KeySummary, ...]


def is_name(text: str) -> bool:
    """True for a valid user name: letters, digits and `. @ + - _`, at most 100 characters."""
    return _NAME.fullmatch(text) is not None
