"""How many bytes a task has brought, against the limit for one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.model.error import ResponseTooLarge
from dragoman.model.json import encode
from dragoman.net.exchange import MAX_ANSWER, size_in_words

if TYPE_CHECKING:
    from collections.abc import Iterable

# What one task may bring unless the caller says otherwise.
DEFAULT_LIMIT = MAX_ANSWER


class Received:
    """Counts one task over all its streams and readings. `limit` is in bytes; None counts and refuses nothing.

    What streams bring counts as it comes, unpacked and with everything around it. A further stream may begin with a
    copy of what is known already: until its first event is whole it counts by itself, and of a copy only what is new.
    """

    __slots__ = ("_apart", "_limit", "_total")

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._total = 0
        # What has come of a further stream whose first event is not whole; None when there is no such stream.
        self._apart: int | None = None

    def begin(self, *, further: bool) -> None:
        """A stream of the task begins, the first or a further one."""
        self._apart = 0 if further else None

    def add(self, size: int) -> None:
        """Count bytes. Raises ResponseTooLarge when they are too many."""
        if self._apart is not None:
            size = self._apart = self._apart + size
        else:
            size = self._total = self._total + size
        if self._limit is not None and size > self._limit:
            raise too_much(self._limit)

    def begun(self, copy: object) -> None:
        """The first event of a further stream is whole; `copy` is it when it shows the task anew, else None."""
        if self._apart is not None:
            came, self._apart = self._apart, None
            self.add(came if copy is None else max(0, came - len(encode(copy))))

    def add_all(self, events: Iterable[object]) -> None:
        """Count events that were read and not streamed. Raises ResponseTooLarge when they are too many."""
        if self._limit is not None:
            self.add(sum(len(encode(each)) for each in events))


def too_much(limit: int) -> ResponseTooLarge:
    """The error for a task that brings more than its limit."""
    return ResponseTooLarge(
        f"the task has brought more than {size_in_words(limit)}, and nothing more of it is read. {HINT}", limit=limit
    )


HINT = "To allow more, raise `limit` of the Client, or `--limits-remote-bytes` of the command"
