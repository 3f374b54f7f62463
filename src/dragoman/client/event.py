"""Stream events for users, and the assembly of a task from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec.structs import replace

from dragoman.client.streams.message_chunks import MessageChunks
from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.model.message import Message, join_paragraphs, progress_of
from dragoman.model.part import Part
from dragoman.model.record import Folding
from dragoman.model.state import Role, State
from dragoman.model.task import Task, TaskStatus, answer_messages

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dragoman.client.connection import StreamEvent
    from dragoman.model.message import Progress
    from dragoman.model.task import Artifact

EventKind = Literal["task", "message", "status", "artifact"]


class Event:
    """One event of a stream. `.text` is what it adds to the answer; with `.replaces` it is the whole answer again."""

    __slots__ = ("_assembler", "_task", "id", "kind", "raw", "replaces", "state", "text")

    def __init__(
        self,
        kind: EventKind,
        raw: Task | Message | StatusUpdate | ArtifactUpdate,
        assembler: TaskAssembler,
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
        self._assembler = assembler
        self._task: Task | None = None

    @property
    def task(self) -> Task | None:
        """The task as assembled when this is first read; None for a bare message."""
        if self._task is None and isinstance(result := self._assembler.result, Task):
            self._task = result
        return self._task

    @property
    def progress(self) -> Progress | None:
        """How far the agent says it is, if this event says so: the message of a working task, else None."""
        if self.state is not State.WORKING and self.state is not State.SUBMITTED:
            return None
        raw = self.raw
        message = raw.status.message if isinstance(raw, (StatusUpdate, Task)) else raw
        if not isinstance(message, Message) or message.role is Role.USER:
            return None
        progress = progress_of(message)
        return progress if progress.text or progress.done is not None else None

    def __repr__(self) -> str:
        return f"<Event {self.id} {self.kind} {self.state.value} {self.text!r}>"


class TaskAssembler:
    """Assembles a task from the events of a stream, whichever way the server completes its texts.

    The texts of the events, joined and started over at each event that `replaces`, end up as the text of the task.
    The cost of an event does not depend on the length of the task, unless it replaces the text or is a whole task.
    With `mid_stream`, the reader received the beginning of the texts elsewhere. `context_id` is for versions whose
    events do not carry their context.
    """

    def __init__(self, *, mid_stream: bool = False, context_id: str = "") -> None:
        self.context_id = context_id
        self._folding: Folding | None = None
        self._message: Message | None = None
        self._task: Task | None = None
        self._is_final = False
        self._is_numbered = False
        # The last question. It may be in the history without the answer to it, which no event carries.
        self._question: Message | None = None
        # The artifacts whose beginning was not received here; None when every beginning was.
        self._partial_artifacts: set[str] | None = set() if mid_stream else None
        # The position of each artifact in the task, the one that got text last, and the highest position with text.
        self._positions: dict[str, int] = {}
        self._current_artifact: str | None = None
        self._last_position = -1
        # True when artifacts were written alternately: then the joined texts are not in the order of the task.
        self._interleaved = False
        # Messages that come in pieces, and what the events have streamed of them: the answer, unless artifacts follow.
        self._chunks = MessageChunks()
        self._streamed: list[str] = []

    @property
    def result(self) -> Task | Message | None:
        """The task or message so far. A task is built only when this is read."""
        if self._folding is None:
            return self._message
        if self._task is None:
            task = replace(self._folding.task(), history=tuple(self._history(self._folding)))
            # Our own count must not pass for a number of the server.
            self._task = task if self._is_numbered else replace(task, generation=None)
        return self._task

    @property
    def task_id(self) -> str | None:
        """The task's id; None before the first event of a task."""
        return None if self._folding is None else self._folding.id

    @property
    def state(self) -> State | None:
        """The current state; None before the first event."""
        if self._folding is not None:
            return self._folding.status.state
        return None if self._message is None else State.COMPLETED

    @property
    def lacks_answer(self) -> bool:
        """True when the task has completed and its events hold no answer, or may hold a question instead of one."""
        folding = self._folding
        if folding is None or folding.status.state is not State.COMPLETED or folding.artifact_count():
            return False
        messages = answer_messages(folding.status, folding.history)
        return not messages or self._question in messages

    def add(self, item: StreamEvent) -> Event:
        """Add the next event. Events after a final state change nothing."""
        raw, number = item.event, item.generation
        if isinstance(raw, ArtifactUpdate):
            return self._add_artifact(raw, number)
        if isinstance(raw, StatusUpdate):
            return self._add_status(raw, number)
        if isinstance(raw, Message):
            return self._add_message(raw, number)
        return self._add_task(raw, number)

    def correct(self, task: Task) -> Event | None:
        """Replace a task that has ended by what was read of it afterwards; None when that adds nothing to the answer.

        Some servers send events after the end of a task, or an answer that only the task itself holds.
        """
        before = self.result
        if not task.state.final or (isinstance(before, Task) and task.parts == before.parts):
            return None
        self._is_final = False
        return self._add_task(task, task.generation or 0)

    def _add_artifact(self, update: ArtifactUpdate, number: int) -> Event:
        folding = self._folding or self._begin(update)
        state = folding.status.state
        if self._is_final:
            return Event("artifact", update, self, number, state)
        artifact = update.artifact
        key, parts = artifact.artifact_id, artifact.parts
        new = (parts[0].text or "") if len(parts) == 1 else artifact.text
        replaces = False
        if not update.append:
            before = folding.artifact_text(key)
            if before:
                if new.startswith(before):
                    # Many servers close an artifact with a copy of its whole text: only the rest of it is new.
                    new = new[len(before) :]
                elif self._partial_artifacts and key in self._partial_artifacts and new.endswith(before):
                    new = ""
                else:
                    replaces = True
            if self._partial_artifacts:
                self._partial_artifacts.discard(key)
        elif self._partial_artifacts is not None and key not in self._positions:
            self._partial_artifacts.add(key)
        folding.apply(update)
        if number:
            folding.generation, self._is_numbered = number, True
        self._task = None
        if key != self._current_artifact:
            self._switch_artifact(key, new)
        if replaces or self._streamed:
            new, replaces = self._restart_text(folding), True
        return Event("artifact", update, self, number, state, new, replaces)

    def _add_status(self, update: StatusUpdate, number: int) -> Event:
        folding = self._folding or self._begin(update)
        text, replaces = "", False
        if not self._is_final:
            if folding.status.state.waiting:
                self._question = folding.status.message
            folding.apply(update)
            if number:
                folding.generation, self._is_numbered = number, True
            self._task = None
            state = folding.status.state
            self._is_final = state.final
            if self._interleaved and (state.final or state is State.INPUT_REQUIRED):
                text, replaces = self._restart_text(folding), True
            elif not folding.artifact_count() and state is State.COMPLETED:
                streamed, text = "".join(self._streamed), self._answer_text(folding)
                replaces = not text.startswith(streamed)
                text = text if replaces else text[len(streamed) :]
        return Event("status", update, self, number, folding.status.state, text, replaces)

    def _add_message(self, message: Message, number: int) -> Event:
        folding = self._folding
        if folding is not None:
            # Within a task a message is a remark, like that of a status; the answer is in the artifacts.
            text = ""
            if not self._is_final:
                self._task = None
                first = self._chunks.add(message)
                if first is None:
                    folding.add_message(message)
                elif not folding.artifact_count():
                    # In pieces, it is an answer that is being written.
                    text = message.text if self._streamed else f"{first.text}{message.text}"
                    self._streamed.append(text)
            return Event("message", message, self, number, folding.status.state, text)
        replaces, self._message = self._message is not None, message
        return Event("message", message, self, number, State.COMPLETED, message.text, replaces)

    def _add_task(self, task: Task, number: int) -> Event:
        previous = self._folding
        if previous is not None and self._is_final:
            return Event("task", task, self, number, previous.status.state)
        before = None if previous is None else "".join(self._streamed) or self._answer_text(previous)
        self._chunks = MessageChunks()
        count = number or task.generation or 0
        folding = self._folding = Folding(task, count)
        self._task, self._is_final, self._is_numbered = None, task.state.final, count > 0
        interleaved, text = self._interleaved, self._restart_text(folding)
        if before is None:
            return Event("task", task, self, number, task.state, text, bool(text))
        # Some servers end with the whole task: only what the earlier events lacked is new.
        replaces = interleaved or not text.startswith(before)
        return Event("task", task, self, number, task.state, text if replaces else text[len(before) :], replaces)

    def _begin(self, update: StatusUpdate | ArtifactUpdate) -> Folding:
        """Start a task from an update: versions before 1.0 may send no task first."""
        context_id = update.context_id or self.context_id
        folding = self._folding = Folding(Task(update.task_id, context_id, TaskStatus(State.WORKING)))
        return folding

    def _switch_artifact(self, key: str, new: str) -> None:
        """Record that another artifact is written to. `new` is the text that it gets."""
        position = self._positions.setdefault(key, len(self._positions))
        if not new:
            return
        self._current_artifact = key
        if position < self._last_position:
            self._interleaved = True
        else:
            self._last_position = position

    def _restart_text(self, folding: Folding) -> str:
        """Return the whole answer in the order of the task, which is then that of the joined texts too."""
        self._streamed.clear()
        ids = folding.artifact_ids()
        self._positions = {key: place for place, key in enumerate(ids)}
        self._last_position = max((place for place, key in enumerate(ids) if folding.artifact_text(key)), default=-1)
        self._current_artifact, self._interleaved = None, False
        return self._answer_text(folding)

    def _answer_text(self, folding: Folding) -> str:
        """Return the answer so far: the texts of the artifacts, else the messages of a completed task."""
        if folding.artifact_count():
            return "".join(folding.artifact_text(each) or "" for each in folding.artifact_ids())
        if folding.status.state is not State.COMPLETED:
            return ""
        messages = answer_messages(folding.status, self._history(folding))
        if self._question in messages:
            messages = messages[messages.index(self._question) + 1 :]
        return join_paragraphs([message.text for message in messages])

    def _history(self, folding: Folding) -> list[Message]:
        """Return the history, with messages that came in pieces as one."""
        return [self._chunks.joined(message) for message in folding.history]


