"""How much work a schema may make: it is read, and values are judged by it, where everybody waits."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

# One step is about a microsecond, so that this is some twenty milliseconds.
MAX_STEPS = 20_000


class BudgetExhausted(Exception):
    """There is more to do than may be done here."""

    def __init__(self) -> None:
        super().__init__("it would take too long")


class _Budget:
    __slots__ = ("left", "underway")

    def __init__(self, left: int) -> None:
        self.left = left
        self.underway: set[tuple[int, int]] = set()


_budget: ContextVar[_Budget | None] = ContextVar("dragoman_schema_effort", default=None)


@contextmanager
def step_budget(steps: int = MAX_STEPS) -> Generator[None]:
    """All that is done within may take so many steps together."""
    token = _budget.set(_Budget(steps))
    try:
        yield
    finally:
        _budget.reset(token)


def spend(steps: int) -> None:
    """Count what is about to be done. Raises Exhausted when it is too much, and from then on."""
    effort = _budget.get()
    if effort is not None:
        effort.left -= steps
        if effort.left < 0:
            raise BudgetExhausted


def try_spend(steps: int) -> bool:
    """Count what is about to be done, if there is effort left for it; False, and nothing is counted, if not."""
    effort = _budget.get()
    if effort is None:
        return True
    if effort.left < steps:
        return False
    effort.left -= steps
    return True


def enter(place: object, value: object) -> None:
    """A schema is held against a value. Raises Exhausted when it is already: then it refers to itself for ever."""
    effort = _budget.get()
    if effort is not None:
        pair = id(place), id(value)
        if pair in effort.underway:
            raise BudgetExhausted
        effort.underway.add(pair)


def leave(place: object, value: object) -> None:
    """What began is over."""
    effort = _budget.get()
    if effort is not None:
        effort.underway.discard((id(place), id(value)))
