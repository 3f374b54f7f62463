"""From events to a task: state is fold(events), a snapshot is a cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from dragoman.model.artifact import Artifact
from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.model.task import Task, TaskStatus

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dragoman.model.message import Message
    from dragoman.model.part import Part


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
        self._parts: dict[str, list[Part]] = {}
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
                msgspec.structs.replace(artifact, parts=tuple(self._parts[key]))
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
            known.extend(artifact.parts)
            return
        self._artifacts[artifact.artifact_id] = artifact
        self._parts[artifact.artifact_id] = list(artifact.parts)


def fold(task: Task, events: Iterable[StatusUpdate | ArtifactUpdate]) -> Task:
    """Assemble a task from its first record and the events after it.

    Raises:
        ValueError: an event follows a terminal state.
    """
    folding = Folding(task)
    for event in events:
        folding.apply(event)
    return folding.task()
