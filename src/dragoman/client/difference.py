"""What a task has that its reader has not seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.model.part import Part

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dragoman.model.artifact import Artifact
    from dragoman.model.message import Message
    from dragoman.model.task import Task


class Missed(NamedTuple):
    """An event made up from what a task shows; see `Arrived`."""

    generation: int
    event: Task | Message | StatusUpdate | ArtifactUpdate


def missed_events(seen: Task, now: Task, generation: int = 0) -> list[Missed]:
    """The events that lead from what a reader has assembled to what the task is now.

    A reading that is older than what was seen, as a copy of a store may give it, takes nothing back while the task
    goes on.
    """
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
    if artifact.parts == known.parts:
        return None
    now, before = _joined(artifact.parts), _joined(known.parts)
    rest = _rest(now, before)
    if rest is None:
        if not task.state.final and _rest(before, now) is not None:
            return None
        return ArtifactUpdate(task.id, task.context_id, artifact)
    if not rest:
        return None
    return ArtifactUpdate(task.id, task.context_id, replace(artifact, parts=tuple(rest)), append=True)


def _rest(now: list[Part], before: list[Part]) -> list[Part] | None:
    """What follows what was seen; None when it does not go on from there."""
    if not before:
        return now
    *whole, last = before
    end = len(whole)
    if len(now) <= end or now[:end] != whole:
        return None
    here = now[end]
    if here == last:
        return now[end + 1 :]
    if here.text is None or last.text is None or not _alike(here, last) or not here.text.startswith(last.text):
        return None
    return [replace(here, text=here.text[len(last.text) :]), *now[end + 1 :]]


def _joined(parts: Iterable[Part]) -> list[Part]:
    """The parts with neighbouring texts as one: some servers join what they streamed."""
    found: list[Part] = []
    texts: list[str] = []
    for part in parts:
        if part.text is None or not found or not _alike(part, found[-1]):
            _close(found, texts)
            texts = []
            found.append(part)
        if part.text is not None:
            texts.append(part.text)
    _close(found, texts)
    return found


def _close(found: list[Part], texts: list[str]) -> None:
    if len(texts) > 1:
        found[-1] = replace(found[-1], text="".join(texts))


def _alike(one: Part, other: Part) -> bool:
    """True when two texts differ in nothing but what they say."""
    if one.text is None or other.text is None:
        return False
    return (one.media_type, one.filename, one.metadata) == (other.media_type, other.filename, other.metadata)


def _says(task: Task) -> tuple[object, object]:
    message = task.status.message
    # Time and ids may differ between two readings of one status.
    return task.status.state, None if message is None else message.parts
