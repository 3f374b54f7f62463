"""Sealing: authenticated encryption of data that others carry, such as cookies."""

from __future__ import annotations

import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence

from dragoman.keys.errors import BadSeal

# Clocks of servers differ; a time further in the future is refused.
SKEW = 60.0


class Sealer:
    """Encrypts and decrypts data as Fernet tokens. Keys have 32 bytes; the first encrypts, all of them decrypt."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        from cryptography.fernet import Fernet, MultiFernet

        self._fernet = MultiFernet([Fernet(urlsafe_b64encode(key)) for key in keys])

    def seal(self, data: bytes, now: float | None = None) -> bytes:
        """Encrypt data. The result is ASCII that fits into a cookie, a URL or a column."""
        return self._fernet.encrypt_at_time(data, int(time.time() if now is None else now))

    def unseal(self, sealed: bytes, max_age: float | None = None, now: float | None = None) -> bytes:
        """Decrypt data.

        Raises:
            BadSeal: it was changed, or sealed with another key. With `max_age`, also: it was sealed more than so many
                seconds ago, or more than a minute in the future.
        """
        from cryptography.fernet import InvalidToken

        try:
            data = self._fernet.decrypt(sealed)
        except (InvalidToken, ValueError):
            raise BadSeal("this was not sealed here, or was changed since") from None
        token = urlsafe_b64decode(sealed)
        # Base64 has several spellings for some bytes. Only the canonical one passes: no character can be changed.
        if urlsafe_b64encode(token) != sealed:
            raise BadSeal("this was not sealed here, or was changed since")
        if max_age is not None:
            age = (time.time() if now is None else now) - int.from_bytes(token[1:9], "big")
            if age > max_age:
                raise BadSeal("this was sealed too long ago")
            if age < -SKEW:
                raise BadSeal("this was sealed in the future: compare the clocks")
        return data
