"""Converts between the model and the objects of 0.1.

Messages and artifacts of 0.1 have no ids. They get one from their index when read, so that reading the same task
twice gives the same ids.
"""

from __future__ import annotations

from uuid import uuid4

from dragoman.dialects.spelling import LEGACY_WORDS, ROLE_WORDS, role_of, state_of
from dragoman.dialects.v01.types import Artifact01, Event01, Message01, Status01, Task01
from dragoman.dialects.v03.codec import part_to_03, parts_from_03
from dragoman.model.error import InvalidParams
from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.model.message import Message
from dragoman.model.state import Role, State
from dragoman.model.task import Artifact, Task, TaskStatus


def message_to_01(message: Message) -> Message01:
    """Convert a message; 0.1 has only role, parts and metadata."""
    return Message01(
        role=ROLE_WORDS[message.role],
        parts=tuple([part_to_03(part, "type") for part in message.parts]),
        metadata=message.metadata,
    )


def message_from_01(message: Message01, at: str, message_id: str) -> Message:
    """Convert a message at the path `at`; `message_id` is for one without an id.

    Raises:
        InvalidParams: a part is invalid.
    """
    return Message(
        message_id=message.message_id or message_id,
        role=role_of(message.role) or Role.USER,
        parts=parts_from_03(message.parts, f"{at}.parts"),
        metadata=message.metadata,
    )


def task_to_01(task: Task) -> Task01:
    """Convert a task."""
    return Task01(
        id=task.id,
        session_id=task.context_id or None,
        status=status_to_01(task.status),
        history=tuple([message_to_01(message) for message in task.history]),
        artifacts=tuple([artifact_to_01(each, index) for index, each in enumerate(task.artifacts)]),
        metadata=task.metadata,
    )


def reply_to_01(message: Message) -> Task01:
    """Convert a message result, which 0.1 does not have, to a task that is completed by it."""
    return Task01(
        id=message.task_id or str(uuid4()),
        session_id=message.context_id,
        status=Status01(LEGACY_WORDS[State.COMPLETED], message_to_01(message)),
        history=(),
        artifacts=(),
    )


def task_from_01(task: Task01) -> Task:
    """Convert a task.

    Raises:
        InvalidParams: a part is invalid.
    """
    status = status_from_01(task.status, task.id)
    artifacts = [
        artifact_from_01(each, f"artifacts[{index}]", each.index or index) for index, each in enumerate(task.artifacts)
    ]
    history = [
        message_from_01(each, f"history[{index}]", f"{task.id}-message-{index}")
        for index, each in enumerate(task.history)
    ]
    return Task(task.id, task.session_id or "", status, tuple(artifacts), tuple(history), task.metadata)


def event_from_01(event: Event01) -> StatusUpdate | ArtifactUpdate:
    """Convert an event; it has no context id.

    Raises:
        InvalidParams: it holds neither a status nor an artifact, or a part is invalid.
    """
    if event.status is not None:
        return StatusUpdate(event.id, "", status_from_01(event.status, event.id), event.metadata)
    if event.artifact is None:
        raise InvalidParams("status or artifact must be there", field="status")
    artifact = artifact_from_01(event.artifact, "artifact", event.artifact.index)
    return ArtifactUpdate(event.id, "", artifact, event.artifact.append, event.artifact.last_chunk, event.metadata)


def status_to_01(status: TaskStatus) -> Status01:
    """Convert a status; rejected becomes failed, and auth-required input-required."""
    message = None if status.message is None else message_to_01(status.message)
    return Status01(LEGACY_WORDS[status.state], message, status.timestamp)


def status_from_01(status: Status01, task_id: str) -> TaskStatus:
    """Convert the status of a task; an unknown state becomes unspecified.

    Raises:
        InvalidParams: a part of its message is invalid.
    """
    # Messages of 0.1 have no id: the time tells one question of a task from the next.
    named = f"{task_id}-status{status.timestamp or ''}"
    message = None if status.message is None else message_from_01(status.message, "status.message", named)
    return TaskStatus(state_of(status.state) or State.UNSPECIFIED, message, status.timestamp)


def artifact_to_01(artifact: Artifact, index: int, *, append: bool = False, last_chunk: bool = False) -> Artifact01:
    """Convert an artifact; `index` is its position among those of the task."""
    return Artifact01(
        name=artifact.name,
        description=artifact.description,
        parts=tuple([part_to_03(part, "type") for part in artifact.parts]),
        index=index,
        append=append,
        last_chunk=last_chunk,
        metadata=artifact.metadata,
    )


def artifact_from_01(artifact: Artifact01, at: str, index: int) -> Artifact:
    """Convert an artifact at the path `at`.

    Raises:
        InvalidParams: a part is invalid.
    """
    return Artifact(
        artifact_id=f"artifact-{index}",
        parts=parts_from_03(artifact.parts, f"{at}.parts"),
        name=artifact.name,
        description=artifact.description,
        metadata=artifact.metadata,
    )
