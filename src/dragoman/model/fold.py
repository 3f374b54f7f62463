"""From events to a task: state is fold(events), a snapshot is a cache."""

from __future__ import annotations

from array import array
from io import StringIO
from typing import TYPE_CHECKING, Any

import msgspec

from dragoman.model.artifact import Artifact
from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.model.part import Part
from dragoman.model.task import Task, TaskStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dragoman.model.message import Message


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