class NumberedEvent(NamedTuple):
    """A `StreamEvent`: an event and its number in the task, 0 when the server does not number events."""

    generation: int
    event: Task | Message | StatusUpdate | ArtifactUpdate


def snapshot_in(batch: Sequence[StreamEvent]) -> Task | None:
    """Return the task if the batch begins with a snapshot of it."""
    first = batch[0].event
    return first if isinstance(first, Task) else None


def missed_events(before: Task, now: Task, generation: int = 0) -> list[NumberedEvent]:
    """Return the events that lead from the task a reader has assembled to the task as it is now.

    While the task is running, an artifact that is shorter than the reader's, as read from a replica that lags behind,
    is no event.
    """
    artifacts_before = {artifact.artifact_id: artifact for artifact in before.artifacts}
    updates: list[StatusUpdate | ArtifactUpdate] = []
    for artifact in now.artifacts:
        update = _missed_update(artifact, artifacts_before.get(artifact.artifact_id), now)
        if update is not None:
            updates.append(update)
    if _status_key(before) != _status_key(now):
        updates.append(StatusUpdate(now.id, now.context_id, now.status))
    return [NumberedEvent(generation, event) for event in updates]


def _missed_update(artifact: Artifact, previous: Artifact | None, task: Task) -> ArtifactUpdate | None:
    if previous is None:
        return ArtifactUpdate(task.id, task.context_id, artifact)
    if artifact.parts == previous.parts:
        return None
    now, before = _join_texts(artifact.parts), _join_texts(previous.parts)
    rest = _appended_parts(now, before)
    if rest is None:
        if not task.state.final and _appended_parts(before, now) is not None:
            return None
        return ArtifactUpdate(task.id, task.context_id, artifact)
    if not rest:
        return None
    return ArtifactUpdate(task.id, task.context_id, replace(artifact, parts=tuple(rest)), append=True)


