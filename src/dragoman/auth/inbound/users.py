"""The users that the server itself knows, and the keys it gives them."""

from __future__ import annotations

import secrets
from hashlib import sha256
from typing import Protocol

from dragoman.model.account import Account

KEY_PREFIX = "dk_"
_KEY_BYTES = 32
_MAX_KEY = 100


class UserStore(Protocol):
    """Where users are kept. What an administrator changes counts with the next request."""

    async def by_name(self, name: str) -> Account | None:
        """A user, with the permissions that hold now. A user's id is its name."""
        ...

    async def by_key(self, digest: bytes) -> Account | None:
        """The user a key was given to, while it holds."""
        ...


def new_key() -> str:
    """A key for a user, to be shown once."""
    return KEY_PREFIX + secrets.token_urlsafe(_KEY_BYTES)


def is_key(text: str) -> bool:
    """True when a text looks like a user's key."""
    return text.startswith(KEY_PREFIX) and len(text) <= _MAX_KEY


def key_digest(key: str) -> bytes:
    """What is kept of a key. It is random and long, so that a plain digest cannot be turned back."""
    return sha256(key.encode("utf-8", "surrogatepass")).digest()
