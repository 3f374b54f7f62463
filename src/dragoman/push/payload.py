"""What a webhook is sent, in the words of the version in which it was registered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from dragoman.dialects.legacy import LEGACY
from dragoman.dialects.v03 import V03_RPC
from dragoman.dialects.v1 import V1_0, V1_1
from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.model.fold import Folding
from dragoman.model.json import decode_task
from dragoman.model.operation import Operation
from dragoman.model.record import Record
from dragoman.model.task import Task

if TYPE_CHECKING:
    from dragoman.engine.ports import Store, StoredTask

_PAGE = 256
_JSON = "application/json"
_A2A_JSON = "application/a2a+json"


class Payloads:
    """Makes the payloads of one webhook, one record after the other."""

    def __init__(self, store: Store, stored: StoredTask, dialect: str, *, chunks: bool) -> None:
        self._store = store
        self._stored = stored
        self._dialect = dialect
        self._chunks = chunks
        self._folding: Folding | None = None

    @property
    def media_type(self) -> str:
        """What the payload is."""
        return _A2A_JSON if self._dialect.startswith("1.") else _JSON

    async def of(self, record: Record) -> bytes | None:
        """What this record is to the webhook; None when it is nothing."""
        event = record.event
        if isinstance(event, StatusUpdate):
            if self._dialect.startswith("1."):
                return self._event(record)
            return self._task(await self._at(record.generation))
        if not isinstance(event, ArtifactUpdate) or not self._dialect.startswith("1."):
            return None
        if self._chunks or (event.last_chunk and not event.append):
            return self._event(record)
        if not event.last_chunk:
            return None
        # The last of several chunks: whoever has not seen the others is told the whole.
        folded = await self._at(record.generation)
        whole = next(each for each in folded.artifacts if each.artifact_id == event.artifact.artifact_id)
        return self._event(Record.of(record.generation, replace(event, artifact=whole, append=False)))

    def last(self, stored: StoredTask) -> bytes | None:
        """What is left to tell of a task whose single events are gone: how it ended."""
        if stored.snapshot is None:
            return None
        task = decode_task(stored.snapshot)
        if not self._dialect.startswith("1."):
            return self._task(task)
        return self._event(Record.of(stored.row.generation, StatusUpdate(task.id, task.context_id, task.status)))

    def _event(self, record: Record) -> bytes:
        return (V1_1 if self._dialect == "1.1" else V1_0).event(record, last=False)

    def _task(self, task: Task) -> bytes:
        dialect = LEGACY if self._dialect == LEGACY.version else V03_RPC
        return dialect.result(Operation.GET, task)

    async def _at(self, generation: int) -> Task:
        """The task as it was after that record."""
        stored = self._stored
        if stored.snapshot is not None and stored.snapshot_generation == generation:
            return decode_task(stored.snapshot)
        while self._folding is None or self._folding.generation < generation:
            after = 0 if self._folding is None else self._folding.generation
            page = await self._store.records(stored.row.number, after, min(_PAGE, generation - after))
            if not page:
                break
            for record in page:
                event = record.event
                if self._folding is None:
                    assert isinstance(event, Task)
                    self._folding = Folding(event)
                elif isinstance(event, (StatusUpdate, ArtifactUpdate)):
                    self._folding.apply(event)
        assert self._folding is not None
        return self._folding.task()