def _appended_parts(now: list[Part], before: list[Part]) -> list[Part] | None:
    """Return the parts that follow `before`; None when `now` does not continue it."""
    if not before:
        return now
    *whole, last = before
    end = len(whole)
    if len(now) <= end or now[:end] != whole:
        return None
    here = now[end]
    if here == last:
        return now[end + 1 :]
    if here.text is None or last.text is None or not _same_format(here, last) or not here.text.startswith(last.text):
        return None
    return [replace(here, text=here.text[len(last.text) :]), *now[end + 1 :]]


def _join_texts(parts: Iterable[Part]) -> list[Part]:
    """Return the parts with adjacent texts joined: some servers join what they streamed."""
    joined: list[Part] = []
    texts: list[str] = []
    for part in parts:
        if part.text is None or not joined or not _same_format(part, joined[-1]):
            _merge_texts(joined, texts)
            texts = []
            joined.append(part)
        if part.text is not None:
            texts.append(part.text)
    _merge_texts(joined, texts)
    return joined


def _merge_texts(joined: list[Part], texts: list[str]) -> None:
    if len(texts) > 1:
        joined[-1] = replace(joined[-1], text="".join(texts))


def _same_format(one: Part, other: Part) -> bool:
    """True when two text parts differ in nothing but their text."""
    if one.text is None or other.text is None:
        return False
    return (one.media_type, one.filename, one.metadata) == (other.media_type, other.filename, other.metadata)


def _status_key(task: Task) -> tuple[object, object]:
    message = task.status.message
    # Timestamps and ids may differ between two reads of one status.
    return task.status.state, None if message is None else message.parts
