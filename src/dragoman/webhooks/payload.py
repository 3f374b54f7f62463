"""What a webhook is sent, in the words of the version in which it was registered."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec.structs import replace

from dragoman.dialects.negotiate import webhook_dialect
from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.model.json import decode_message, decode_task
from dragoman.model.operation import Operation
from dragoman.model.record import Folding, Record
from dragoman.model.task import Task

if TYPE_CHECKING:
    from dragoman.engine.ports import Store, StoredTask
    from dragoman.model.message import Message

_PAGE = 256


class Compacted(Exception):
    """The events that are needed are gone: only how the task ended is left."""


class Payloads:
    """Makes the payloads of one webhook, one record after the other."""

    def __init__(self, store: Store, stored: StoredTask, dialect: str, *, chunks: bool) -> None:
        self.stored = stored
        self._store = store
        self._dialect = webhook_dialect(dialect)
        self._form = self._dialect.row.webhook
        self._chunks = chunks
        self._folding: Folding | None = None
        self._said: dict[int, list[Message]] | None = None

    def renew(self, stored: StoredTask) -> None:
        """Go on with the task as it is now."""
        self.stored = stored
        self._said = None

    @property
    def media_type(self) -> str:
        """What the payload is."""
        return self._form.media_type

    async def of(self, record: Record) -> bytes | None:
        """What this record is to the webhook; None when it is nothing.

        Raises:
            Compacted: what it takes to tell is gone.
        """
        event = record.event
        if isinstance(event, ArtifactUpdate):
            return await self._artifact(record, event) if self._form.events else None
        if self._form.events:
            return self._event(record)
        return self._task(await self._at(record.generation))

    async def _artifact(self, record: Record, event: ArtifactUpdate) -> bytes | None:
        if self._chunks or (event.last_chunk and not event.append):
            return self._event(record)
        if not event.last_chunk:
            return None
        # The last of several chunks: whoever has not seen the others is told the whole.
        folded = await self._at(record.generation)
        wanted = event.artifact.artifact_id
        whole = next((each for each in folded.artifacts if each.artifact_id == wanted), event.artifact)
        return self._event(Record.of(record.generation, replace(event, artifact=whole, append=False)))

    def last(self, stored: StoredTask) -> bytes | None:
        """What is left to tell of a task whose single events are gone: how it ended."""
        if stored.snapshot is None:
            return None
        task = decode_task(stored.snapshot)
        if not self._form.events:
            return self._task(task)
        return self._event(Record.of(stored.row.generation, StatusUpdate(task.id, task.context_id, task.status)))

    def _event(self, record: Record) -> bytes:
        return self._dialect.event(record, last=False)

    def _task(self, task: Task) -> bytes:
        return self._dialect.result(Operation.GET, task)

    async def _at(self, generation: int) -> Task:
        """The task as it was after that record."""
        stored = self.stored
        if stored.snapshot is not None and stored.snapshot_generation == generation:
            return decode_task(stored.snapshot)
        if self._said is None:
            self._said = await self._messages()
        folding = self._folding
        if folding is None and stored.snapshot is not None and stored.snapshot_generation < generation:
            folding = Folding(decode_task(stored.snapshot), stored.snapshot_generation)
        while folding is None or folding.generation < generation:
            after = 0 if folding is None else folding.generation
            page = await self._store.records(stored.row.number, after, min(_PAGE, generation - after))
            if not page:
                raise Compacted
            for record in page:
                folding = _folded(folding, record)
                for message in self._said.get(record.generation, ()):
                    folding.say(message)
            # A long journal is not everybody's business: others have their turn between its pages.
            await asyncio.sleep(0)
        self._folding = folding
        return folding.task()

    async def _messages(self) -> dict[int, list[Message]]:
        """What was said to the task, by the record it belongs to."""
        said: dict[int, list[Message]] = {}
        for note in await self._store.notes(self.stored.row.number):
            if note.kind in ("message", "answer"):
                said.setdefault(note.generation, []).append(decode_message(note.body))
        return said


def _folded(folding: Folding | None, record: Record) -> Folding:
    event = record.event
    if isinstance(event, Task):
        return Folding(event, record.generation)
    if folding is None:
        raise Compacted
    if isinstance(event, (StatusUpdate, ArtifactUpdate)):
        folding.apply(event)
    folding.generation = record.generation
    return folding
