"""Between the model and the objects of 0.3 REST."""

from __future__ import annotations

from typing import Any, cast

from msgspec import UNSET

from dragoman.dialects.spelling import PROTO03_WORDS, role_of, state_of
from dragoman.dialects.v03.parts import pack, unpack, unwrap, wrap
from dragoman.dialects.v03_proto.types import (
    ProtoArtifact,
    ProtoArtifactUpdate,
    ProtoFile,
    ProtoMessage,
    ProtoPart,
    ProtoResponse,
    ProtoStatus,
    ProtoStatusUpdate,
    ProtoTask,
)
from dragoman.model.error import InvalidParams
from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.model.message import Message
from dragoman.model.part import Part
from dragoman.model.state import Role, State
from dragoman.model.task import Artifact, Task, TaskStatus

Event = Task | Message | StatusUpdate | ArtifactUpdate


def message_to_proto(message: Message) -> ProtoMessage:
    """Spell a message; it has no room for referenceTaskIds."""
    return ProtoMessage(
        message_id=message.message_id,
        content=tuple([_part_to(part) for part in message.parts]),
        context_id=message.context_id,
        task_id=message.task_id,
        role=message.role.value,
        metadata=message.metadata,
        extensions=message.extensions,
    )


def message_from_proto(message: ProtoMessage, at: str) -> Message:
    """Read a message that stands at the path `at`; a role nobody knows is the user's.

    Raises:
        InvalidParams: a part is wrong.
    """
    return Message(
        message_id=message.message_id,
        role=role_of(message.role) or Role.USER,
        parts=_parts_from(message.content, f"{at}.content"),
        context_id=message.context_id or None,
        task_id=message.task_id or None,
        metadata=message.metadata,
        extensions=message.extensions,
    )


def task_to_proto(task: Task) -> ProtoTask:
    """Spell a task."""
    return ProtoTask(
        id=task.id,
        context_id=task.context_id,
        status=_status_to(task.status),
        artifacts=tuple([_artifact_to(artifact) for artifact in task.artifacts]),
        history=tuple([message_to_proto(message) for message in task.history]),
        metadata=task.metadata,
    )


def task_from_proto(task: ProtoTask) -> Task:
    """Read a task.

    Raises:
        InvalidParams: a part is wrong.
    """
    return Task(
        id=task.id,
        context_id=task.context_id,
        status=_status_from(task.status),
        artifacts=tuple([_artifact_from(each, f"artifacts[{index}]") for index, each in enumerate(task.artifacts)]),
        history=tuple([message_from_proto(each, f"history[{index}]") for index, each in enumerate(task.history)]),
        metadata=task.metadata,
    )


def event_to_proto(event: Event, *, last: bool) -> ProtoResponse:
    """Spell an event; `final` marks a status that is the last event of its stream."""
    if isinstance(event, StatusUpdate):
        status = _status_to(event.status)
        update = ProtoStatusUpdate(event.task_id, event.context_id, status, last, event.metadata)
        return ProtoResponse(status_update=update)
    if isinstance(event, ArtifactUpdate):
        artifact = _artifact_to(event.artifact)
        return ProtoResponse(
            artifact_update=ProtoArtifactUpdate(
                event.task_id, event.context_id, artifact, event.append, event.last_chunk, event.metadata
            )
        )
    if isinstance(event, Task):
        return ProtoResponse(task=task_to_proto(event))
    return ProtoResponse(message=message_to_proto(event))


def event_from_proto(response: ProtoResponse) -> Event | None:
    """Read an event; None when the envelope is empty.

    Raises:
        InvalidParams: a part is wrong.
    """
    if response.status_update is not None:
        status = response.status_update
        return StatusUpdate(status.task_id, status.context_id, _status_from(status.status), status.metadata)
    if response.artifact_update is not None:
        update = response.artifact_update
        artifact = _artifact_from(update.artifact, "artifactUpdate.artifact")
        return ArtifactUpdate(
            update.task_id, update.context_id, artifact, update.append, update.last_chunk, update.metadata
        )
    if response.task is not None:
        return task_from_proto(response.task)
    return None if response.message is None else message_from_proto(response.message, "message")


def _part_to(part: Part) -> ProtoPart:
    kind = part.kind
    if kind in ("raw", "url"):
        file = ProtoFile(part.url, part.raw, part.media_type, part.filename)
        return ProtoPart(file=file, metadata=part.metadata)
    metadata = pack(part)
    if kind == "text":
        return ProtoPart(text=part.text, metadata=metadata)
    data, metadata = wrap(part.data, metadata)
    return ProtoPart(data={"data": data}, metadata=metadata)


def _parts_from(parts: tuple[ProtoPart, ...], at: str) -> tuple[Part, ...]:
    return tuple([_part_from(part, f"{at}[{index}]") for index, part in enumerate(parts)])


def _part_from(part: ProtoPart, at: str) -> Part:
    has_data = part.data is not UNSET and part.data is not None
    if (part.text is not None) + (part.file is not None) + has_data != 1:
        raise InvalidParams(f"{at} must hold exactly one of text, file and data", field=at)
    if part.file is not None:
        return _file_from(part.file, part, at)
    if part.text is not None:
        metadata, media_type, filename = unpack(part.metadata)
        return Part(text=part.text, filename=filename, media_type=media_type, metadata=metadata)
    data, metadata = unwrap(_held(part), part.metadata)
    metadata, media_type, filename = unpack(metadata)
    return Part(data=data, filename=filename, media_type=media_type, metadata=metadata)


def _held(part: ProtoPart) -> Any:
    if part.kind is not None or not isinstance(part.data, dict):
        return part.data
    wrapper = cast("dict[str, Any]", part.data)
    return wrapper["data"] if wrapper.keys() == {"data"} else wrapper


def _file_from(file: ProtoFile, part: ProtoPart, at: str) -> Part:
    uri = file.file_with_uri or file.uri
    raw = file.content if file.file_with_bytes is None else file.file_with_bytes
    name, mime_type = file.name or None, file.mime_type or None
    if raw is not None and not uri:
        return Part(raw=raw, filename=name, media_type=mime_type, metadata=part.metadata)
    if uri and raw is None:
        return Part(url=uri, filename=name, media_type=mime_type, metadata=part.metadata)
    raise InvalidParams(f"{at}.file must hold either fileWithUri or fileWithBytes", field=f"{at}.file")


def _status_to(status: TaskStatus) -> ProtoStatus:
    message = None if status.message is None else message_to_proto(status.message)
    return ProtoStatus(PROTO03_WORDS[status.state], message, status.timestamp)


def _status_from(status: ProtoStatus) -> TaskStatus:
    message = None if status.message is None else message_from_proto(status.message, "status.message")
    return TaskStatus(state_of(status.state) or State.UNSPECIFIED, message, status.timestamp)


def _artifact_to(artifact: Artifact) -> ProtoArtifact:
    return ProtoArtifact(
        artifact_id=artifact.artifact_id,
        name=artifact.name,
        description=artifact.description,
        parts=tuple([_part_to(part) for part in artifact.parts]),
        metadata=artifact.metadata,
        extensions=artifact.extensions,
    )


def _artifact_from(artifact: ProtoArtifact, at: str) -> Artifact:
    return Artifact(
        artifact_id=artifact.artifact_id,
        parts=_parts_from(artifact.parts, f"{at}.parts"),
        name=artifact.name,
        description=artifact.description,
        metadata=artifact.metadata,
        extensions=artifact.extensions,
    )
