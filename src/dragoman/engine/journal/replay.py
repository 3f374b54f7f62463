"""Replay: what the stored records and notes of a task add up to. The one place that folds what a store gives."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from dragoman.engine.call import CallContext
from dragoman.engine.execute.outputs import AnsweredQuestion
from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.model.json import decode_message, decode_task
from dragoman.model.record import Folding
from dragoman.model.task import Task

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dragoman.engine.ports.store import Note, Store, StoredTask, TaskRow
    from dragoman.model.message import Message

# How many records are read at a time.
PAGE = 256


class JournalCompacted(Exception):
    """The records that are needed are gone."""


class Replay:
    """Folds the records of one task at rest, from its snapshot on, as far as somebody wants to know."""

    def __init__(self, store: Store, stored: StoredTask) -> None:
        self.stored = stored
        self._store = store
        self._folding: Folding | None = None
        self._messages: dict[int, list[Message]] | None = None

    def refresh(self, stored: StoredTask) -> None:
        """Go on with the task as it is now."""
        self.stored = stored
        self._messages = None

    async def task(self, generation: int | None = None) -> Task:
        """The task as it was after that record, which is not before the last one asked for; by default as it is.

        Raises:
            Compacted: a record that is needed is not there.
        """
        stored = self.stored
        target = stored.row.generation if generation is None else generation
        if stored.snapshot is not None and stored.snapshot_generation == target:
            return msgspec.structs.replace(decode_task(stored.snapshot), generation=target)
        return (await self._fold(target)).task()

    async def _fold(self, target: int) -> Folding:
        stored, folding = self.stored, self._folding
        if self._messages is None:
            self._messages = _messages_by_generation(await self._store.notes(stored.row.number))
        if folding is None and stored.snapshot is not None and stored.snapshot_generation < target:
            folding = Folding(decode_task(stored.snapshot), stored.snapshot_generation)
        after = 0 if folding is None else folding.generation
        while folding is None or after < target:
            records = await self._store.records(stored.row.number, after, min(PAGE, target - after))
            if not records:
                raise JournalCompacted(f"the journal of task {stored.row.id} ends at {after}")
            for record in records:
                event, after = record.event, record.generation
                if isinstance(event, Task):
                    folding = Folding(event, after)
                elif folding is None:
                    raise JournalCompacted(f"task {stored.row.id} has no first record")
                elif isinstance(event, (StatusUpdate, ArtifactUpdate)):
                    folding.apply(event)
                for message in self._messages.get(after, ()):
                    folding.add_message(message)
            # A long journal is not everybody's business: others have their turn between its pages.
            await asyncio.sleep(0)
        self._folding = folding
        return folding


def _messages_by_generation(notes: Iterable[Note]) -> dict[int, list[Message]]:
    messages: dict[int, list[Message]] = {}
    for note in notes:
        if note.kind in ("message", "answer"):
            messages.setdefault(note.generation, []).append(decode_message(note.body))
    return messages


class Origin(msgspec.Struct, omit_defaults=True):
    """The circumstances a task began in, kept for runs that start again."""

    call: CallContext
    metadata: dict[str, Any] | None = None


class OpenQuestion(msgspec.Struct):
    """What a run asked before it paused, and what it wants back with the answer."""

    question: str
    ref: Any = None


class RunHistory(NamedTuple):
    """What earlier runs of a task left behind. `told` are messages that came while it was at work.

    `doubtful` are effects of `once` that were begun and of which nobody knows whether they happened. `attempt` is how
    often a run for the last message has begun; None where nobody has counted.
    """

    origin: Origin | None
    questions: tuple[OpenQuestion, ...]
    answers: tuple[Message, ...]
    followups: tuple[Message, ...]
    once: dict[str, Any]
    in_doubt: frozenset[str] = frozenset()
    attempt: int | None = None

    def call(self, row: TaskRow) -> CallContext:
        """Who asked, and in what way."""
        return self.origin.call if self.origin else CallContext(tenant=row.scope.tenant, origin=row.origin)

    def answered_questions(self, last: Message | None = None) -> tuple[AnsweredQuestion, ...]:
        """The questions with their answers; `last` is one that has just arrived."""
        answers = self.answers if last is None else (*self.answers, last)
        return tuple(
            AnsweredQuestion(asked.question, asked.ref, answer.text, answer.data)
            for asked, answer in zip(self.questions, answers, strict=False)
        )


def read_run_history(notes: Iterable[Note]) -> RunHistory:
    """What the notes of a task say about its earlier runs."""
    origin: Origin | None = None
    questions: list[OpenQuestion] = []
    answers: list[Message] = []
    followups: list[Message] = []
    once: dict[str, Any] = {}
    in_doubt: set[str] = set()
    attempt: int | None = None
    for note in notes:
        if note.kind == "request":
            origin = msgspec.json.decode(note.body, type=Origin)
        elif note.kind == "ask":
            questions.append(msgspec.json.decode(note.body, type=OpenQuestion))
        elif note.kind == "answer":
            answers.append(decode_message(note.body))
            attempt = None
        elif note.kind == "message":
            followups.append(decode_message(note.body))
        elif note.kind == "once":
            effect = msgspec.json.decode(note.body)
            in_doubt.discard(effect["key"])
            if "value" in effect:  # else the function raised
                once[effect["key"]] = effect["value"]
        elif note.kind == "begun":
            in_doubt.add(note.body.decode())
        elif note.kind == "attempt":
            attempt = int(note.body)
    return RunHistory(origin, tuple(questions), tuple(answers), tuple(followups), once, frozenset(in_doubt), attempt)
