"""States and roles in every spelling used on the wire."""

from __future__ import annotations

from dragoman.model.state import Role, State

# 0.1 to 0.3 over JSON-RPC; `unknown` is their unspecified state.
WORDS: dict[State, str] = {
    State.UNSPECIFIED: "unknown",
    State.SUBMITTED: "submitted",
    State.WORKING: "working",
    State.COMPLETED: "completed",
    State.FAILED: "failed",
    State.CANCELED: "canceled",
    State.INPUT_REQUIRED: "input-required",
    State.REJECTED: "rejected",
    State.AUTH_REQUIRED: "auth-required",
}
# 0.1 has neither rejected nor auth-required.
LEGACY_WORDS: dict[State, str] = {**WORDS, State.REJECTED: "failed", State.AUTH_REQUIRED: "input-required"}
# The 0.3 proto spells it with two l.
PROTO03_WORDS: dict[State, str] = {state: state.value for state in State} | {State.CANCELED: "TASK_STATE_CANCELLED"}
ROLE_WORDS: dict[Role, str] = {Role.UNSPECIFIED: "user", Role.USER: "user", Role.AGENT: "agent"}

# The enums are in the order of their proto numbers.
_STATE_NUMBERS = tuple(State)
_ROLE_NUMBERS = tuple(Role)
_STATES = {state.name: state for state in State} | {"CANCELLED": State.CANCELED, "UNKNOWN": State.UNSPECIFIED}
_ROLES = {role.name: role for role in Role}


def state_of(value: object) -> State | None:
    """Parse a state in any spelling or as a proto number; None when it is not a state."""
    number = _number(value)
    if number is not None:
        return _STATE_NUMBERS[number] if 0 <= number < len(_STATE_NUMBERS) else None
    return _STATES.get(_name(value, "TASK_STATE_"))


def role_of(value: object) -> Role | None:
    """Parse a role in any spelling or as a proto number; None when it is not a role."""
    number = _number(value)
    if number is not None:
        return _ROLE_NUMBERS[number] if 0 <= number < len(_ROLE_NUMBERS) else None
    return _ROLES.get(_name(value, "ROLE_"))


def _number(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    # Values of a query string are text; no state or role has a long number.
    return int(value) if isinstance(value, str) and len(value) < 4 and value.isascii() and value.isdigit() else None


def _name(value: object, prefix: str) -> str:
    if not isinstance(value, str):
        return ""
    return value.strip().upper().replace("-", "_").removeprefix(prefix)
