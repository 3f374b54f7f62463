"""What a stream tells, in a form that is easy to read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.model.fold import Folding
from dragoman.model.message import Message
from dragoman.model.state import State
from dragoman.model.task import Task

if TYPE_CHECKING:
    from dragoman.model.record import Record

EventKind = Literal["task", "message", "status", "artifact"]


class Event:
    """One event. `.text` is what is new in the answer; with `.replaces` it is all of it, anew."""

    __slots__ = ("id", "kind", "raw", "replaces", "task", "text")

    def __init__(
        self,
        kind: EventKind,
        raw: Task | Message | StatusUpdate | ArtifactUpdate,
        *,
        id: int,
        task: Task | None,
        text: str = "",
        replaces: bool = False,
    ) -> None:
        self.kind: EventKind = kind
        self.raw = raw
        self.id = id
        self.task = task
        self.text = text
        self.replaces = replaces

    @property
    def state(self) -> State:
        """The task's state now; a bare message is a completed answer."""
        return self.task.state if self.task is not None else State.COMPLETED

    def __repr__(self) -> str:
        return f"<Event {self.id} {self.kind} {self.state.value} {self.text!r}>"


class Assembly:
    """Puts the events of a stream together, in whatever form the server closes its texts."""

    def __init__(self) -> None:
        self._folding: Folding | None = None
        self.result: Task | Message | None = None

    def take(self, record: Record) -> Event:
        """Read the next record."""
        raw = record.event
        if isinstance(raw, Message):
            self.result = raw
            return Event("message", raw, id=record.generation, task=None, text=raw.text)
        if isinstance(raw, Task):
            self._folding = Folding(raw, record.generation)
            self.result = raw
            text = "".join(artifact.text for artifact in raw.artifacts)
            return Event("task", raw, id=record.generation, task=raw, text=text, replaces=bool(text))
        if self._folding is None:
            raise ValueError("a stream begins with a task or a message")
        if isinstance(raw, StatusUpdate):
            return self._event("status", raw, record, "", replaces=False)
        before = self._folding.artifact_text(raw.artifact.artifact_id)
        new, replaces = raw.artifact.text, False
        if not raw.append and before:
            # The closing copy repeats the whole text: only what the chunks did not say is new.
            replaces = not new.startswith(before)
            new = new if replaces else new[len(before) :]
        return self._event("artifact", raw, record, new, replaces=replaces)

    def _event(
        self, kind: EventKind, raw: StatusUpdate | ArtifactUpdate, record: Record, text: str, *, replaces: bool
    ) -> Event:
        assert self._folding is not None
        self._folding.apply(raw)
        self._folding.generation = record.generation
        task = self._folding.task()
        self.result = task
        return Event(kind, raw, id=record.generation, task=task, text=text, replaces=replaces)
