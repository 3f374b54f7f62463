"""The changes of one task in a commit, folded into what has to be written at the end."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Literal

from msgspec import structs

from dragoman.engine.ports.store import PushState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.engine.ports.rows import ExtraRow
    from dragoman.engine.ports.store import DedupeKey, Push, Write
    from dragoman.model.state import State

# "create" and "draft" insert a row, "open" makes a draft a task, "discard" deletes a draft, and "update" changes what
# is there. "delete" removes a task. "webhooks" are changes that need no claim.
ChangeKind = Literal["create", "draft", "open", "discard", "update", "delete", "webhooks"]


class TaskChange:
    """All changes of one task in a commit. They are applied together or not at all."""

    def __init__(self, sequence: Sequence[Write]) -> None:
        first, last = sequence[0], sequence[-1]
        self.writes = sequence
        self.kind: ChangeKind = _kind_of(first)
        self.first = first
        self.number = first.row.number
        self.epoch = first.epoch
        self.context = (first.row.scope, first.row.context_id)
        # The row after the last record, and the generation before the first.
        self.row = first.row
        self.expected: int | None = None
        self.begins = self.pins = False
        self.snapshot: tuple[int, int, bytes] | None = None
        self.context_state: bytes | None = None
        self.queued = last.queued
        is_consecutive = True
        for write in sequence:
            if write.records:
                if self.expected is None:
                    self.expected = write.records[0].generation - 1
                    generation = self.expected
                else:
                    generation = self.row.generation
                for record in write.records:
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
        # False for records that do not follow each other: such changes are refused.
        self.is_valid = is_consecutive and not (self.kind in ("create", "open") and self.expected != 0)

    @property
    def dedupe_key(self) -> DedupeKey | None:
        """The key of the message that made this change; only the first of a sequence has one."""
        return self.first.dedupe_key

    @property
    def has_records(self) -> bool:
        """True when the journal grows."""
        return self.expected is not None

    @property
    def settles(self) -> bool:
        """True when the run ends with this change: the claim and the turn of the context are given back."""
        return self.has_records and (self.row.state.final or self.row.state.waiting)

    @property
    def needs_turn(self) -> bool:
        """True when a run begins that has to wait for others of its context."""
        if not (self.first.begins and self.first.serial):
            return False
        # Nobody else can know the context of a task that starts one.
        return self.kind == "update" or self.first.joins_context

    @property
    def waits(self) -> bool:
        """True when the task may have to wait for others of its context, which then have to announce their end."""
        if self.kind in ("create", "open"):
            return self.first.joins_context and (self.first.serial or self.queued)
        return self.needs_turn or (self.kind == "update" and self.queued)

    @property
    def changes_context(self) -> bool:
        """True when the row of the context is written, apart from giving back a turn."""
        return self.needs_turn or self.pins or self.context_state is not None

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


def is_delivered(push: Push) -> bool:
    """True for a webhook that no node delivers: it is done or dead."""
    return push.state is not PushState.OPEN
