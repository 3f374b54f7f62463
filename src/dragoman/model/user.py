"""Who is calling, and a user as a store keeps it."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct


class User(Struct, frozen=True):
    """An authenticated caller. Tasks belong to `id`; `permissions` open skills."""

    id: str
    name: str = ""
    permissions: frozenset[str] = frozenset()
    claims: dict[str, Any] | None = None


# No colon, which ends a name in HTTP Basic, and no bar, which separates an issuer from its users' names.
_NAME = re.compile(r"\w[\w.@+-]{0,99}")


class Account(Struct, frozen=True):
    """A user at one moment. Times are milliseconds since 1970."""

    user: User
    """With the permissions that hold now. Its id is its name."""
    password: str
    """A hash, or empty for those who have none."""
    epoch: int
    """What was given out for an earlier epoch does not hold any more."""
    fresh_until: int
    """Until then nothing of this runs out by itself."""


class Grant(Struct, frozen=True):
    """A permission, for a time or for good."""

    permission: str
    until: int | None = None


class KeySummary(Struct, frozen=True):
    """What is kept of a key that was given out: its last characters, and how long it holds."""

    hint: str
    created: int
    until: int | None = None


class UserSummary(Struct, frozen=True):
    """A user as an administrator sees it."""

    name: str
    created: int
    has_password: bool
    grants: tuple[Grant, ...]
    keys: tuple[KeySummary, ...]


def is_name(text: str) -> bool:
    """True for a name that a user can have: letters, digits and `. @ + - _`, at most 100."""
    return _NAME.fullmatch(text) is not None
