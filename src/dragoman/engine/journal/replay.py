"""Rebuilds a task and its run history from stored records and notes. No other module folds stored records."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from dragoman.engine.call import CallContext
from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.model.json import decode_message, decode_task
from dragoman.model.message import PROGRESS_KEY
from dragoman.model.part import Part
from dragoman.model.record import Folding
from dragoman.model.state import State
from dragoman.model.task import Task

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from dragoman.engine.ports.store import Note, Store, StoredTask, TaskRow
    from dragoman.model.message import Message

# How many records are read per query.
PAGE = 256


class JournalCompacted(Exception):
    """Records that are needed were deleted by compaction."""


class Replay:
    """Folds the records of one stored task, from its snapshot up to a requested generation.

    `wait_for_turn` waits for a turn to do CPU-bound work, for callers who may ask for any generation, and often.
    """

    def __init__(
        self, store: Store, stored: StoredTask, wait_for_turn: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        self.stored = stored
        self._store = store
        self._wait_for_turn = wait_for_turn
        self._folding: Folding | None = None
        self._messages: dict[int, list[Message]] | None = None

    def refresh(self, stored: StoredTask) -> None:
        """Continue with a newer version of the stored task."""
        self.stored = stored
        self._messages = None

    async def task(self, generation: int | None = None) -> Task:
        """Return the task at `generation`, by default the latest. Generations must not decrease from call to call.

        Raises:
            JournalCompacted: a record that is needed was deleted.
        """
        stored = self.stored
        target = stored.row.generation if generation is None else generation
        if stored.snapshot is not None and stored.snapshot_generation == target and stored.mail <= stored.snapshot_mail:
            return msgspec.structs.replace(decode_task(stored.snapshot), generation=target)
        return (await self._fold(target)).task()

    async def _fold(self, target: int) -> Folding:
        stored, folding = self.stored, self._folding
        starts_from_snapshot = folding is None and stored.snapshot is not None and stored.snapshot_generation <= target
        if self._messages is None:
            notes = await self._store.notes(stored.row.number)
            # Messages that were posted after the task was read are left out: whoever writes its snapshot says how many
            # it contains.
            notes = [note for note in notes if note.mail <= stored.mail]
            self._messages = messages_by_generation(notes, stored if starts_from_snapshot else None)
        if starts_from_snapshot and stored.snapshot is not None:
            folding = Folding(decode_task(stored.snapshot), stored.snapshot_generation)
            for message in self._messages.get(stored.snapshot_generation, ()):
                folding.add_message(message)
        after = 0 if folding is None else folding.generation
        while folding is None or after < target:
            records = await self._store.records(stored.row.number, after, min(PAGE, target - after))
            if not records:
                raise JournalCompacted(f"the journal of task {stored.row.id} ends at {after}")
            if self._wait_for_turn is not None:
                await self._wait_for_turn()
            for record in records:
                event, after = record.event, record.generation
                if isinstance(event, Task):
                    folding = Folding(event, after)
                elif folding is None:
                    raise JournalCompacted(f"task {stored.row.id} has no first record")
                elif isinstance(event, (StatusUpdate, ArtifactUpdate)):
                    folding.apply(_with_progress_mark(event))
                for message in self._messages.get(after, ()):
                    folding.add_message(message)
            # A long journal must not block the event loop.
            await asyncio.sleep(0)
        self._folding = folding
        return folding


def _with_progress_mark(event: StatusUpdate | ArtifactUpdate) -> StatusUpdate | ArtifactUpdate:
    """Mark the message of a working task as progress, for records of versions that did not: they wrote no others."""
    if isinstance(event, ArtifactUpdate) or event.status.state is not State.WORKING:
        return event
    message = event.status.message
    if message is None or message.is_progress:
        return event
    message = msgspec.structs.replace(message, metadata={**(message.metadata or {}), PROGRESS_KEY: True})
    return msgspec.structs.replace(event, status=msgspec.structs.replace(event.status, message=message))


def messages_by_generation(notes: Iterable[Note], snapshot: StoredTask | None = None) -> dict[int, list[Message]]:
    """Return the messages of callers among notes, by the generation they belong to.

    With `snapshot`, only those that are not in the snapshot of this task. A message that was posted while the snapshot
    was made belongs to an earlier generation, but comes after it.
    """
    after, mail = (0, 0) if snapshot is None else (snapshot.snapshot_generation, snapshot.snapshot_mail)
    messages: dict[int, list[Message]] = {}
    for note in notes:
        if note.kind in ("message", "answer") and (note.mail > mail if note.mail else note.generation > after):
            messages.setdefault(max(note.generation, after), []).append(decode_message(note.body))
    return messages


class StoredRequest(msgspec.Struct, omit_defaults=True):
    """The call that created a task and the request's metadata, kept for later runs. The body of a "request" note."""

    call: CallContext
    metadata: dict[str, Any] | None = None


