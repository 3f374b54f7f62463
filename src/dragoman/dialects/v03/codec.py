"""Between the model and the objects of 0.3 JSON-RPC."""

from __future__ import annotations

from dragoman.dialects.spelling import ROLE_WORDS, WORDS, role_of, state_of
from dragoman.dialects.v03.parts import part_to_03, parts_from_03
from dragoman.dialects.v03.types import (
    Artifact03,
    ArtifactUpdate03,
    Event03,
    Message03,
    Status03,
    StatusUpdate03,
    Task03,
)
from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.model.message import Message
from dragoman.model.state import Role, State
from dragoman.model.task import Artifact, Task, TaskStatus

Event = Task | Message | StatusUpdate | ArtifactUpdate


def message_to_03(message: Message) -> Message03:
    """Spell a message."""
    return Message03(
        message_id=message.message_id,
        role=ROLE_WORDS[message.role],
        parts=tuple([part_to_03(part, "kind") for part in message.parts]),
        context_id=message.context_id,
        task_id=message.task_id,
        reference_task_ids=message.reference_task_ids,
        extensions=message.extensions,
        metadata=message.metadata,
    )


def message_from_03(message: Message03, at: str) -> Message:
    """Read a message that stands at the path `at`; a role nobody knows is the user's.

    Raises:
        InvalidParams: a part is wrong.
    """
    return Message(
        message_id=message.message_id,
        role=role_of(message.role) or Role.USER,
        parts=parts_from_03(message.parts, f"{at}.parts"),
        context_id=message.context_id,
        task_id=message.task_id,
        metadata=message.metadata,
        extensions=message.extensions,
        reference_task_ids=message.reference_task_ids,
    )


def task_to_03(task: Task) -> Task03:
    """Spell a task."""
    return Task03(
        id=task.id,
        context_id=task.context_id,
        status=_status_to_03(task.status),
        artifacts=tuple([_artifact_to_03(artifact) for artifact in task.artifacts]),
        history=tuple([message_to_03(message) for message in task.history]),
        metadata=task.metadata,
    )


def task_from_03(task: Task03) -> Task:
    """Read a task.

    Raises:
        InvalidParams: a part is wrong.
    """
    return Task(
        id=task.id,
        context_id=task.context_id,
        status=_status_from_03(task.status),
        artifacts=tuple([_artifact_from_03(each, f"artifacts[{index}]") for index, each in enumerate(task.artifacts)]),
        history=tuple([message_from_03(each, f"history[{index}]") for index, each in enumerate(task.history)]),
        metadata=task.metadata,
    )


def event_to_03(event: Event, *, last: bool) -> Event03:
    """Spell an event; `final` marks a status that is the last event of its stream."""
    if isinstance(event, StatusUpdate):
        status = _status_to_03(event.status)
        return StatusUpdate03(event.task_id, event.context_id, status, last, event.metadata)
    if isinstance(event, ArtifactUpdate):
        artifact = _artifact_to_03(event.artifact)
        return ArtifactUpdate03(
            event.task_id, event.context_id, artifact, event.append, event.last_chunk, event.metadata
        )
    return task_to_03(event) if isinstance(event, Task) else message_to_03(event)


def event_from_03(event: Event03) -> Event:
    """Read an event.

    Raises:
        InvalidParams: a part is wrong.
    """
    if isinstance(event, StatusUpdate03):
        return StatusUpdate(event.task_id, event.context_id, _status_from_03(event.status), event.metadata)
    if isinstance(event, ArtifactUpdate03):
        artifact = _artifact_from_03(event.artifact, "artifact")
        return ArtifactUpdate(event.task_id, event.context_id, artifact, event.append, event.last_chunk, event.metadata)
    return task_from_03(event) if isinstance(event, Task03) else message_from_03(event, "message")


def _status_to_03(status: TaskStatus) -> Status03:
    message = None if status.message is None else message_to_03(status.message)
    return Status03(WORDS[status.state], message, status.timestamp)


def _status_from_03(status: Status03) -> TaskStatus:
    message = None if status.message is None else message_from_03(status.message, "status.message")
    return TaskStatus(state_of(status.state) or State.UNSPECIFIED, message, status.timestamp)


def _artifact_to_03(artifact: Artifact) -> Artifact03:
    return Artifact03(
        artifact_id=artifact.artifact_id,
        parts=tuple([part_to_03(part, "kind") for part in artifact.parts]),
        name=artifact.name,
        description=artifact.description,
        extensions=artifact.extensions,
        metadata=artifact.metadata,
    )


def _artifact_from_03(artifact: Artifact03, at: str) -> Artifact:
    return Artifact(
        artifact_id=artifact.artifact_id,
        parts=parts_from_03(artifact.parts, f"{at}.parts"),
        name=artifact.name,
        description=artifact.description,
        metadata=artifact.metadata,
        extensions=artifact.extensions,
    )
