"""The numbered records of a task's journal, and the task they fold to."""

from __future__ import annotations

from array import array
from io import StringIO
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from dragoman.model.event import ArtifactUpdate, StatusUpdate, StreamResponse, response_of
from dragoman.model.json import decode_event, encode
from dragoman.model.message import Message
from dragoman.model.part import Part
from dragoman.model.state import State
from dragoman.model.task import Artifact, Task, TaskStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_LARGE = 65_536


class Record:
    """An event with its number and its canonical bytes, which are made once and forwarded as they are.

    A record read from a store holds only bytes; it is decoded when somebody needs more. `spelled` is for the edge: what
    has been written to one subscriber need not be spelled again for the next.
    """

    __slots__ = ("_response", "body", "generation", "spelled")

    def __init__(self, generation: int, body: bytes, response: StreamResponse | None = None) -> None:
        self.generation = generation
        self.body = body
        self.spelled: dict[object, bytes] = {}
        self._response = response

    @classmethod
    def of(cls, generation: int, event: Task | Message | StatusUpdate | ArtifactUpdate) -> Record:
        """Encode an event once, for the store and for every subscriber; canonical bytes carry no generation."""
        if isinstance(event, Task) and event.generation is not None:
            event = structs.replace(event, generation=None)
        response = response_of(event)
        body = encode(response)
        if len(body) > _LARGE:  # the encoder leaves up to as much again behind it
            body = bytes(memoryview(body))
        return cls(generation, body, response)

    @property
    def response(self) -> StreamResponse:
        """The event in its envelope."""
        if self._response is None:
            self._response = decode_event(self.body)
        return self._response

    @property
    def event(self) -> Task | Message | StatusUpdate | ArtifactUpdate:
        """The event itself."""
        return self.response.payload

    @property
    def state(self) -> State | None:
        """The state this event puts the task in; None when it leaves the state alone."""
        # Most records of a stream are artifact chunks: tell them apart without decoding.
        if self.body.startswith(b'{"artifactUpdate"'):
            return None
        event = self.event
        if isinstance(event, (StatusUpdate, Task)):
            return event.status.state
        return None


class _Texts:
    """Plain texts that follow each other, such as the chunks of a stream: one text and their lengths, and no parts."""

    __slots__ = ("_lengths", "_whole")

    def __init__(self) -> None:
        self._whole = StringIO()
        self._lengths = array("Q")

    @property
    def text(self) -> str:
        return self._whole.getvalue()

    def add(self, part: Part) -> None:
        text = part.text or ""
        self._whole.write(text)
        self._lengths.append(len(text))

    def parts(self) -> Iterator[Part]:
        text, start = self.text, 0
        for length in self._lengths:
            yield Part(text=text[start : start + length])
            start += length


class Folding:
    """A task being assembled. Each event costs the same, however long the task is."""

    __slots__ = ("_artifacts", "_parts", "context_id", "generation", "history", "id", "metadata", "status")

    def __init__(self, task: Task, generation: int = 1) -> None:
        self.id = task.id
        self.context_id = task.context_id
        self.status: TaskStatus = task.status
        self.history: list[Message] = list(task.history)
        self.metadata: dict[str, Any] | None = task.metadata
        self.generation = generation
        self._artifacts: dict[str, Artifact] = {}
        self._parts: dict[str, list[Part | _Texts]] = {}
        for artifact in task.artifacts:
            self._artifacts[artifact.artifact_id] = artifact
            self._parts[artifact.artifact_id] = list(artifact.parts)

    def apply(self, event: StatusUpdate | ArtifactUpdate) -> None:
        """Take the next event.

        Raises:
            ValueError: the task has ended; nothing changes after that.
        """
        if self.status.state.final:
            raise ValueError(f"task {self.id} is {self.status.state}: nothing changes after that")
        if isinstance(event, StatusUpdate):
            self._apply_status(event)
        else:
            self._apply_artifact(event)
        self.generation += 1

    def say(self, message: Message) -> None:
        """Add a message that belongs to the last event; it takes no number of its own."""
        self.history.append(message)

    def artifact_count(self) -> int:
        """How many artifacts there are so far."""
        return len(self._artifacts)

    def artifact_ids(self) -> tuple[str, ...]:
        """The artifacts so far, in the order they appeared."""
        return tuple(self._artifacts)

    def artifact_text(self, artifact_id: str) -> str | None:
        """The text of an artifact so far, or None when there is no such artifact."""
        parts = self._parts.get(artifact_id)
        return None if parts is None else "".join(part.text for part in parts if part.text is not None)

    def task(self) -> Task:
        """The task as it is now."""
        return Task(
            id=self.id,
            context_id=self.context_id,
            status=self.status,
            artifacts=tuple(
                msgspec.structs.replace(artifact, parts=tuple(_all_parts(self._parts[key])))
                for key, artifact in self._artifacts.items()
            ),
            history=tuple(self.history),
            metadata=self.metadata,
            generation=self.generation,
        )

    def _apply_status(self, event: StatusUpdate) -> None:
        # A question is part of the conversation; a progress note is not.
        if self.status.state.waiting and self.status.message is not None:
            self.history.append(self.status.message)
        self.status = event.status

    def _apply_artifact(self, event: ArtifactUpdate) -> None:
        artifact = event.artifact
        known = self._parts.get(artifact.artifact_id)
        if event.append and known is not None:
            for part in artifact.parts:
                _append(known, part)
            return
        self._artifacts[artifact.artifact_id] = artifact
        self._parts[artifact.artifact_id] = list(artifact.parts)


def _append(parts: list[Part | _Texts], part: Part) -> None:
    last = parts[-1] if parts else None
    if last is None or not _is_plain(part) or (isinstance(last, Part) and not _is_plain(last)):
        parts.append(part)
        return
    if isinstance(last, Part):
        parts[-1] = texts = _Texts()
        texts.add(last)
    else:
        texts = last
    texts.add(part)


def _is_plain(part: Part) -> bool:
    return part.text is not None and part.media_type is None and part.filename is None and part.metadata is None


def _all_parts(parts: list[Part | _Texts]) -> Iterator[Part]:
    for part in parts:
        if isinstance(part, Part):
            yield part
        else:
            yield from part.parts()


def fold(task: Task, events: Iterable[StatusUpdate | ArtifactUpdate]) -> Task:
    """Assemble a task from its first record and the events after it.

    Raises:
        ValueError: an event follows a terminal state.
    """
    folding = Folding(task)
    for event in events:
        folding.apply(event)
    return folding.task()
