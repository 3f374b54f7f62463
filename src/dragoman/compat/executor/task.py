"""A task of A2A 0.3: its states, its status, its results."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from msgspec import structs

from dragoman.clock import SystemClock, timestamp
from dragoman.compat.executor.ids import new_id
from dragoman.compat.executor.message import Message
from dragoman.compat.executor.parts import DataPart, FilePart, TextPart
from dragoman.compat.executor.wire import Wire, read, spelled
from dragoman.dialects.spelling import WORDS, state_of
from dragoman.dialects.v03.dialect import V03_RPC
from dragoman.model.state import State

if TYPE_CHECKING:
    from dragoman.clock import Clock
    from dragoman.model.task import Task as ModelTask


class TaskState(StrEnum):
    """The ten states, spelled as the wire spells them. Any known spelling is read; a foreign word is `unknown`."""

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
        """True when nothing can change any more."""
        return self.to_model().final

    def to_model(self) -> State:
        """The state of A2A 1.0, which has one name for `unknown` and `unspecified`."""
        return state_of(self.value) or State.UNSPECIFIED

    @classmethod
    def from_model(cls, state: State) -> TaskState:
        """Spell a state of A2A 1.0."""
        return cls(WORDS[state])


class TaskStatus(Wire, frozen=True):
    """Where a task stands, since when, and what the agent says about it."""

    state: TaskState
    message: Message | None = None
    timestamp: str | None = None


class Artifact(Wire, frozen=True):
    """A result of a task."""

    artifact_id: str
    parts: tuple[TextPart | FilePart | DataPart, ...]
    name: str | None = None
    description: str | None = None
    extensions: tuple[str, ...] = ()
    metadata: dict[str, Any] | None = None


class Task(Wire, frozen=True, tag_field="kind", tag="task"):
    """A unit of work."""

    id: str
    context_id: str
    status: TaskStatus
    artifacts: tuple[Artifact, ...] = ()
    history: tuple[Message, ...] = ()
    metadata: dict[str, Any] | None = None

    @classmethod
    def new_submitted(cls, message: Message, *, clock: Clock | None = None) -> Task:
        """A task that begins with a message: submitted now, the message its whole history."""
        task_id = message.task_id or new_id()
        context_id = message.context_id or new_id()
        status = TaskStatus(TaskState.SUBMITTED, timestamp=timestamp((clock or SystemClock()).now()))
        said = structs.replace(message, task_id=task_id, context_id=context_id)
        return cls(task_id, context_id, status, history=(said,))

    def to_model(self) -> ModelTask:
        """The task in the words of A2A 1.0. Raises BadResponse when a file is not base64."""
        return V03_RPC.task_from(self.to_map())

    @classmethod
    def from_model(cls, task: ModelTask) -> Task:
        """Spell a task of A2A 1.0."""
        return read(cls, spelled(task))
