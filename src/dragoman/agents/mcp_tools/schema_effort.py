"""How much work a schema may make: it is read, and values are judged by it, where everybody waits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

# One step is about a microsecond, so that this is some twenty milliseconds.
MOST = 20_000


class Exhausted(Exception):
    """There is more to do than may be done here."""

    def __init__(self) -> None:
        super().__init__("it would take too long")


class _Effort:
    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left


_effort: ContextVar[_Effort | None] = ContextVar("dragoman_schema_effort", default=None)


@contextmanager
def limited(most: int = MOST) -> Iterator[None]:
    """All that is done within may take so many steps together; within another limit, that one holds."""
    if _effort.get() is not None:
        yield
        return
    token = _effort.set(_Effort(most))
    try:
        yield
    finally:
        _effort.reset(token)


def spend(steps: int) -> None:
    """Count what is about to be done. Raises Exhausted when it is too much, and from then on."""
    effort = _effort.get()
    if effort is not None:
        effort.left -= steps
        if effort.left < 0:
            raise Exhausted


def affords(steps: int) -> bool:
    """Count what is about to be done, if there is effort left for it; False, and nothing is counted, if not."""
    effort = _effort.get()
    if effort is None:
        return True
    if effort.left < steps:
        return False
    effort.left -= steps
    return True
