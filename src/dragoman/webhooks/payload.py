"""What a webhook is sent, in the words of the version in which it was registered."""

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

_PAGE = 256


class PayloadBuilder:
    """Makes the payloads of one webhook, one record after the other."""

    def __init__(self, store: Store, stored: StoredTask, dialect: str, *, chunks: bool) -> None:
        self._replay = Replay(store, stored)
        self._dialect = webhook_dialect(dialect)
        self._form = self._dialect.row.webhook
        self._chunks = chunks

    def renew(self, stored: StoredTask) -> None:
        """Go on with the task as it is now."""
        self._replay.refresh(stored)

    @property
    def stored(self) -> StoredTask:
        """The task as it was read last."""
        return self._replay.stored

    @property
    def media_type(self) -> str:
        """What the payload is."""
        return self._form.media_type

    async def build(self, record: Record) -> bytes | None:
        """What this record is to the webhook; None when it is nothing.

        Raises:
            Compacted: what it takes to tell is gone.
        """
        event = record.event
        if isinstance(event, ArtifactUpdate):
            return await self._artifact(record, event) if self._form.events else None
        if self._form.events:
            return self._event(record)
        return self._task(await self._replay.task(record.generation))

    async def _artifact(self, record: Record, event: ArtifactUpdate) -> bytes | None:
        if self._chunks or (event.last_chunk and not event.append):
            return self._event(record)
        if not event.last_chunk:
            return None
        # The last of several chunks: whoever has not seen the others is told the whole.
        folded = await self._replay.task(record.generation)
        artifact_id = event.artifact.artifact_id
        artifact = next((each for each in folded.artifacts if each.artifact_id == artifact_id), event.artifact)
        return self._event(Record.of(record.generation, replace(event, artifact=artifact, append=False)))

    def build_final(self, stored: StoredTask) -> bytes | None:
        """What is left to tell of a task whose single events are gone: how it ended."""
        if stored.snapshot is None:
            return None
        task = decode_task(stored.snapshot)
        if not self._form.events:
            return self._task(task)
        return self._event(Record.of(stored.row.generation, StatusUpdate(task.id, task.context_id, task.status)))

    def _event(self, record: Record) -> bytes:
        return self._dialect.write_event(record, last=False)

    def _task(self, task: Task) -> bytes:
        return self._dialect.write_result(Operation.GET, task)
