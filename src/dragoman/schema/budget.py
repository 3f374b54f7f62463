"""Step budget for work on a foreign schema, which runs on the event loop while everything else waits."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

# One step is about a microsecond: this is some twenty milliseconds.
MAX_STEPS = 20_000


class BudgetExhausted(Exception):
    """The work would exceed the step budget, or would never end."""

    def __init__(self) -> None:
        super().__init__("it would take too long")


class _Budget:
    __slots__ = ("active", "steps_left")

    def __init__(self, steps: int) -> None:
        self.steps_left = steps
        self.active: set[tuple[int, int]] = set()


_budget: ContextVar[_Budget | None] = ContextVar("dragoman_schema_budget", default=None)


@contextmanager
def step_budget(steps: int = MAX_STEPS) -> Generator[None]:
    """Limit the work within the block to this many steps in total. A nested block has a budget of its own.

    Outside any block nothing is limited.
    """
    token = _budget.set(_Budget(steps))
    try:
        yield
    finally:
        _budget.reset(token)


def spend(steps: int) -> None:
    """Charge steps that are about to be done. Raises BudgetExhausted when too few are left, and on every later call."""
    budget = _budget.get()
    if budget is not None:
        budget.steps_left -= steps
        if budget.steps_left < 0:
            raise BudgetExhausted


def try_spend(steps: int) -> bool:
    """Charge steps if enough are left; otherwise charge nothing and return False."""
    budget = _budget.get()
    if budget is None:
        return True
    if budget.steps_left < steps:
        return False
    budget.steps_left -= steps
    return True


def enter_reference(subschema: object, value: object) -> None:
    """Record that the reference of a subschema is being followed for a value.

    Raises:
        BudgetExhausted: it is being followed for this value already, so the schema refers to itself without end.
    """
    budget = _budget.get()
    if budget is not None:
        pair = id(subschema), id(value)
        if pair in budget.active:
            raise BudgetExhausted
        budget.active.add(pair)


def leave_reference(subschema: object, value: object) -> None:
    """Undo `enter_reference`."""
    budget = _budget.get()
    if budget is not None:
        budget.active.discard((id(subschema), id(value)))
