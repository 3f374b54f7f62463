"""What became of changes that the database did not report as committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.engine.ports.ownership import ContextBusy, MessageRepeated, OwnershipLost
from dragoman.model.error import ServerError, TaskGenerationMismatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.clock import Clock
    from dragoman.engine.ports.store import Write
    from dragoman.stores.postgres.database import ChangeOutcome, Database, TaskOwner

ELSEWHERE = "another server owns the task now: try again with the same messageId"
TAKEN = "another task has the number of this one: try again with the same messageId"
REWOUND = "the database has lost events of the task that it had stored: it was restored, or its standby was behind"


async def judge(
    database: Database,
    clock: Clock,
    node: int,
    sequence: Sequence[Write],
    outcome: ChangeOutcome,
    owner: TaskOwner | None,
    *,
    repeated: bool,
) -> BaseException | None:
    """Return the error for changes of one task that were not reported as committed, or None when they are.

    `owner` is who owns the task now. With `repeated`, the statement was sent before and its outcome is unknown: then
    what looks like a refusal may be the trace of the changes themselves. That is always asked of records under a claim,
    which nobody else can have written.

    Raises:
        ConnectionLost: the database does not answer.
    """
    first = sequence[0]
    row = first.row
    is_new = (first.create and not first.opens_draft) or (first.draft and not first.delete)
    if owner is not None and owner.task_id != row.id:
        # Its number was given out again: the database was restored, or its standby was behind.
        if is_new:
            return ServerError(TAKEN, retryAfter="1")
        owner = None
    if (repeated or (sequence[0].epoch and sequence[0].records)) and await _is_committed(
        database, clock, sequence, owner
    ):
        return None
    if outcome.kind == "busy":
        return ContextBusy("another task of the context is at work")
    if outcome.kind == "repeated":
        return MessageRepeated("another server has accepted this message")
    is_mine = owner is not None and owner.owner == node and owner.epoch == first.epoch
    if is_new or (first.create and is_mine):
        return TaskGenerationMismatch(f"there is a task {row.id} already")
    if not first.epoch:
        if owner is None:
            return TaskGenerationMismatch(f"there is no task {row.id}")
        return TaskGenerationMismatch(f"task {row.id} is at generation {owner.generation}: this does not follow")
    return ServerError(REWOUND) if is_mine else OwnershipLost(ELSEWHERE)


async def _is_committed(database: Database, clock: Clock, sequence: Sequence[Write], owner: TaskOwner | None) -> bool:
    first, number = sequence[0], sequence[0].row.number
    if first.delete and first.draft:
        if owner is not None:
            return False
        if first.dedupe_key is None or first.reply is None:
            return True
        return await database.reply(first.dedupe_key.digest, clock.now()) == first.reply
    if first.delete:
        return owner is None
    if owner is None:
        return False
    if first.draft:  # nobody else uses its number
        return True
    record = next((write.records[-1] for write in reversed(sequence) if write.records), None)
    if record is not None:
        if owner.generation < record.generation:
            return False
        if owner.epoch == (1 if first.create else first.epoch):
            # Only this node writes in this epoch. It may have ended with these very changes, so the owner says nothing.
            return True
        stored = await database.records(number, record.generation - 1, 1)
        return bool(stored) and stored[0].body == record.body
    notes = [note for write in sequence for note in write.notes]
    if not notes:
        return False
    stored_notes = {(note.generation, note.kind, note.body) for note in await database.notes(number)}
    return stored_notes.issuperset((note.generation, note.kind, note.body) for note in notes)
