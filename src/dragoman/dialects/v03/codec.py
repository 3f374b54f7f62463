"""Converts between the model and the objects of 0.3, and the parts and webhooks of every version before 1.0.

The objects of 0.3 over REST have the same fields: `v03_proto` has a `Codec03` with other types.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, cast

from msgspec import UNSET

from dragoman.dialects.reading.invalid import missing_field, quoted
from dragoman.dialects.spelling import ROLE_WORDS, WORDS, role_of, state_of
from dragoman.dialects.table import ADK_EXTENSION
from dragoman.dialects.v03.types import (
    Artifact03,
    ArtifactUpdate03,
    Auth03,
    File03,
    Message03,
    Part03,
    Push03,
    Status03,
    StatusUpdate03,
    Task03,
)
from dragoman.model.error import InvalidParams
from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.model.message import Message
from dragoman.model.operation import AuthenticationInfo, TaskPushNotificationConfig
from dragoman.model.part import Part
from dragoman.model.state import Role, State
from dragoman.model.task import Artifact, Task, TaskStatus

Event = Task | Message | StatusUpdate | ArtifactUpdate

_WRAPPED = "data_part_compat"
_MEDIA_TYPE = "mediaType"
_FILENAME = "filename"
_PREFERRED_SCHEMES = ("bearer", "basic")


# -- parts -------------------------------------------------------------------------------------------------------------


def pack(part: Part) -> dict[str, Any] | None:
    """Put the media type and file name of a text or data part into its metadata, unless it has those keys."""
    if part.media_type is None and part.filename is None:
        return part.metadata
    metadata = dict(part.metadata or {})
    if part.media_type is not None:
        metadata.setdefault(_MEDIA_TYPE, part.media_type)
    if part.filename is not None:
        metadata.setdefault(_FILENAME, part.filename)
    return metadata


def _unpack(metadata: dict[str, Any] | None) -> tuple[dict[str, Any] | None, str | None, str | None]:
    """Undo `pack`: return the metadata without media type and file name, and these two."""
    if not metadata or (_MEDIA_TYPE not in metadata and _FILENAME not in metadata):
        return metadata, None, None
    rest = dict(metadata)
    media_type, filename = _text(rest, _MEDIA_TYPE), _text(rest, _FILENAME)
    return rest or None, media_type, filename


def wrap(data: Any, metadata: dict[str, Any] | None) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Wrap data that is not an object in one, and mark it in the metadata."""
    if isinstance(data, dict):
        return cast("dict[str, Any]", data), metadata
    return {"value": data}, {**(metadata or {}), _WRAPPED: True}


def _unwrap(data: Any, metadata: dict[str, Any] | None) -> tuple[Any, dict[str, Any] | None]:
    """Undo `wrap`; other data is unchanged."""
    if not metadata or metadata.get(_WRAPPED) is not True or not isinstance(data, dict):
        return data, metadata
    wrapper = cast("dict[str, Any]", data)
    if wrapper.keys() != {"value"}:
        return wrapper, metadata
    return wrapper["value"], {key: value for key, value in metadata.items() if key != _WRAPPED} or None


def _text(metadata: dict[str, Any], key: str) -> str | None:
    if not isinstance(metadata.get(key), str):
        return None
    return cast("str", metadata.pop(key))


Tag = Literal["kind", "type"]
_KINDS = ("text", "file", "data")


def part_to_03(part: Part, tag: Tag) -> Part03:
    """Convert a part. 0.1 clients compare texts as they are, so only 0.3 gets the media type in the metadata."""
    kind = part.kind
    if kind in ("raw", "url"):
        file = File03(part.filename, part.media_type, part.raw, part.url)
        return _tagged(tag, "file", file=file, metadata=part.metadata)
    metadata = pack(part) if tag == "kind" else part.metadata
    if kind == "text":
        return _tagged(tag, "text", text=part.text, metadata=metadata)
    data, metadata = wrap(part.data, metadata)
    return _tagged(tag, "data", data=data, metadata=metadata)


def part_from_03(part: Part03, at: str) -> Part:
    """Convert a part at the path `at`.

    Raises:
        InvalidParams: its kind is unknown or ambiguous, or its content is missing.
    """
    kind = _kind(part, at)
    if kind == "file":
        return _file(part, at)
    if kind == "text":
        if part.text is None:
            raise missing_field(f"{at}.text")
        return text_part(part.text, part.metadata)
    if part.data is UNSET:
        raise missing_field(f"{at}.data")
    return data_part(part.data, part.metadata)


