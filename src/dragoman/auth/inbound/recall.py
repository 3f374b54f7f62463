"""What was found right a moment ago need not be found right again."""

from __future__ import annotations

import secrets
from hashlib import sha256
from typing import Generic, TypeVar

from dragoman.engine.clock import Clock

T = TypeVar("T")
SIZE = 4096


class Recall(Generic[T]):
    """Remembers what credentials were good for, for a while, without keeping the credentials.

    They are known by a digest with a key that nobody has: what is in memory, or in a dump of it, opens nothing.
    """

    def __init__(self, clock: Clock, seconds: float, size: int = SIZE) -> None:
        self._clock = clock
        self._keep = int(seconds * 1000)
        self._size = size
        self._key = secrets.token_bytes(32)
        self._found: dict[bytes, tuple[T, int]] = {}

    def __len__(self) -> int:
        return len(self._found)

    def digest(self, *credentials: str) -> bytes:
        """The name of credentials here."""
        said = "".join([f"{len(each)}:{each}" for each in credentials])
        return sha256(self._key + said.encode("utf-8", "surrogatepass")).digest()

    def get(self, digest: bytes) -> T | None:
        """What these credentials were good for; None when that is unknown or too long ago."""
        found = self._found.get(digest)
        return found[0] if found is not None and self._clock.now() < found[1] else None

    def put(self, digest: bytes, value: T, until: float | None = None) -> None:
        """Remember, at most until that time in milliseconds since 1970."""
        end = self._clock.now() + self._keep
        self._found.pop(digest, None)
        while len(self._found) >= self._size:
            del self._found[next(iter(self._found))]
        self._found[digest] = (value, end if until is None else int(min(end, until)))

    def forget(self, digest: bytes) -> None:
        """Remember it no more."""
        self._found.pop(digest, None)
