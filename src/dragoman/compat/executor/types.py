"""The objects of A2A 0.3, named as in the source document: parts, messages, tasks, artifacts and update events.

They only define fields. The 0.3 dialect does the encoding and the conversion to A2A 1.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Struct, field, structs

from dragoman.clock import SystemClock, timestamp
from dragoman.compat.executor.ids import new_id
from dragoman.dialects.reading.lenient import LenientReader, from_base64
from dragoman.dialects.spelling import ROLE_WORDS, WORDS, role_of, state_of
from dragoman.dialects.v03.codec import event_to_03, part_from_03, part_to_03
from dragoman.dialects.v03.dialect import V03_RPC
from dragoman.dialects.v03.types import Part03
from dragoman.model.error import InvalidParams
from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.model.json import decode_any, encode
from dragoman.model.message import Message as ModelMessage
from dragoman.model.part import Part as ModelPart
from dragoman.model.state import State
from dragoman.model.task import Task as ModelTask

if TYPE_CHECKING:
    from typing import Self

    from dragoman.clock import Clock
    from dragoman.compat.executor.result import Failure, Ok

W = TypeVar("W", bound="Wire")
M = TypeVar("M", ModelMessage, ModelTask, StatusUpdate, ArtifactUpdate)


class Wire(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """An object of A2A 0.3. Lists may be given as lists, and one that may be missing as None; it is empty then."""

    def __post_init__(self) -> None:
        for name, is_optional in _lists(type(self)):
            value = getattr(self, name)
            if isinstance(value, list):
                structs.force_setattr(self, name, tuple(cast("list[Any]", value)))
            elif value is None and is_optional:
                structs.force_setattr(self, name, ())

    def to_map(self) -> dict[str, Any]:
        """Return the object as JSON values: camelCase keys, `kind` where 0.3 has one, no null members."""
        return {key: value for key, value in _plain(self).items() if value is not None}

    @classmethod
    def from_map(cls, map: Mapping[str, Any]) -> Ok[Self] | Failure:
        """Read the object from JSON values; the reason of a failure names the field. Raises nothing."""
        try:
            return ("ok", read(cls, map))
        except InvalidParams as error:
            return ("error", error.message)


class Event(Wire, Generic[M], frozen=True):
    """An object of A2A 0.3 that an executor may enqueue and a stream may carry: `from_map` reads any of the four."""

    @classmethod
    def from_map(cls, map: Mapping[str, Any]) -> Ok[Self] | Failure:
        """Read the object from JSON values; `Event.from_map` reads it by its `kind`. Raises nothing."""
        return cast("Ok[Self] | Failure", event_from_map(map)) if cls is Event else super().from_map(map)

    def to_model(self) -> M:
        """Convert the object to A2A 1.0. Raises BadResponse when a file is not base64."""
        return cast("M", V03_RPC.read_event(self.to_map()).payload)

    @classmethod
    def from_model(cls, model: M) -> Self:
        """Convert an object of A2A 1.0."""
        return read(cls, _plain(event_to_03(model, last=False)))


def read(cls: type[W], map: Mapping[str, Any]) -> W:
    """Read an object from JSON values.

    Raises:
        InvalidParams: a field is missing or invalid; the text names it.
    """
    return _reader(cls).read_value(dict(map) if isinstance(map, Mapping) else map)  # pyright: ignore[reportUnnecessaryIsInstance]


@cache
def _lists(cls: type[Wire]) -> tuple[tuple[str, bool], ...]:
    """Return the fields that hold lists, and whether each is one that may be missing."""
    fields = structs.fields(cls)
    return tuple((field.name, field.default == ()) for field in fields if "tuple[" in str(field.type))


@cache
def _reader(cls: type[W]) -> LenientReader[W]:
    return LenientReader(cls)


def _plain(value: Struct) -> dict[str, Any]:
    """Return a struct as JSON values: dicts and lists."""
    return decode_any(encode(value))


def _read_kind(noun: str, kinds: Mapping[str, type[W]], map: Mapping[str, Any]) -> Ok[W] | Failure:
    kind = map.get("kind")
    if kind is None:
        return ("error", f"missing {noun} kind")
    if not isinstance(kind, str) or kind not in kinds:
        return ("error", f"unknown {noun} kind: {kind}")
    return kinds[kind].from_map(map)


# -- parts -------------------------------------------------------------------------------------------------------------


class FileBytes(Wire, frozen=True):
    """A file that travels inside the message; `bytes` is base64 text."""

    bytes: str
    name: str | None = None
    mime_type: str | None = None


class FileURI(Wire, frozen=True):
    """A file that is somewhere else."""

    uri: str
    name: str | None = None
    mime_type: str | None = None


if TYPE_CHECKING:
    File: TypeAlias = FileBytes | FileURI
else:
    # msgspec cannot tell two objects without a tag apart: FilePart does.
    File = Any


class _Part(Wire, frozen=True):
    def to_model(self) -> ModelPart:
        """Convert to the part of A2A 1.0. Raises InvalidParams when the bytes of a file are not base64."""
        try:
            return part_from_03(msgspec.convert(self.to_map(), Part03), "part")
        except msgspec.ValidationError as error:
            raise InvalidParams(f"part is wrong: {error}", field="part") from None


class TextPart(_Part, frozen=True, tag_field="kind", tag="text"):
    """Text."""

    text: str
    metadata: dict[str, Any] | None = None


class FilePart(_Part, frozen=True, tag_field="kind", tag="file"):
    """A file: its bytes or its address. One that is read from JSON must have exactly one of them, and valid base64."""

    file: File
    metadata: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        file = cast("object", self.file)
        if isinstance(file, (FileBytes, FileURI)):
            return
        if not isinstance(file, Mapping):
            raise ValueError("file must be an object")
        structs.force_setattr(self, "file", _file(cast("Mapping[str, Any]", file)))


class DataPart(_Part, frozen=True, tag_field="kind", tag="data"):
    """A JSON object."""

    data: dict[str, Any]
    metadata: dict[str, Any] | None = None


Part: TypeAlias = TextPart | FilePart | DataPart
_PARTS: dict[str, type[Part]] = {"text": TextPart, "file": FilePart, "data": DataPart}


def part_from_map(map: Mapping[str, Any]) -> Ok[Part] | Failure:
    """Read a part of any kind. A failure says which kind is unknown or which field is wrong. Raises nothing."""
    return _read_kind("part", _PARTS, map)


def part_from_model(part: ModelPart) -> Part:
    """Convert a part of A2A 1.0; data that is not an object is wrapped into one."""
    values = _plain(part_to_03(part, "kind"))
    return read(_PARTS[values["kind"]], values)


def _file(map: Mapping[str, Any]) -> FileBytes | FileURI:
    content, uri = map.get("bytes"), map.get("uri")
    if (content is None) == (uri is None):
        raise ValueError("a file has either bytes or uri")
    if uri is not None:
        return read(FileURI, map)
    file = read(FileBytes, map)
    from_base64(file.bytes)
    return file


# -- messages and tasks ------------------------------------------------------------------------------------------------


class Role(StrEnum):
    """The sender of a message. The spellings of other versions are read too; any other word is refused."""

    USER = "user"
    AGENT = "agent"

    @classmethod
    def _missing_(cls, value: object) -> Role | None:
        role = role_of(value) if isinstance(value, str) else None
        return None if role is None else cls(ROLE_WORDS[role])


class Message(Event[ModelMessage], frozen=True, tag_field="kind", tag="message"):
    """A message. Its `id` is `messageId` in JSON; one without gets a new one.

    Raises:
        ValueError: there is no such role.
    """

    role: Role
    parts: tuple[TextPart | FilePart | DataPart, ...]
    id: str = field(default_factory=new_id, name="messageId")
    context_id: str | None = None
    task_id: str | None = None
    reference_task_ids: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()
    metadata: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        structs.force_setattr(self, "role", Role(self.role))

    @property
    def text(self) -> str:
        """The text of all parts, joined."""
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))


class TaskState(StrEnum):
    """The ten states as 0.3 spells them. The spellings of other versions are read too; any other word is `unknown`."""

    SUBMITTED = "submitted"
    WORKING = "working"
    INPUT_REQUIRED = "input-required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    REJECTED = "rejected"
    AUTH_REQUIRED = "auth-required"
    UNKNOWN = "unknown"
    UNSPECIFIED = "unspecified"

    @classmethod
    def _missing_(cls, value: object) -> TaskState | None:
        return cls(WORDS[state_of(value) or State.UNSPECIFIED]) if isinstance(value, str) else None

    @property
    def terminal(self) -> bool:
        """True when the task can no longer change."""
        return self.to_model().final

    def to_model(self) -> State:
        """Convert to the state of A2A 1.0, which has one state for `unknown` and `unspecified`."""
        return state_of(self.value) or State.UNSPECIFIED

    @classmethod
    def from_model(cls, state: State) -> TaskState:
        """Convert a state of A2A 1.0."""
        return cls(WORDS[state])


class TaskStatus(Wire, frozen=True):
    """The state of a task, its time, and the agent's message about it.

    The state may also be a word in any of the spellings that `TaskState` reads, `"input_required"` for example.
    """

    state: TaskState
    message: Message | None = None
    timestamp: str | None = None

    def __post_init__(self) -> None:
        structs.force_setattr(self, "state", TaskState(self.state))


class Artifact(Wire, frozen=True):
    """A result of a task. Its `id` is `artifactId` in JSON."""

    id: str = field(name="artifactId")
    parts: tuple[TextPart | FilePart | DataPart, ...]
    name: str | None = None
    description: str | None = None
    extensions: tuple[str, ...] = ()
    metadata: dict[str, Any] | None = None


class Task(Event[ModelTask], frozen=True, tag_field="kind", tag="task"):
    """A unit of work."""

    id: str
    context_id: str
    status: TaskStatus
    artifacts: tuple[Artifact, ...] = ()
    history: tuple[Message, ...] = ()
    metadata: dict[str, Any] | None = None

    @classmethod
    def new_submitted(cls, message: Message, *, clock: Clock | None = None) -> Task:
        """Return a new submitted task with the message as its history. The message's task and context ids are used."""
        task_id = message.task_id or new_id()
        context_id = message.context_id or new_id()
        status = TaskStatus(TaskState.SUBMITTED, timestamp=timestamp((clock or SystemClock()).now()))
        first = structs.replace(message, task_id=task_id, context_id=context_id)
        return cls(task_id, context_id, status, history=(first,))


