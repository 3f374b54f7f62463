"""Task events and the envelope in which streams carry them."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from dragoman.model.message import Message, text_only
from dragoman.model.task import Artifact, Task, TaskStatus


class StatusUpdate(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The event of a new task status."""

    task_id: str
    context_id: str
    status: TaskStatus
    metadata: dict[str, Any] | None = None
    generation: int | None = None


class ArtifactUpdate(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The event of an artifact that is new, replaced (`append` false) or extended (`append` true)."""

    task_id: str
    context_id: str
    artifact: Artifact
    append: bool = False
    last_chunk: bool = False
    metadata: dict[str, Any] | None = None
    generation: int | None = None


def with_text_only(event: StatusUpdate | ArtifactUpdate) -> StatusUpdate | ArtifactUpdate:
    """Return an event whose data parts are JSON text, for callers who read nothing else."""
    if isinstance(event, ArtifactUpdate):
        parts = text_only(event.artifact.parts)
        return event if parts is None else replace(event, artifact=replace(event.artifact, parts=parts))
    message = event.status.message
    parts = None if message is None else text_only(message.parts)
    if message is None or parts is None:
        return event
    return replace(event, status=replace(event.status, message=replace(message, parts=parts)))


class StreamResponse(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The envelope of a stream event: exactly one of its members is set."""

    task: Task | None = None
    message: Message | None = None
    status_update: StatusUpdate | None = None
    artifact_update: ArtifactUpdate | None = None

    @property
    def payload(self) -> Task | Message | StatusUpdate | ArtifactUpdate:
        """The member that is set. Raises ValueError when none is."""
        payload = self.status_update or self.artifact_update or self.task or self.message
        if payload is None:
            raise ValueError("a stream response holds one of task, message, statusUpdate and artifactUpdate")
        return payload


def response_of(event: Task | Message | StatusUpdate | ArtifactUpdate) -> StreamResponse:
    """Wrap an event in the stream envelope."""
    if isinstance(event, StatusUpdate):
        return StreamResponse(status_update=event)
    if isinstance(event, ArtifactUpdate):
        return StreamResponse(artifact_update=event)
    if isinstance(event, Task):
        return StreamResponse(task=event)
    return StreamResponse(message=event)
