"""The errors of sealing and signatures."""

from __future__ import annotations

from dragoman.model.error import DragomanError


class BadSeal(DragomanError):
    """Sealed data cannot be decrypted: changed, too old, sealed for another purpose or with an unknown secret."""

    reason = "BAD_SEAL"


class BadSignature(DragomanError):
    """A signature or signed token is not valid.

    `reason` is `NOT_SIGNED`, `UNKNOWN_KEY` (the key is not in the key set, so the signature could not be checked),
    `EXPIRED`, `WRONG_AUDIENCE`, `WRONG_ISSUER`, or `BAD_SIGNATURE` for everything else.
    """

    reason = "BAD_SIGNATURE"

    def __init__(self, text: str, *, reason: str | None = None) -> None:
        super().__init__(text)
        self.reason = reason or type(self).reason
