"""Builds webhook payloads in the protocol version in which the webhook was registered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from dragoman.dialects.negotiate import webhook_dialect
from dragoman.engine.journal.replay import Replay
from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.model.json import decode_task
from dragoman.model.operation import Operation
from dragoman.model.record import Record
from dragoman.model.task import Task

if TYPE_CHECKING:
    from dragoman.engine.ports.store import Store, StoredTask


class PayloadBuilder:
    """Builds the payloads of one webhook, record by record."""

    def __init__(self, store: Store, stored: StoredTask, dialect: str, *, chunks: bool) -> None:
        self._replay = Replay(store, stored)
        self._dialect = webhook_dialect(dialect)
        self._form = self._dialect.row.webhook
        self._chunks = chunks

    def refresh(self, stored: StoredTask) -> None:
        """Continue with a newer version of the stored task."""
        self._replay.refresh(stored)

    @property
    def stored(self) -> StoredTask:
        """The task as it was last read."""
        return self._replay.stored

    @property
    def media_type(self) -> str:
        """The content type of the payloads."""
        return self._form.media_type

    async def task(self, generation: int) -> Task:
        """Return the whole task at a generation, not before that of the last payload. Raises as `build` does."""
        return await self._replay.task(generation)

    async def build(self, record: Record) -> bytes | None:
        """Build the payload for a record; None when the record is not sent.

        Raises:
            JournalCompacted: the records it is built from have been compacted.
        """
        event = record.event
        if isinstance(event, ArtifactUpdate):
            return await self._build_artifact(record, event) if self._form.events else None
        if self._form.events:
            return self._encode_event(record)
        return self._encode_task(await self._replay.task(record.generation))

    async def _build_artifact(self, record: Record, event: ArtifactUpdate) -> bytes | None:
        if self._chunks or (event.last_chunk and not event.append):
            return self._encode_event(record)
        if not event.last_chunk:
            return None
        # The last of several chunks that were not sent: the whole artifact is sent instead.
        folded = await self._replay.task(record.generation)
        artifact_id = event.artifact.artifact_id
        artifact = next((each for each in folded.artifacts if each.artifact_id == artifact_id), event.artifact)
        return self._encode_event(Record.of(record.generation, replace(event, artifact=artifact, append=False)))

    def build_from_snapshot(self, stored: StoredTask) -> bytes | None:
        """Build a payload from the task's snapshot alone, for a compacted journal; None without a snapshot."""
        if stored.snapshot is None:
            return None
        task = decode_task(stored.snapshot)
        if not self._form.events:
            return self._encode_task(task)
        return self._encode_event(Record.of(stored.row.generation, StatusUpdate(task.id, task.context_id, task.status)))

    def _encode_event(self, record: Record) -> bytes:
        return self._dialect.write_event(record, last=False)

    def _encode_task(self, task: Task) -> bytes:
        return self._dialect.write_result(Operation.GET, task)
