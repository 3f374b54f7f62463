"""Tasks kept in this process only: for tests, and for agents that may forget."""

from __future__ import annotations

import asyncio
import heapq
from itertools import islice
from typing import TYPE_CHECKING

from dragoman.engine.ports.store import WOKEN, PushState, StoredTask, TaskPage
from dragoman.model.error import TaskGenerationMismatch
from dragoman.model.record import Record
from dragoman.model.state import State

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.engine.ports.rows import ExtraRow, TaskTable, Value
    from dragoman.engine.ports.store import DedupeKey, Note, Push, Scope, Sweep, TaskQuery, TaskRow, Write

_UNFINISHED = frozenset({State.SUBMITTED, State.WORKING})


class _Kept:
    """Everything about one task. Record n is `bodies[n - 1]`."""

    __slots__ = ("bodies", "dedupe_keys", "notes", "pushes", "row", "snapshot", "snapshot_generation")

    def __init__(self, row: TaskRow) -> None:
        self.row = row
        # Bytes and not records, whose decoded events would be kept alive with them.
        self.bodies: list[bytes] = []
        self.notes: list[Note] = []
        self.dedupe_keys: list[bytes] = []
        self.pushes: dict[str, Push] = {}
        self.snapshot: bytes | None = None
        self.snapshot_generation = 0

    def stored(self) -> StoredTask:
        return StoredTask(self.row, self.snapshot, self.snapshot_generation)


