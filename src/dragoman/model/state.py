"""The states of a task and the roles of a message."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """A task's state, spelled as A2A 1.0 spells it."""

    UNSPECIFIED = "TASK_STATE_UNSPECIFIED"
    SUBMITTED = "TASK_STATE_SUBMITTED"
    WORKING = "TASK_STATE_WORKING"
    COMPLETED = "TASK_STATE_COMPLETED"
    FAILED = "TASK_STATE_FAILED"
    CANCELED = "TASK_STATE_CANCELED"
    INPUT_REQUIRED = "TASK_STATE_INPUT_REQUIRED"
    REJECTED = "TASK_STATE_REJECTED"
    AUTH_REQUIRED = "TASK_STATE_AUTH_REQUIRED"

    @property
    def final(self) -> bool:
        """True when nothing can change any more."""
        return self in _FINAL

    @property
    def waiting(self) -> bool:
        """True when the agent waits for the caller: input-required or auth-required."""
        return self in _WAITING


_FINAL = frozenset({State.COMPLETED, State.FAILED, State.CANCELED, State.REJECTED})
_WAITING = frozenset({State.INPUT_REQUIRED, State.AUTH_REQUIRED})


class Role(StrEnum):
    """Who speaks in a message."""

    UNSPECIFIED = "ROLE_UNSPECIFIED"
    USER = "ROLE_USER"
    AGENT = "ROLE_AGENT"
