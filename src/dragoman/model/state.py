"""The states of a task and the roles of a message."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """A task state, with the names of A2A 1.0.

    A `final` state never changes again. In a `waiting` state, input-required or auth-required, the agent waits for the
    caller. Both are plain attributes and hashing is that of str, for speed: every event reads them.
    """

    final: bool
    waiting: bool

    UNSPECIFIED = "TASK_STATE_UNSPECIFIED"
    SUBMITTED = "TASK_STATE_SUBMITTED"
    WORKING = "TASK_STATE_WORKING"
    COMPLETED = "TASK_STATE_COMPLETED"
    FAILED = "TASK_STATE_FAILED"
    CANCELED = "TASK_STATE_CANCELED"
    INPUT_REQUIRED = "TASK_STATE_INPUT_REQUIRED"
    REJECTED = "TASK_STATE_REJECTED"
    AUTH_REQUIRED = "TASK_STATE_AUTH_REQUIRED"

    __hash__ = str.__hash__


for _state in State:
    _state.final = _state in (State.COMPLETED, State.FAILED, State.CANCELED, State.REJECTED)
    _state.waiting = _state in (State.INPUT_REQUIRED, State.AUTH_REQUIRED)


class Role(StrEnum):
    """The sender of a message."""

    UNSPECIFIED = "ROLE_UNSPECIFIED"
    USER = "ROLE_USER"
    AGENT = "ROLE_AGENT"