class OpenQuestion(msgspec.Struct, omit_defaults=True):
    """A question that paused a run, and the `ref` the agent gets back with the answer. The body of an "ask" note.

    `open_artifacts` are the ids of artifacts that the agent manages itself and has not closed. `handle` is the digest
    of the handle that continues a task in auth-required. With `forwards`, a message continues it in any case.
    """

    question: str
    ref: Any = None
    open_artifacts: tuple[str, ...] = ()
    handle: str = ""
    forwards: bool = False


class AnsweredQuestion(msgspec.Struct, frozen=True):
    """A question of an earlier run and the caller's answer."""

    question: str
    ref: Any
    text: str
    data: Any
    files: tuple[Part, ...] = ()


class RunHistory(NamedTuple):
    """What the notes of a task record about its earlier runs.

    `request` is None when it was a default one. `followups` are the messages that arrived while the task was working or
    waited for a login, and `undelivered` is how many of the last of them arrived since the last question.
    `once` has the results of `ctx.once` by key; `in_doubt` are the keys of calls that were started and may or may not
    have happened. `attempt` is how often a run for the last message has started; None when it was not counted.
    """

    request: StoredRequest | None
    questions: tuple[OpenQuestion, ...]
    answers: tuple[Message, ...]
    followups: tuple[Message, ...]
    once: dict[str, Any]
    in_doubt: frozenset[str] = frozenset()
    attempt: int | None = None
    undelivered: int = 0

    @property
    def open_question(self) -> OpenQuestion | None:
        """The question that has no answer yet."""
        return self.questions[-1] if len(self.questions) > len(self.answers) else None

    def call(self, row: TaskRow) -> CallContext:
        """The context of the call that created the task; built from the row when it was not stored."""
        return self.request.call if self.request else CallContext(tenant=row.scope.tenant, origin=row.origin)

    def answered_questions(self, last: Message | None = None) -> tuple[AnsweredQuestion, ...]:
        """The questions with their answers; `last` is an answer that is not stored yet."""
        answers = self.answers if last is None else (*self.answers, last)
        return tuple(
            AnsweredQuestion(question.question, question.ref, answer.text, answer.data, tuple(answer.files))
            for question, answer in zip(self.questions, answers, strict=False)
        )


def read_run_history(notes: Iterable[Note]) -> RunHistory:
    """Build the run history from the notes of a task."""
    request: StoredRequest | None = None
    questions: list[OpenQuestion] = []
    answers: list[Message] = []
    followups: list[Message] = []
    once: dict[str, Any] = {}
    in_doubt: set[str] = set()
    attempt: int | None = None
    delivered = 0
    for note in notes:
        if note.kind == "request":
            request = msgspec.json.decode(note.body, type=StoredRequest)
        elif note.kind == "ask":
            questions.append(msgspec.json.decode(note.body, type=OpenQuestion))
            delivered = len(followups)
        elif note.kind in ("answer", "resumed"):
            answers.append(decode_message(note.body))
            attempt = None
        elif note.kind == "message":
            followups.append(decode_message(note.body))
        elif note.kind == "once":
            effect = msgspec.json.decode(note.body)
            in_doubt.discard(effect["key"])
            if "value" in effect:  # without a value the function raised
                once[effect["key"]] = effect["value"]
        elif note.kind == "begun":
            in_doubt.add(note.body.decode())
        elif note.kind == "attempt":
            attempt = int(note.body)
    return RunHistory(
        request,
        tuple(questions),
        tuple(answers),
        tuple(followups),
        once,
        frozenset(in_doubt),
        attempt,
        len(followups) - delivered if questions else 0,
    )
