"""What a task has that its reader has not seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.model.part import Part

if TYPE_CHECKING:
    from dragoman.model.artifact import Artifact
    from dragoman.model.message import Message
    from dragoman.model.task import Task


class Missed(NamedTuple):
    """An event made up from what a task shows; see `Arrived`."""

    generation: int
    event: Task | Message | StatusUpdate | ArtifactUpdate


def missed_events(seen: Task, now: Task, generation: int = 0) -> list[Missed]:
    """The events that lead from what a reader has assembled to what the task is now."""
    known = {artifact.artifact_id: artifact for artifact in seen.artifacts}
    found: list[StatusUpdate | ArtifactUpdate] = []
    for artifact in now.artifacts:
        update = _missed_of(artifact, known.get(artifact.artifact_id), now)
        if update is not None:
            found.append(update)
    if _says(seen) != _says(now):
        found.append(StatusUpdate(now.id, now.context_id, now.status))
    return [Missed(generation, event) for event in found]


def _missed_of(artifact: Artifact, known: Artifact | None, task: Task) -> ArtifactUpdate | None:
    if known is None:
        return ArtifactUpdate(task.id, task.context_id, artifact)
    parts, before = artifact.parts, known.parts
    if parts == before:
        return None
    if len(parts) > len(before) and parts[: len(before)] == before:
        return ArtifactUpdate(task.id, task.context_id, replace(artifact, parts=parts[len(before) :]), append=True)
    if _only_text(artifact) and _only_text(known) and artifact.text.startswith(known.text):
        # The same text in other pieces: some servers join what they streamed.
        rest = artifact.text[len(known.text) :]
        if not rest:
            return None
        return ArtifactUpdate(task.id, task.context_id, replace(artifact, parts=(Part(text=rest),)), append=True)
    return ArtifactUpdate(task.id, task.context_id, artifact)


def _only_text(artifact: Artifact) -> bool:
    return all(part.text is not None for part in artifact.parts)


def _says(task: Task) -> tuple[object, object]:
    message = task.status.message
    # Time and ids may differ between two readings of one status.
    return task.status.state, None if message is None else message.parts
