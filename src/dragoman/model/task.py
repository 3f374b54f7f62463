"""Tasks, their statuses and their artifacts."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from dragoman.model.error import InputRequired, TaskCanceled, TaskFailed, TaskRejected
from dragoman.model.message import Message, ResultContent
from dragoman.model.part import Part
from dragoman.model.state import State


class Artifact(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A result of a task, made of parts; `artifact_id` is unique within the task."""

    artifact_id: str
    parts: tuple[Part, ...]
    name: str | None = None
    description: str | None = None
    metadata: dict[str, Any] | None = None
    extensions: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The text of all parts, joined."""
        return "".join(part.text for part in self.parts if part.text is not None)


class TaskStatus(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The state of a task, since when, and the agent's message about it."""

    state: State
    message: Message | None = None
    timestamp: str | None = None


class Task(ResultContent, Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A task as callers receive it.

    `generation` is the number of its last record; on the wire it exists from A2A 1.1 on.
    """

    id: str
    context_id: str
    status: TaskStatus
    artifacts: tuple[Artifact, ...] = ()
    history: tuple[Message, ...] = ()
    metadata: dict[str, Any] | None = None
    generation: int | None = None

    @property
    def state(self) -> State:
        """The state, as in `status.state`."""
        return self.status.state

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts of all artifacts, else those of the status message."""
        if self.artifacts:
            return tuple(part for artifact in self.artifacts for part in artifact.parts)
        return self.status.message.parts if self.status.message else ()

    @property
    def question(self) -> str | None:
        """The agent's question while the task waits for the caller, else None."""
        return self._status_text() if self.state.waiting else None

    @property
    def error(self) -> str | None:
        """Why the task failed or was rejected, else None."""
        return self._status_text() if self.state in (State.FAILED, State.REJECTED) else None

    def _status_text(self) -> str:
        return self.status.message.text if self.status.message else ""

    def raise_for_state(self) -> None:
        """Raise an exception unless the task has completed, is working, or has not started yet.

        Raises:
            TaskFailed: the task failed.
            TaskRejected: the agent rejected it.
            TaskCanceled: it was canceled.
            InputRequired: it waits for an answer or for authorization.
        """
        if self.state is State.FAILED:
            raise TaskFailed(self.error or "the task failed", task=self)
        if self.state is State.REJECTED:
            raise TaskRejected(self.error or "the task was rejected", task=self)
        if self.state is State.CANCELED:
            raise TaskCanceled("the task was canceled", task=self)
        if self.state.waiting:
            raise InputRequired(self.question or "the agent waits for an answer", task=self)
