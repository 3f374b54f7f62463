"""Reading answers just far enough to know that they are right."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from bench.agents.words import chunk_text

COMPLETED = "TASK_STATE_COMPLETED"
INPUT_REQUIRED = "TASK_STATE_INPUT_REQUIRED"
ACCEPTED = frozenset({"TASK_STATE_SUBMITTED", "TASK_STATE_WORKING", COMPLETED})


class Wrong(Exception):
    """An answer is not what it must be."""


class Part(Struct):
    """A part of a result."""

    text: str | None = None


class Artifact(Struct):
    """A result."""

    parts: list[Part]


class Status(Struct):
    """Where a task stands."""

    state: str


class Task(Struct):
    """A task."""

    id: str
    status: Status
    artifacts: list[Artifact] = []


class StatusUpdate(Struct):
    """A new status."""

    status: Status


class ArtifactUpdate(Struct, rename="camel"):
    """A chunk of a result, or all of it."""

    artifact: Artifact
    append: bool = False
    last_chunk: bool = False


class Event(Struct, rename="camel"):
    """What a stream carries, and what SendMessage answers."""

    task: Task | None = None
    status_update: StatusUpdate | None = None
    artifact_update: ArtifactUpdate | None = None


class EventReply(Struct):
    """A JSON-RPC answer with an event."""

    result: Event


class TaskReply(Struct):
    """A JSON-RPC answer with a task."""

    result: Task


class Tasks(Struct, rename="camel"):
    """A page of tasks."""

    tasks: list[Task]
    total_size: int = -1


class TasksReply(Struct):
    """A JSON-RPC answer with a page of tasks."""

    result: Tasks


_event = msgspec.json.Decoder(EventReply)
_task = msgspec.json.Decoder(TaskReply)
_tasks = msgspec.json.Decoder(TasksReply)


def event_of(body: bytes) -> Event:
    """Read an event. Raises Wrong."""
    try:
        return _event.decode(body).result
    except msgspec.MsgspecError as error:
        raise Wrong(f"{error}: {body[:200]!r}") from None


def sent_task(body: bytes) -> Task:
    """The task SendMessage answered with. Raises Wrong."""
    task = event_of(body).task
    if task is None:
        raise Wrong(f"no task: {body[:200]!r}")
    return task


def check_echo(body: bytes, text: str) -> None:
    """The task is completed and its result is the text. Raises Wrong."""
    task = sent_task(body)
    if task.status.state != COMPLETED:
        raise Wrong(f"the task is {task.status.state}")
    if len(task.artifacts) != 1 or "".join(part.text or "" for part in task.artifacts[0].parts) != text:
        raise Wrong("the echo is not what was said")


def check_accepted(body: bytes) -> str:
    """The task was taken, done or not; gives its id. Raises Wrong."""
    task = sent_task(body)
    if task.status.state not in ACCEPTED:
        raise Wrong(f"the task is {task.status.state}")
    return task.id


def check_parked(body: bytes) -> None:
    """The task waits for an answer. Raises Wrong."""
    state = sent_task(body).status.state
    if state != INPUT_REQUIRED:
        raise Wrong(f"the task is {state}")


def check_task(body: bytes, task_id: str, state: str) -> None:
    """The task is the one that was asked for. Raises Wrong."""
    try:
        task = _task.decode(body).result
    except msgspec.MsgspecError as error:
        raise Wrong(f"{error}: {body[:200]!r}") from None
    if task.id != task_id or task.status.state != state:
        raise Wrong(f"another task: {task.id} is {task.status.state}")


def check_page(body: bytes, size: int, total: int) -> None:
    """A page has as many tasks as it must, and so has the whole. Raises Wrong."""
    try:
        page = _tasks.decode(body).result
    except msgspec.MsgspecError as error:
        raise Wrong(f"{error}: {body[:200]!r}") from None
    if len(page.tasks) != size or page.total_size != total:
        raise Wrong(f"{len(page.tasks)} tasks of {page.total_size}, not {size} of {total}")


def times_in(data: bytes) -> tuple[list[int], bool]:
    """The times that a stream of the skill `tick` carries in an event, and whether they are new. Raises Wrong."""
    event = event_of(data)
    if event.task is not None:
        return _times(event.task.artifacts), False
    return _times([event.artifact_update.artifact] if event.artifact_update is not None else []), True


def _times(artifacts: list[Artifact]) -> list[int]:
    return [int(each) for artifact in artifacts for part in artifact.parts for each in (part.text or "").split()]


class StreamCheck:
    """Follows one stream: every chunk once and in order, numbers without a gap, a completed task at the end."""

    def __init__(self, chunks: int, *, numbered: bool, whole: bool = True) -> None:
        self._chunks = chunks
        self._numbered = numbered
        # False: a subscriber, whose stream begins in the middle of the task.
        self._whole = whole
        self._last_id: int | None = None
        self._said: list[str] = []
        self.events = 0
        self.state = ""

    @property
    def seen(self) -> int:
        """How many chunks came so far."""
        return len(self._said)

    def take(self, event_id: int | None, data: bytes) -> None:
        """Take the next event. Raises Wrong."""
        if self.state == COMPLETED:
            raise Wrong("an event after the last")
        event = event_of(data)
        if self._numbered:
            self._check_number(event_id)
        if self.events == 0 and event.task is None:
            raise Wrong("the first event is not the task")
        self.events += 1
        if event.artifact_update is not None:
            self._take_artifact(event.artifact_update)
        elif event.status_update is not None:
            self.state = event.status_update.status.state

    def _check_number(self, event_id: int | None) -> None:
        if event_id is None or (self._last_id is not None and event_id != self._last_id + 1):
            raise Wrong(f"event {event_id} after {self._last_id}")
        if self._last_id is None and self._whole and event_id != 1:
            raise Wrong(f"the first event has number {event_id}")
        self._last_id = event_id

    def _take_artifact(self, update: ArtifactUpdate) -> None:
        text = "".join(part.text or "" for part in update.artifact.parts)
        if text == chunk_text(len(self._said)):
            self._said.append(text)
        elif not (update.last_chunk and text in ("", "".join(self._said))):
            # The end may be marked by an empty chunk, or by the whole text once more.
            raise Wrong(f"chunk {len(self._said)} is {text[:40]!r}")

    def finish(self) -> None:
        """The stream is over. Raises Wrong when something is missing."""
        if self.seen != self._chunks:
            raise Wrong(f"{self.seen} chunks, not {self._chunks}")
        if self.state != COMPLETED:
            raise Wrong(f"the last state is {self.state or 'unknown'}")
