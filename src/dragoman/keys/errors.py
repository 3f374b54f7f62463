"""What goes wrong with seals and signatures."""

from __future__ import annotations

from dragoman.model.error import DragomanError


class BadSeal(DragomanError):
    """What was sealed cannot be opened: changed, too old, sealed for another purpose or with an unknown secret."""

    reason = "BAD_SEAL"


class BadSignature(DragomanError):
    """A signature does not hold, or is none.

    `reason` tells how: `NOT_SIGNED`, `UNKNOWN_KEY` (nothing is wrong but that the key is not among the given ones),
    `EXPIRED`, or `BAD_SIGNATURE` for all the rest.
    """

    reason = "BAD_SIGNATURE"

    def __init__(self, text: str, *, reason: str | None = None) -> None:
        super().__init__(text)
        self.reason = reason or type(self).reason
