"""One turn of a conversation."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from dragoman.model.answer import Answer
from dragoman.model.part import Part
from dragoman.model.state import Role, State


class Message(Answer, Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A message from a user to an agent or back. As an answer it stands for a finished exchange."""

    message_id: str
    role: Role
    parts: tuple[Part, ...]  # pyright: ignore[reportIncompatibleMethodOverride] - a field reads like the property
    context_id: str | None = None
    task_id: str | None = None
    metadata: dict[str, Any] | None = None
    extensions: tuple[str, ...] = ()
    reference_task_ids: tuple[str, ...] = ()

    @property
    def state(self) -> State:
        """Always completed: a bare message is a whole answer."""
        return State.COMPLETED

    @property
    def question(self) -> None:
        """None: a bare message asks nothing that could be answered within a task."""

    @property
    def error(self) -> None:
        """None: a failed exchange is a task."""

    def raise_for_state(self) -> None:
        """Does nothing; it is here so that a Task and a Message are read alike."""
