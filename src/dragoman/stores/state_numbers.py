"""How databases store the states of tasks: by their protobuf numbers."""

from __future__ import annotations

from dragoman.model.state import State

STATES: tuple[State, ...] = (
    State.UNSPECIFIED,
    State.SUBMITTED,
    State.WORKING,
    State.COMPLETED,
    State.FAILED,
    State.CANCELED,
    State.INPUT_REQUIRED,
    State.REJECTED,
    State.AUTH_REQUIRED,
)
NUMBERS: dict[State, int] = {state: number for number, state in enumerate(STATES)}
