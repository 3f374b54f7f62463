"""How much work a schema may make: it is read, and values are judged by it, where everybody waits."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

# One step is about a microsecond, so that this is some twenty milliseconds.
MOST = 20_000


class Exhausted(Exception):
    """There is more to do than may be done here."""

    def __init__(self) -> None:
        super().__init__("it would take too long")


class _Effort:
    __slots__ = ("left", "underway")

    def __init__(self, left: int) -> None:
        self.left = left
        self.underway: set[tuple[int, int]] = set()


_effort: ContextVar[_Effort | None] = ContextVar("dragoman_schema_effort", default=None)


@contextmanager
def limited(most: int = MOST) -> Generator[None]:
    """All that is done within may take so many steps together."""
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


def begin(place: object, value: object) -> None:
    """A schema is held against a value. Raises Exhausted when it is already: then it refers to itself for ever."""
    effort = _effort.get()
    if effort is not None:
        pair = id(place), id(value)
        if pair in effort.underway:
            raise Exhausted
        effort.underway.add(pair)


def end(place: object, value: object) -> None:
    """What began is over."""
    effort = _effort.get()
    if effort is not None:
        effort.underway.discard((id(place), id(value)))
