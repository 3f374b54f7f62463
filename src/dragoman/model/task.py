"""Tasks, their statuses and their artifacts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from dragoman.model.error import InputRequired, TaskCanceled, TaskFailed, TaskRejected
from dragoman.model.message import Message, ResultContent, join_paragraphs
from dragoman.model.part import Part
from dragoman.model.state import Role, State

if TYPE_CHECKING:
    from collections.abc import Sequence


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
        """The text of all parts, joined without anything between them: they may be the chunks of one text."""
        return "".join([part.text for part in self.parts if part.text is not None])


class TaskStatus(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The state of a task, since when, and the agent's message about it."""

    state: State
    message: Message | None = None
    timestamp: str | None = None


def answer_messages(status: TaskStatus, history: Sequence[Message]) -> list[Message]:
    """Return the messages that are the answer of a task without artifacts.

    That is the message of its status. Some servers complete a task without one, after they sent the answer as messages
    of a working task: then it is what the agent wrote since the caller's last message, except progress.
    """
    if status.message is not None and status.message.parts:
        return [status.message]
    found: list[Message] = []
    if status.state is State.COMPLETED:
        for message in reversed(history):
            if message.role is not Role.AGENT:
                break
            if not message.is_progress:
                found.append(message)
    return found[::-1]


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
        """The parts of all artifacts, else those of the messages that are the answer: see `answer_messages`."""
        if self.artifacts:
            return tuple(part for artifact in self.artifacts for part in artifact.parts)
        return tuple(part for message in answer_messages(self.status, self.history) for part in message.parts)

    @property
    def text(self) -> str:
        """The text of all artifacts, joined as it was streamed; without artifacts the texts of the messages."""
        if self.artifacts:
            return "".join([artifact.text for artifact in self.artifacts])
        return join_paragraphs([message.text for message in answer_messages(self.status, self.history)])

    @property
    def files(self) -> list[Part]:
        """The parts that are files, bytes or URLs, also those of a closing message beside the artifacts."""
        return [part for part in (*self.parts, *closing_parts(self)) if part.kind in ("raw", "url")]

    @property
    def question(self) -> str | None:
        """The agent's question while the task waits for the caller, else None.

        Where its message has no text, it is what the message or the last artifact holds, data as JSON.
        """
        if not self.state.waiting:
            return None
        message = self.status.message
        holders = ([message] if message is not None else []) + list(self.artifacts[-1:])
        return next((text for each in holders if (text := each.text or _json_text(each.parts))), "")

    @property
    def error(self) -> str | None:
        """Why the task failed or was rejected, else None."""
        if self.state not in (State.FAILED, State.REJECTED):
            return None
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
            raise InputRequired(self.question or "the agent is waiting for an answer", task=self)


def closing_parts(answer: Task | Message) -> tuple[Part, ...]:
    """Return the closing message of a completed task, beside its artifacts; without a text that only repeats theirs.

    A repeat may be cut, with an ellipsis at its end. Without artifacts the message is the answer, and not returned.
    """
    if not isinstance(answer, Task) or answer.state is not State.COMPLETED or not answer.artifacts:
        return ()
    message = answer.status.message
    if message is None:
        return ()
    closing, text = message.text.strip(), answer.text.strip()
    if closing == text or (closing.endswith("…") and text.startswith(closing[:-1])):
        return tuple(part for part in message.parts if part.text is None)
    return message.parts


def _json_text(parts: tuple[Part, ...]) -> str:
    return join_paragraphs([msgspec.json.encode(part.data).decode() for part in parts if part.kind == "data"])
