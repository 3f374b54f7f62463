"""Journal records, and the fold of records into a task."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field, structs

from dragoman.model.event import ArtifactUpdate, StatusUpdate, StreamResponse
from dragoman.model.json import decode_event, encode
from dragoman.model.message import Message
from dragoman.model.part import Part, is_plain_text
from dragoman.model.state import Role, State
from dragoman.model.task import Artifact, Task, TaskStatus

if TYPE_CHECKING:
    from collections.abc import Iterable

_LARGE = 65_536
MAX_PROGRESS = 50
"""How many progress messages the history of a task keeps: the last ones."""


class Record(Struct, weakref=False):
    """An event with its generation and its canonical bytes, which are encoded once and forwarded unchanged.

    A record read from a store has only bytes and is decoded on demand. `encodings` is a cache for transports, so that
    an event is encoded once for all subscribers of one dialect.
    """

    generation: int
    body: bytes
    decoded: StreamResponse | None = None
    encodings: dict[object, bytes] = field(default_factory=dict[object, bytes])

    @classmethod
    def of(cls, generation: int, event: Task | Message | StatusUpdate | ArtifactUpdate) -> Record:
        """Encode an event, for the store and for every subscriber. Canonical bytes contain no generation."""
        if isinstance(event, StatusUpdate):
            response = StreamResponse(status_update=event)
        elif isinstance(event, ArtifactUpdate):
            response = StreamResponse(artifact_update=event)
        elif isinstance(event, Task):
            response = StreamResponse(event if event.generation is None else structs.replace(event, generation=None))
        else:
            response = StreamResponse(message=event)
        body = encode(response)
        if len(body) > _LARGE:  # the encoder's buffer may be twice as large as its content
            body = bytes(memoryview(body))
        return cls(generation, body, response)

    @property
    def response(self) -> StreamResponse:
        """The event in its stream envelope."""
        if self.decoded is None:
            self.decoded = decode_event(self.body)
        return self.decoded

    @property
    def event(self) -> Task | Message | StatusUpdate | ArtifactUpdate:
        """The event itself."""
        return self.response.payload

    @property
    def state(self) -> State | None:
        """The state this event sets; None for an event that sets none."""
        # Most records are artifact chunks: recognize them without decoding.
        if self.body.startswith(b'{"artifactUpdate"'):
            return None
        event = self.event
        if isinstance(event, (StatusUpdate, Task)):
            return event.status.state
        return None


class _StreamedText:
    """A plain text part that was streamed in chunks, which cost the same however long it is."""

    __slots__ = ("_buffer",)

    def __init__(self, part: Part) -> None:
        self._buffer = StringIO()
        self.add(part)

    @property
    def text(self) -> str:
        return self._buffer.getvalue()

    def add(self, part: Part) -> None:
        self._buffer.write(part.text or "")


class Folding:
    """A task being built from its events. Each event costs the same, however long the task is."""

    __slots__ = (
        "_appended",
        "_artifacts",
        "_kept",
        "_oldest_progress",
        "_progress_count",
        "context_id",
        "generation",
        "history",
        "id",
        "metadata",
        "status",
    )

    def __init__(self, task: Task, generation: int = 1) -> None:
        self.id = task.id
        self.context_id = task.context_id
        self.status: TaskStatus = task.status
        self.history: list[Message] = list(task.history)
        self.metadata: dict[str, Any] | None = task.metadata
        self.generation = generation
        self._artifacts: dict[str, Artifact] = {}
        for artifact in task.artifacts:
            self._artifacts[artifact.artifact_id] = artifact
        # The parts of artifacts that were appended to.
        self._appended: dict[str, list[Part | _StreamedText]] = {}
        # True when the message of the current status is in the history; False when that is not certain.
        self._kept = False
        # The progress messages in the history, counted with the first new one; no earlier index holds one.
        self._progress_count: int | None = None
        self._oldest_progress = 0

    def apply(self, event: StatusUpdate | ArtifactUpdate) -> None:
        """Apply the next event.

        Raises:
            ValueError: the task has ended.
        """
        status = self.status
        if status.state.final:
            raise ValueError(f"task {self.id} is {status.state}: nothing changes after that")
        if isinstance(event, StatusUpdate):
            # Some servers repeat a status.
            if status.message is not None and status.message != event.status.message:
                self._keep(status.message)
            self.status = event.status
            self._kept = False
        elif event.append and event.artifact.artifact_id in self._artifacts:
            self._append(event.artifact)
        else:
            artifact_id = event.artifact.artifact_id
            self._artifacts[artifact_id] = event.artifact
            if self._appended:
                self._appended.pop(artifact_id, None)
        self.generation += 1

    def _keep(self, message: Message) -> None:
        """Add the message of the current status to the history, where callers who poll find it, unless it is there."""
        if self._kept:
            return
        self._kept = True
        # It is there if a message of the caller followed it; some servers have it there from the beginning.
        last = next((each for each in reversed(self.history) if each.role is Role.AGENT), None)
        if message != last:
            self._add(message)

    def _append(self, artifact: Artifact) -> None:
        key = artifact.artifact_id
        parts = self._appended.get(key)
        if parts is None:
            parts = self._appended[key] = list(self._artifacts[key].parts)
        for part in artifact.parts:
            _append(parts, part)

    def add_message(self, message: Message) -> None:
        """Append a message of the caller to the history, without counting a generation.

        What the agent wrote before it, the message of the current status, goes first.
        """
        if self.status.message is not None and message.role is not Role.AGENT:
            self._keep(self.status.message)
        self._add(message)

    def _add(self, message: Message) -> None:
        """Append a message to the history. Of progress only the last messages stay."""
        history = self.history
        history.append(message)
        if not message.is_progress:
            return
        count = self._progress_count
        count = sum(each.is_progress for each in history) if count is None else count + 1
        while count > MAX_PROGRESS:
            index = self._oldest_progress
            while not history[index].is_progress:
                index += 1
            del history[index]
            self._oldest_progress = index
            count -= 1
        self._progress_count = count

    def artifact_count(self) -> int:
        """The number of artifacts so far."""
        return len(self._artifacts)

    def artifact_ids(self) -> tuple[str, ...]:
        """The ids of the artifacts so far, in the order they appeared."""
        return tuple(self._artifacts)

    def has_artifact(self, artifact_id: str) -> bool:
        """True when there is such an artifact; unlike `artifact`, this copies no text."""
        return artifact_id in self._artifacts

    def artifact(self, artifact_id: str) -> Artifact | None:
        """An artifact as it is so far, or None when there is no such artifact. Adjacent chunks of text are one part."""
        artifact, appended = self._artifacts.get(artifact_id), self._appended.get(artifact_id)
        if artifact is None or appended is None:
            return artifact
        return structs.replace(artifact, parts=_parts(appended))

    def artifact_text(self, artifact_id: str) -> str | None:
        """The text of an artifact so far, or None when there is no such artifact."""
        artifact = self._artifacts.get(artifact_id)
        if artifact is None:
            return None
        parts = self._appended.get(artifact_id) or artifact.parts
        return "".join(part.text for part in parts if part.text is not None)

    def task(self) -> Task:
        """Build the task from the events so far."""
        artifacts = self._artifacts
        if self._appended:
            appended = {
                key: structs.replace(artifacts[key], parts=_parts(parts)) for key, parts in self._appended.items()
            }
            artifacts = {**artifacts, **appended}
        return Task(
            self.id,
            self.context_id,
            self.status,
            tuple(artifacts.values()),
            tuple(self.history),
            self.metadata,
            self.generation,
        )


def _append(parts: list[Part | _StreamedText], part: Part) -> None:
    last = parts[-1] if parts else None
    if last is None or not is_plain_text(part):
        parts.append(part)
    elif isinstance(last, _StreamedText):
        last.add(part)
    elif is_plain_text(last):
        parts[-1] = text = _StreamedText(last)
        text.add(part)
    elif part.text:  # an empty chunk only closes the artifact
        parts.append(part)


def _parts(parts: list[Part | _StreamedText]) -> tuple[Part, ...]:
    return tuple([part if isinstance(part, Part) else Part(text=part.text) for part in parts])


def fold(task: Task, events: Iterable[StatusUpdate | ArtifactUpdate]) -> Task:
    """Fold a task's first record and the events after it into the task.

    Raises:
        ValueError: an event follows a final state.
    """
    folding = Folding(task)
    for event in events:
        folding.apply(event)
    return folding.task()
