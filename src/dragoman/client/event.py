"""What a stream tells, in a form that is easy to read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.model.fold import Folding
from dragoman.model.message import Message
from dragoman.model.state import State
from dragoman.model.task import Task, TaskStatus

if TYPE_CHECKING:
    from dragoman.client.connection import Arrived

EventKind = Literal["task", "message", "status", "artifact"]


class Event:
    """One event. `.text` is what is new in the answer; with `.replaces` it is all of it, anew."""

    __slots__ = ("_assembly", "_task", "id", "kind", "raw", "replaces", "state", "text")

    def __init__(
        self,
        kind: EventKind,
        raw: Task | Message | StatusUpdate | ArtifactUpdate,
        assembly: Assembly,
        *,
        id: int,
        state: State,
        text: str = "",
        replaces: bool = False,
    ) -> None:
        self.kind: EventKind = kind
        self.raw = raw
        self.id = id
        # The task's state after this event; a bare message is a completed answer.
        self.state: State = state
        self.text = text
        self.replaces = replaces
        self._assembly = assembly
        self._task: Task | None = None

    @property
    def task(self) -> Task | None:
        """The task as assembled when this is first looked at; None for a bare message."""
        if self._task is None and isinstance(result := self._assembly.result, Task):
            self._task = result
        return self._task

    def __repr__(self) -> str:
        return f"<Event {self.id} {self.kind} {self.state.value} {self.text!r}>"


class Assembly:
    """Puts the events of a stream together, in whatever form the server closes its texts."""

    def __init__(self) -> None:
        self._folding: Folding | None = None
        self._message: Message | None = None
        self._task: Task | None = None

    @property
    def result(self) -> Task | Message | None:
        """What has been assembled so far; a task is put together only when somebody looks."""
        if self._folding is None:
            return self._message
        if self._task is None:
            self._task = self._folding.task()
        return self._task

    @property
    def task_id(self) -> str | None:
        """The task's id, once it is known."""
        return None if self._folding is None else self._folding.id

    @property
    def state(self) -> State | None:
        """The state so far; None before anything has come."""
        if self._folding is not None:
            return self._folding.status.state
        return None if self._message is None else State.COMPLETED

    def take(self, arrived: Arrived) -> Event:
        """Read the next event."""
        raw, number = arrived.event, arrived.generation
        if isinstance(raw, ArtifactUpdate):
            return self._artifact(raw, number)
        if isinstance(raw, StatusUpdate):
            return self._status(raw, number)
        if isinstance(raw, Message):
            self._message = raw
            return Event("message", raw, self, id=number, state=self.state or State.COMPLETED, text=raw.text)
        return self._whole(raw, number)

    def _whole(self, task: Task, number: int) -> Event:
        before = None if self._folding is None else _answer(self._folding)
        self._folding, self._task = Folding(task, number or task.generation or 1), None
        text = _answer(self._folding)
        if before is None:
            replaces = bool(text)
        else:
            # Some servers end with the whole task: only what the events before did not say is new.
            replaces = not text.startswith(before)
            text = text if replaces else text[len(before) :]
        return Event("task", task, self, id=number, state=task.state, text=text, replaces=replaces)

    def _status(self, update: StatusUpdate, number: int) -> Event:
        folding = self._begun(update, update.status)
        text = ""
        # A server that repeats the end, or changes its mind after it, changes nothing any more.
        if not folding.status.state.final:
            folding.apply(update)
            text = "" if folding.artifact_count() else _answer(folding)
        self._moved(number)
        return Event("status", update, self, id=number, state=folding.status.state, text=text)

    def _artifact(self, update: ArtifactUpdate, number: int) -> Event:
        folding = self._begun(update, None)
        artifact, state = update.artifact, folding.status.state
        if state.final:
            return Event("artifact", update, self, id=number, state=state)
        new, replaces = artifact.text, False
        if not update.append:
            before = folding.artifact_text(artifact.artifact_id)
            if before:
                # The closing copy repeats the whole text: only what the chunks did not say is new.
                replaces = not new.startswith(before)
                new = new[len(before) :]
        folding.apply(update)
        self._moved(number)
        text = _answer(folding) if replaces else new
        return Event("artifact", update, self, id=number, state=state, text=text, replaces=replaces)

    def _begun(self, update: StatusUpdate | ArtifactUpdate, status: TaskStatus | None) -> Folding:
        """The task so far. Versions before 1.0 may begin with an update: then that is all there is."""
        if self._folding is None:
            status = status if status is not None and not status.state.final else TaskStatus(State.WORKING)
            self._folding = Folding(Task(update.task_id, update.context_id, status))
        return self._folding

    def _moved(self, number: int) -> None:
        assert self._folding is not None
        if number:
            self._folding.generation = number
        self._task = None


def _answer(folding: Folding) -> str:
    """The text of the answer so far: the artifacts', else what a completed task says last."""
    if folding.artifact_count():
        return "".join(folding.artifact_text(each) or "" for each in folding.artifact_ids())
    message = folding.status.message
    return message.text if folding.status.state is State.COMPLETED and message is not None else ""