class MemoryStore:
    """A store without a disk. What it took is gone when the process is."""

    durable: bool = False

    def __init__(self) -> None:
        self._last_number = 0
        self._by_id: dict[str, _Kept] = {}
        self._by_number: dict[int, _Kept] = {}
        self._by_scope: dict[Scope, dict[int, _Kept]] = {}
        self._states: dict[tuple[Scope, str], bytes] = {}
        self._conversations: dict[tuple[Scope, str], int] = {}
        # In the order they ended, by number; and those of them whose events are still there.
        self._ended: dict[int, _Kept] = {}
        self._compactable: dict[int, _Kept] = {}
        self._pushed: dict[int, _Kept] = {}
        self._repeats: dict[bytes, tuple[int, str, bytes | None]] = {}
        self._drafts: dict[int, _Kept] = {}
        self._tables: dict[TaskTable, dict[int, ExtraRow]] = {}
        self._unreported: list[tuple[Callable[[BaseException | None], None], BaseException | None]] = []

    def add_table(self, table: TaskTable) -> None:
        """Keep the table of a plug-in too."""
        self._tables.setdefault(table, {})

    async def open(self) -> None:
        """Do nothing: it is ready."""

    async def close(self) -> None:
        """Report what has not been reported yet."""
        while self._unreported:
            self._report()

    async def check(self) -> None:
        """Do nothing: it always takes writes."""

    # -- writing ---------------------------------------------------------------------------------------------------

    def next_number(self) -> int:
        """A number no other task has, larger than all before."""
        self._last_number += 1
        return self._last_number

    def write(self, write: Write) -> None:
        """Make a change. The outcome arrives through `write.done` on the next turn of the loop."""
        error = self._apply(write)
        # The caller is in the middle of something and must not be called back from here.
        if not self._unreported:
            asyncio.get_running_loop().call_soon(self._report)
        self._unreported.append((write.done, error))

    def _report(self) -> None:
        unreported, self._unreported = self._unreported, []
        for done, error in unreported:
            try:
                done(error)
            except Exception as failure:  # noqa: BLE001 - one caller's mistake must not keep the others waiting
                asyncio.get_running_loop().call_exception_handler(
                    {"message": "a store's write could not be reported", "exception": failure}
                )

    def _apply(self, write: Write) -> BaseException | None:
        row, records = write.row, write.records
        if write.draft:
            self._draft(write)
            return None
        if write.delete:
            self._delete(row)
            return None
        draft = self._drafts.get(row.number) if self._drafts else None
        if draft is not None and not write.create:
            draft.notes.extend(write.notes)
            return None
        kept = _Kept(row) if write.create else self._by_id.get(row.id)
        if kept is None:
            return TaskGenerationMismatch(f"there is no task {row.id}")
        if not records and not write.notes and (write.pushes or write.deleted_pushes or write.push_progress):
            # Webhooks alone: whoever writes this may have seen an older row of the task.
            self._push(kept, write)
            return None
        generation = len(kept.bodies) + len(records)
        error = self._conflict(write, kept, generation)
        if error is not None:
            return error
        if write.create:
            if draft is not None:
                self._open_draft(kept, draft)
            self._add(kept)
        for record in records:
            kept.bodies.append(record.body)
        kept.row = row
        if row.state.final and row.number not in self._ended:
            self._ended[row.number] = self._compactable[row.number] = kept
        kept.notes.extend(write.notes)
        if write.snapshot is not None:
            kept.snapshot, kept.snapshot_generation = write.snapshot, generation
        self._keep_beside(kept, write)
        return None

    def _draft(self, write: Write) -> None:
        kept = self._drafts.pop(write.row.number, None) or _Kept(write.row)
        if not write.delete:
            kept.snapshot, kept.snapshot_generation = write.snapshot, 1
            kept.notes.extend(write.notes)
            kept.pushes.update((push.id, push) for push in write.pushes)
            self._drafts[write.row.number] = kept
        if write.dedupe_key is not None:
            self._mark(kept, write.dedupe_key, write.reply)

    def _open_draft(self, kept: _Kept, draft: _Kept) -> None:
        """Give a new task what its draft had."""
        del self._drafts[kept.row.number]
        kept.notes, kept.dedupe_keys, kept.pushes = draft.notes, draft.dedupe_keys, draft.pushes
        if kept.pushes:
            self._pushed[kept.row.number] = kept

    def _keep_beside(self, kept: _Kept, write: Write) -> None:
        row = write.row
        if write.context_state is not None:
            self._states[row.scope, row.context_id] = write.context_state
        if write.dedupe_key is not None:
            self._mark(kept, write.dedupe_key)
        if write.pushes or write.deleted_pushes or write.push_progress:
            self._push(kept, write)
        for extra in write.rows:
            self._tables[extra.table][extra.key] = extra

    def _conflict(self, write: Write, kept: _Kept, generation: int) -> BaseException | None:
        row, records = write.row, write.records
        if write.create and (row.id in self._by_id or row.number in self._by_number):
            return TaskGenerationMismatch(f"there is a task {row.id} or a task number {row.number} already")
        if row.generation != generation or (records and records[-1].generation != generation):
            return TaskGenerationMismatch(f"task {row.id} is at generation {len(kept.bodies)}: this does not follow")
        return None

    def _push(self, kept: _Kept, write: Write) -> None:
        for push in write.pushes:
            kept.pushes[push.id] = push
        for push_id in write.deleted_pushes:
            kept.pushes.pop(push_id, None)
        for push in write.push_progress:
            known = kept.pushes.get(push.id)
            if known is not None and known.created_ms == push.created_ms:
                kept.pushes[push.id] = push
        # Most tasks have no webhook: those that have are found without looking at the others.
        if kept.pushes:
            self._pushed[kept.row.number] = kept
        else:
            self._pushed.pop(kept.row.number, None)

    def _add(self, kept: _Kept) -> None:
        row = kept.row
        self._by_id[row.id] = kept
        self._by_number[row.number] = kept
        self._by_scope.setdefault(row.scope, {})[row.number] = kept
        self._last_number = max(self._last_number, row.number)
        conversation = (row.scope, row.context_id)
        self._conversations[conversation] = self._conversations.get(conversation, 0) + 1

    async def sweep(self, rules: Sweep) -> int:
        """Delete and compact some of what the rules name. Gives how many tasks were touched."""
        aged = rules.ended_before_ms
        surplus = 0 if rules.keep_tasks is None else max(0, len(self._ended) - rules.keep_tasks)
        gone: list[_Kept] = []
        for kept in islice(self._ended.values(), rules.limit):
            if len(gone) >= surplus and (aged is None or kept.row.status_ms >= aged):
                break
            gone.append(kept)
        for kept in gone:
            self._delete(kept.row)
        compact: list[_Kept] = []
        for kept in islice(self._compactable.values(), rules.limit - len(gone)):
            if rules.compact_before_ms is None or kept.row.status_ms >= rules.compact_before_ms:
                break
            compact.append(kept)
        for kept in compact:
            del self._compactable[kept.row.number]
            if kept.snapshot_generation == kept.row.generation:
                kept.bodies.clear()
                kept.notes.clear()
        return len(gone) + len(compact)

    def _delete(self, row: TaskRow) -> None:
        kept = self._by_id.pop(row.id, None)
        if kept is None:
            return
        del self._by_number[kept.row.number]
        self._ended.pop(kept.row.number, None)
        self._compactable.pop(kept.row.number, None)
        self._pushed.pop(kept.row.number, None)
        del self._by_scope[kept.row.scope][kept.row.number]
        for table, rows in self._tables.items():
            key = table.key_of(row.id)
            if key is not None:
                rows.pop(key, None)
        conversation = (kept.row.scope, kept.row.context_id)
        self._conversations[conversation] -= 1
        if not self._conversations[conversation]:  # it is over: nobody can go on with it
            del self._conversations[conversation]
            self._states.pop(conversation, None)
        for key in kept.dedupe_keys:
            if self._repeats.get(key, (0, "", None))[1] == row.id:
                del self._repeats[key]

    async def replace_row(self, row: ExtraRow, version: Value) -> bool:
        """Change a row of a plug-in's table, if it still has that version."""
        rows = self._tables[row.table]
        kept = rows.get(row.key)
        if kept is None or kept.values[row.table.position(row.table.version)] != version:
            return False
        rows[row.key] = row
        return True

    def _mark(self, kept: _Kept, repeat: DedupeKey, reply: bytes | None = None) -> None:
        while self._repeats:
            key, (until_ms, _, _) = next(iter(self._repeats.items()))
            if until_ms > kept.row.status_ms:
                break
            del self._repeats[key]
        # Taken out first, so that the oldest marks stay in front.
        self._repeats.pop(repeat.digest, None)
        self._repeats[repeat.digest] = (repeat.expires_ms, kept.row.id, reply)
        kept.dedupe_keys.append(repeat.digest)

    # -- reading ---------------------------------------------------------------------------------------------------

    async def task(self, task_id: str) -> StoredTask | None:
        """Find a task by its id."""
        kept = self._by_id.get(task_id)
        return None if kept is None else kept.stored()

    async def records(self, number: int, after: int, limit: int) -> list[Record]:
        """The records of a task with a generation above `after`, in order, at most `limit`."""
        kept = self._by_number.get(number)
        if kept is None:
            return []
        return [Record(after + 1 + index, body) for index, body in enumerate(kept.bodies[after : after + limit])]

    async def notes(self, number: int) -> list[Note]:
        """All notes of a task, in the order they were written."""
        kept = self._by_number.get(number)
        return [] if kept is None else list(kept.notes)

    async def pushes(self, number: int) -> list[Push]:
        """The webhooks of a task, oldest first."""
        kept = self._pushed.get(number)
        return [] if kept is None else list(kept.pushes.values())

    async def undelivered_pushes(self, *, woken: bool = False) -> list[tuple[Push, TaskRow]]:
        """The webhooks that are not done, with their tasks, oldest first; or only those that were woken."""
        found = sorted(self._pushed.items())
        return [
            (push, kept.row)
            for _, kept in found
            for push in kept.pushes.values()
            if push.state is not PushState.DONE and (not woken or push.due_ms == WOKEN)
        ]

    async def read_row(self, table: TaskTable, key: int) -> ExtraRow | None:
        """A row of a plug-in's table."""
        return self._tables[table].get(key)

    async def last_key(self, table: TaskTable) -> int:
        """The largest key in a plug-in's table; 0 when it is empty."""
        return max(self._tables[table], default=0)

    async def page(self, query: TaskQuery) -> TaskPage:
        """One page of tasks, newest status first."""
        found = [kept.row for kept in self._by_scope.get(query.scope, {}).values() if _matches(kept.row, query)]
        total = len(found)
        if query.after is not None:
            found = [row for row in found if _place(row) < query.after]
        first = heapq.nlargest(query.limit + 1, found, key=_place)
        return TaskPage.of((self._by_id[row.id].stored() for row in first), query, total)

    async def context_state(self, scope: Scope, context_id: str) -> bytes | None:
        """The state kept for a conversation."""
        return self._states.get((scope, context_id))

    async def duplicate_of(self, key: bytes, now_ms: int) -> str | None:
        """The task a message with this mark was accepted into, if that was recently."""
        until_ms, task_id, _ = self._repeats.get(key, (now_ms, "", None))
        return task_id if until_ms > now_ms else None

    async def reply(self, key: bytes, now_ms: int) -> bytes | None:
        """The bare message that one with this mark was answered with, if that was recently."""
        until_ms, _, reply = self._repeats.get(key, (now_ms, "", None))
        return reply if until_ms > now_ms else None

    async def dedupe_keys(self, now_ms: int) -> list[bytes]:
        """The marks of all messages that were accepted recently."""
        return [key for key, (until_ms, _, _) in self._repeats.items() if until_ms > now_ms]

    async def unfinished(self, agent: str) -> list[StoredTask]:
        """The tasks of an agent that are submitted or working, oldest first."""
        return [
            kept.stored()
            for _, kept in sorted(self._by_number.items())
            if kept.row.scope.agent == agent and kept.row.state in _UNFINISHED
        ]

    async def drafts(self, agent: str) -> list[StoredTask]:
        """The drafts of an agent, oldest first."""
        return [kept.stored() for _, kept in sorted(self._drafts.items()) if kept.row.scope.agent == agent]


def _place(row: TaskRow) -> tuple[int, int]:
    return row.status_ms, row.number


def _matches(row: TaskRow, query: TaskQuery) -> bool:
    return (
        (query.context_id is None or row.context_id == query.context_id)
        and (query.state is None or row.state is query.state)
        and (query.since_ms is None or row.status_ms >= query.since_ms)
    )
