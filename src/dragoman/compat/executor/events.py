"""What an executor may enqueue and a stream may carry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from dragoman.compat.executor.message import Message
from dragoman.compat.executor.task import Artifact, Task, TaskStatus
from dragoman.compat.executor.wire import Wire, read, spelled
from dragoman.dialects.v03.dialect import V03_RPC
from dragoman.model.error import BadResponse
from dragoman.model.event import ArtifactUpdate, StatusUpdate

if TYPE_CHECKING:
    from dragoman.compat.executor.result import Failure, Ok


class TaskStatusUpdateEvent(Wire, frozen=True, omit_defaults=False, tag_field="kind", tag="status-update"):
    """The task's status changed; `final` is always said."""

    task_id: str
    context_id: str
    status: TaskStatus
    final: bool = False
    metadata: dict[str, Any] | None = None

    def to_model(self) -> StatusUpdate:
        """The event in the words of A2A 1.0, which has no `final`. Raises BadResponse when a file is not base64."""
        event = V03_RPC.event_from(self.to_map()).payload
        if not isinstance(event, StatusUpdate):
            raise BadResponse("this is not a status update")
        return event

    @classmethod
    def from_model(cls, event: StatusUpdate, *, final: bool | None = None) -> TaskStatusUpdateEvent:
        """Spell an event of A2A 1.0; without `final`, a terminal state is final."""
        return read(cls, spelled(event, final=event.status.state.final if final is None else final))


class TaskArtifactUpdateEvent(Wire, frozen=True, tag_field="kind", tag="artifact-update"):
    """An artifact is new, replaced or longer; flags that are false are not said."""

    task_id: str
    context_id: str
    artifact: Artifact
    append: bool = False
    last_chunk: bool = False
    metadata: dict[str, Any] | None = None

    def to_model(self) -> ArtifactUpdate:
        """The event in the words of A2A 1.0. Raises BadResponse when a file is not base64."""
        event = V03_RPC.event_from(self.to_map()).payload
        if not isinstance(event, ArtifactUpdate):
            raise BadResponse("this is not an artifact update")
        return event

    @classmethod
    def from_model(cls, event: ArtifactUpdate) -> TaskArtifactUpdateEvent:
        """Spell an event of A2A 1.0."""
        return read(cls, spelled(event))


Event: TypeAlias = Message | Task | TaskStatusUpdateEvent | TaskArtifactUpdateEvent
_KINDS: dict[str, type[Event]] = {
    "message": Message,
    "task": Task,
    "status-update": TaskStatusUpdateEvent,
    "artifact-update": TaskArtifactUpdateEvent,
}


def event_from_map(map: Mapping[str, Any]) -> Ok[Event] | Failure:
    """Read an event by its `kind`. A failure says which kind is unknown or which field is wrong. Raises nothing."""
    kind = map.get("kind")
    if kind is None:
        return ("error", "missing event kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        return ("error", f"unknown event kind: {kind}")
    return _KINDS[kind].from_map(map)