# -- events ------------------------------------------------------------------------------------------------------------


class TaskStatusUpdateEvent(
    Event[StatusUpdate], frozen=True, omit_defaults=False, tag_field="kind", tag="status-update"
):
    """A change of a task's status. `final` is always in the JSON; A2A 1.0 does not have it."""

    task_id: str
    context_id: str
    status: TaskStatus
    final: bool = False
    metadata: dict[str, Any] | None = None

    @classmethod
    def from_model(cls, model: StatusUpdate, *, final: bool | None = None) -> Self:
        """Convert an event of A2A 1.0; by default `final` is true for a terminal state."""
        return read(cls, _plain(event_to_03(model, last=model.status.state.final if final is None else final)))


class TaskArtifactUpdateEvent(Event[ArtifactUpdate], frozen=True, tag_field="kind", tag="artifact-update"):
    """An artifact that is new, replaced or extended. False flags are left out of the JSON."""

    task_id: str
    context_id: str
    artifact: Artifact
    append: bool = False
    last_chunk: bool = False
    metadata: dict[str, Any] | None = None


AnyEvent: TypeAlias = Message | Task | TaskStatusUpdateEvent | TaskArtifactUpdateEvent
_EVENTS: dict[str, type[AnyEvent]] = {
    "message": Message,
    "task": Task,
    "status-update": TaskStatusUpdateEvent,
    "artifact-update": TaskArtifactUpdateEvent,
}


def event_from_map(map: Mapping[str, Any]) -> Ok[AnyEvent] | Failure:
    """Read an event by its `kind`. A failure says which kind is unknown or which field is wrong. Raises nothing."""
    return _read_kind("event", _EVENTS, map)
