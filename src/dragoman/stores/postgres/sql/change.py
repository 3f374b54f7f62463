"""The changes of one task in a commit, folded into what has to be written at the end."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Literal

from msgspec import structs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.engine.ports.rows import ExtraRow
    from dragoman.engine.ports.store import Push, Write
    from dragoman.model.state import State

# "create" and "draft" insert a row, "open" makes a draft a task, "discard" deletes a draft, and "update" changes what
# is there. "delete" removes a task. "webhooks" are changes that need no claim.
ChangeKind = Literal["create", "draft", "open", "discard", "update", "delete", "webhooks"]


class TaskChange:
    """All changes of one task in a commit. They are applied together or not at all.

    - `row` is the row after the last record, and `expected` the generation before the first; None without records.
    - `dedupe_key` is the key of the message that made the change: only the first of a sequence has one.
    - With `settles` the run ends: the claim and the turn of the context are given back.
    - With `needs_turn` a run begins that has to wait for others of its context. `waits` is also true for a task that is
      queued: those before it have to announce their end.
    - With `changes_context` the row of the context is written, apart from giving back a turn.
    - `is_valid` is False for records that do not follow each other: such changes are refused.
    """

    def __init__(self, sequence: Sequence[Write]) -> None:
        first = sequence[0]
        self.writes = sequence
        self.first = first
        self.kind = kind = _kind_of(first)
        self.row = first.row
        self.number = first.row.number
        self.epoch = first.epoch
        self.context = (first.row.scope, first.row.context_id)
        self.dedupe_key = first.dedupe_key
        self.queued = sequence[-1].queued
        self.begins = self.pins = self.has_pushes = self.has_rows = False
        self.expected: int | None = None
        self.snapshot: tuple[int, int, bytes] | None = None
        self.context_state: bytes | None = None
        is_consecutive = True
        for write in sequence:
            records = write.records
            if records:
                if self.expected is None:
                    self.expected = generation = records[0].generation - 1
                else:
                    generation = self.row.generation
                for record in records:
                    generation += 1
                    is_consecutive &= record.generation == generation
                is_consecutive &= write.row.generation == generation
                self.row = write.row
            if write.snapshot is not None:
                self.snapshot = (write.row.generation, write.mail, write.snapshot)
            if write.context_state is not None:
                self.context_state = write.context_state
            self.begins |= write.begins
            self.pins |= write.pins
            self.has_pushes |= bool(write.pushes or write.deleted_pushes or write.push_progress)
            self.has_rows |= bool(write.rows)
        self.has_records = self.expected is not None
        self.is_valid = is_consecutive and not (kind in ("create", "open") and self.expected != 0)
        state = self.row.state
        self.settles = self.has_records and (state.final or state.waiting)
        # Nobody else can know the context of a task that starts one.
        self.needs_turn = first.begins and first.serial and (kind == "update" or first.joins_context)
        if kind in ("create", "open"):
            self.waits = first.joins_context and (first.serial or self.queued)
        else:
            self.waits = self.needs_turn or (kind == "update" and self.queued)
        self.changes_context = self.needs_turn or self.pins or self.context_state is not None

    def counts(self) -> list[tuple[State, int]]:
        """How the numbers of tasks per state change."""
        changes: list[tuple[State, int]] = []
        for write in self.writes:
            if write.create and not write.draft:
                changes.append((write.row.state, 1))
            elif write.records and write.previous_state not in (None, write.row.state):
                assert write.previous_state is not None
                changes += [(write.previous_state, -1), (write.row.state, 1)]
        if len(changes) > 1:
            totals: dict[State, int] = {}
            for state, change in changes:
                totals[state] = totals.get(state, 0) + change
            changes = [(state, total) for state, total in totals.items() if total]
        return changes

    def rows(self) -> dict[tuple[str, int], ExtraRow]:
        """The last row per key of each plug-in table."""
        return {(row.table.name, row.key): row for write in self.writes for row in write.rows}

    def pushes(self) -> tuple[dict[str, Push], dict[str, Push], set[str]]:
        """The webhooks to write, those with progress, and the ids of those to delete: each id is in one of them."""
        written: dict[str, Push] = {}
        progress: dict[str, Push] = {}
        deleted: set[str] = set()
        for write in self.writes:
            for push in write.pushes:
                written[push.id] = push
                progress.pop(push.id, None)
                deleted.discard(push.id)
            for push_id in write.deleted_pushes:
                deleted.add(push_id)
                written.pop(push_id, None)
                progress.pop(push_id, None)
            for push in write.push_progress:
                current = written.get(push.id)
                if current is not None:
                    if current.created_ms == push.created_ms:
                        written[push.id] = _with_progress(current, push)
                elif push.id not in deleted:
                    progress[push.id] = push
        return written, progress, deleted


def _kind_of(write: Write) -> ChangeKind:
    if write.delete:
        return "discard" if write.draft else "delete"
    if write.draft:
        return "draft"
    if write.create:
        return "open" if write.opens_draft else "create"
    is_about_task = (
        write.records
        or write.notes
        or write.begins
        or write.queued
        or write.snapshot is not None
        or write.context_state is not None
        or write.dedupe_key is not None
        or write.rows
    )
    return "update" if is_about_task else "webhooks"


def _with_progress(push: Push, progress: Push) -> Push:
    names = ("cursor", "tries", "failing_ms", "due_ms", "state", "error")
    return structs.replace(push, **{name: getattr(progress, name) for name in names})


def note_key(write: Write, place: int) -> int:
    """A number that identifies a note: it is the same when its change is sent again."""
    return (write.key << 8 | place) & (1 << 63) - 1 if write.key else secrets.randbits(63)