def text_part(text: str, metadata: dict[str, Any] | None) -> Part:
    """Build a text part, with the media type and file name from its metadata."""
    metadata, media_type, filename = _unpack(metadata)
    return Part(text=text, filename=filename, media_type=media_type, metadata=metadata)


def data_part(data: Any, metadata: dict[str, Any] | None) -> Part:
    """Build a data part, unwrapped, with the media type and file name from its metadata."""
    data, metadata = _unwrap(data, metadata)
    metadata, media_type, filename = _unpack(metadata)
    return Part(data=data, filename=filename, media_type=media_type, metadata=metadata)


def parts_from_03(parts: tuple[Part03, ...], at: str) -> tuple[Part, ...]:
    """Convert parts.

    Raises:
        InvalidParams: as `part_from_03`.
    """
    return tuple([part_from_03(part, f"{at}[{index}]") for index, part in enumerate(parts)])


def _kind(part: Part03, at: str) -> str:
    tag: Tag = "kind" if part.kind is not None else "type"
    declared = part.kind if part.kind is not None else part.type
    if declared is not None:
        if declared not in _KINDS:
            raise InvalidParams(
                f"{at}.{tag} cannot be {quoted(declared)}: it must be text, file or data", field=f"{at}.{tag}"
            )
        return declared
    present = (
        (["text"] if part.text is not None else [])
        + (["file"] if part.file is not None else [])
        + (["data"] if part.data is not UNSET and part.data is not None else [])
    )
    if len(present) != 1:
        raise InvalidParams(f"{at}.kind is required: it must be text, file or data", field=f"{at}.kind")
    return present[0]


def _file(part: Part03, at: str) -> Part:
    file = part.file
    if file is None:
        raise missing_field(f"{at}.file")
    if file.content is not None and not file.uri:
        return Part(raw=file.content, filename=file.name, media_type=file.mime_type, metadata=part.metadata)
    if file.uri and file.content is None:
        return Part(url=file.uri, filename=file.name, media_type=file.mime_type, metadata=part.metadata)
    raise InvalidParams(f"{at}.file must hold either bytes or uri", field=f"{at}.file")


def _tagged(
    tag: Tag,
    kind: str,
    *,
    text: str | None = None,
    file: File03 | None = None,
    data: Any = UNSET,
    metadata: dict[str, Any] | None = None,
) -> Part03:
    return Part03(kind if tag == "kind" else None, kind if tag == "type" else None, text, file, data, metadata)


# -- webhooks ----------------------------------------------------------------------------------------------------------


def push_to_03(config: TaskPushNotificationConfig) -> Push03:
    """Convert a webhook."""
    authentication = config.authentication
    auth = None if authentication is None else Auth03((authentication.scheme,), authentication.credentials)
    return Push03(config.url, config.id, config.token, auth)


def push_from_03(push: Push03, at: str, task_id: str | None = None) -> TaskPushNotificationConfig:
    """Convert a webhook at the path `at`; of several schemes Bearer or Basic is preferred.

    Raises:
        InvalidParams: it has no URL.
    """
    if not push.url:
        raise missing_field(f"{at}.url")
    return TaskPushNotificationConfig(
        url=push.url,
        id=push.id or None,
        task_id=task_id,
        token=push.token,
        authentication=None if push.authentication is None else _auth(push.authentication),
    )


def _auth(auth: Auth03) -> AuthenticationInfo | None:
    preferred = [scheme for scheme in auth.schemes if scheme.lower() in _PREFERRED_SCHEMES]
    scheme = (preferred or list(auth.schemes) or ["Bearer"])[0]
    return AuthenticationInfo(scheme, auth.credentials) if auth.schemes or auth.credentials else None


def _metadata_of_failed(task: Task) -> dict[str, Any] | None:
    """Return metadata without ADK's mark if only the status says why the task has failed: there ADK 1 does not look."""
    if task.artifacts or not task.metadata or ADK_EXTENSION not in task.metadata:
        return task.metadata
    return {key: value for key, value in task.metadata.items() if key != ADK_EXTENSION} or None


# -- tasks, messages and events ----------------------------------------------------------------------------------------


class Codec03:
    """Converts tasks, messages and updates of 0.3; a subclass may have other types with fields of the same names."""

    status: ClassVar[type[Any]] = Status03
    artifact: ClassVar[type[Any]] = Artifact03
    task: ClassVar[type[Any]] = Task03
    status_update: ClassVar[type[Any]] = StatusUpdate03
    artifact_update: ClassVar[type[Any]] = ArtifactUpdate03
    words: ClassVar[dict[State, str]] = WORDS

    def part_to(self, part: Part) -> Any:
        """Convert a part to the wire."""
        return part_to_03(part, "kind")

    def part_from(self, part: Any, at: str) -> Part:
        """Convert a part at the path `at`. Raises InvalidParams."""
        return part_from_03(part, at)

    def parts_from(self, parts: tuple[Any, ...], at: str) -> tuple[Part, ...]:
        """Convert parts. Raises InvalidParams."""
        return tuple([self.part_from(part, f"{at}[{index}]") for index, part in enumerate(parts)])

    def message_to(self, message: Message) -> Any:
        """Convert a message to the wire."""
        return Message03(
            message_id=message.message_id,
            role=ROLE_WORDS[message.role],
            parts=tuple([self.part_to(part) for part in message.parts]),
            context_id=message.context_id,
            task_id=message.task_id,
            reference_task_ids=message.reference_task_ids,
            extensions=message.extensions,
            metadata=message.metadata,
        )

    def message_from(self, message: Any, at: str) -> Message:
        """Convert a message at the path `at`; an unknown role becomes the user's.

        Raises:
            InvalidParams: a part is invalid.
        """
        return Message(
            message_id=message.message_id,
            role=role_of(message.role) or Role.USER,
            parts=self.parts_from(message.parts, f"{at}.parts"),
            context_id=message.context_id,
            task_id=message.task_id,
            metadata=message.metadata,
            extensions=message.extensions,
            reference_task_ids=message.reference_task_ids,
        )

    def task_to(self, task: Task) -> Any:
        """Convert a task to the wire."""
        return self.task(
            id=task.id,
            context_id=task.context_id,
            status=self._status_to(task.status),
            artifacts=tuple([self._artifact_to(artifact) for artifact in task.artifacts]),
            history=tuple([self.message_to(message) for message in task.history]),
            metadata=task.metadata if task.status.state is not State.FAILED else _metadata_of_failed(task),
        )

    def task_from(self, task: Any) -> Task:
        """Convert a task from the wire. Raises InvalidParams when a part is invalid."""
        status = self._status_from(task.status)
        artifacts = [self._artifact_from(each, f"artifacts[{index}]") for index, each in enumerate(task.artifacts)]
        history = [self.message_from(each, f"history[{index}]") for index, each in enumerate(task.history)]
        return Task(task.id, task.context_id, status, tuple(artifacts), tuple(history), task.metadata)

    def event_to(self, event: Event, *, last: bool) -> Any:
        """Convert an event to the wire; a status update with `last` is `final`."""
        if isinstance(event, (Task, Message)):
            return self.task_to(event) if isinstance(event, Task) else self.message_to(event)
        ids = event.task_id, event.context_id
        if isinstance(event, StatusUpdate):
            return self.status_update(*ids, self._status_to(event.status), last, event.metadata)
        artifact = self._artifact_to(event.artifact)
        return self.artifact_update(*ids, artifact, event.append, event.last_chunk, event.metadata)

    def event_from(self, event: Any, at: str = "artifact") -> Event:
        """Convert an event whose artifact is at the path `at`. Raises InvalidParams when a part is invalid."""
        if isinstance(event, self.status_update):
            return StatusUpdate(event.task_id, event.context_id, self._status_from(event.status), event.metadata)
        if isinstance(event, self.artifact_update):
            artifact = self._artifact_from(event.artifact, at)
            ids = event.task_id, event.context_id
            return ArtifactUpdate(*ids, artifact, event.append, event.last_chunk, event.metadata)
        return self.task_from(event) if isinstance(event, self.task) else self.message_from(event, "message")

    def _status_to(self, status: TaskStatus) -> Any:
        message = None if status.message is None else self.message_to(status.message)
        return self.status(self.words[status.state], message, status.timestamp)

    def _status_from(self, status: Any) -> TaskStatus:
        message = None if status.message is None else self.message_from(status.message, "status.message")
        return TaskStatus(state_of(status.state) or State.UNSPECIFIED, message, status.timestamp)

    def _artifact_to(self, artifact: Artifact) -> Any:
        return self.artifact(
            artifact_id=artifact.artifact_id,
            parts=tuple([self.part_to(part) for part in artifact.parts]),
            name=artifact.name,
            description=artifact.description,
            extensions=artifact.extensions,
            metadata=artifact.metadata,
        )

    def _artifact_from(self, artifact: Any, at: str) -> Artifact:
        return Artifact(
            artifact_id=artifact.artifact_id,
            parts=self.parts_from(artifact.parts, f"{at}.parts"),
            name=artifact.name,
            description=artifact.description,
            metadata=artifact.metadata,
            extensions=artifact.extensions,
        )


CODEC = Codec03()
message_to_03 = CODEC.message_to
task_to_03 = CODEC.task_to
event_to_03 = CODEC.event_to
