"""In-memory store, for tests and for agents whose tasks need not survive a restart."""

from __future__ import annotations

import asyncio
import heapq
from array import array
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import structs

from dragoman.clock import SystemClock
from dragoman.engine.ports.ownership import MessageRepeated
from dragoman.engine.ports.store import WOKEN, JournalRecord, PushState, SearchPage, StoredTask, TaskPage
from dragoman.model.error import TaskGenerationMismatch
from dragoman.model.record import Record
from dragoman.model.state import State
from dragoman.stores.sole import MailWrite, SoleWriter

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from dragoman.clock import Clock
    from dragoman.engine.ports.rows import ExtraRow, TaskTable, Value
    from dragoman.engine.ports.store import (
        DedupeKey,
        Note,
        Push,
        Scope,
        ScopeFilter,
        Sweep,
        TaskQuery,
        TaskRow,
        TaskSearch,
        Write,
    )

_UNFINISHED = frozenset({State.SUBMITTED, State.WORKING})
# So many tasks are looked at before others have a turn: some milliseconds.
_SLICE = 5000


class _TaskEntry:
    """Everything stored about one task. The body of record n is `bodies[n - 1]`, and its time `times[n - 1]`."""

    __slots__ = (
        "bodies",
        "dedupe_keys",
        "mail",
        "notes",
        "pushes",
        "row",
        "snapshot",
        "snapshot_generation",
        "snapshot_mail",
        "times",
    )

    def __init__(self, row: TaskRow) -> None:
        self.row = row
        # Bytes instead of records, which would keep their decoded events alive.
        self.bodies: list[bytes] = []
        self.times = array("q")
        self.notes: list[Note] = []
        self.dedupe_keys: list[bytes] = []
        self.pushes: dict[str, Push] = {}
        self.snapshot: bytes | None = None
        self.snapshot_generation = 0
        # The numbers of the last posted message, and of the last one in the snapshot.
        self.mail = self.snapshot_mail = 0

    def stored_task(self) -> StoredTask:
        return StoredTask(self.row, self.snapshot, self.snapshot_generation, self.mail, self.snapshot_mail)


class MemoryStore(SoleWriter):
    """A store in this process's memory. Nothing survives the process."""

    durable: bool = False

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__()
        self._clock = clock or SystemClock()
        # The time of the changes in this turn of the event loop, which are reported together.
        self._at_ms = self._clock.now()
        self._last_number = 0
        self._by_id: dict[str, _TaskEntry] = {}
        self._by_number: dict[int, _TaskEntry] = {}
        self._by_scope: dict[Scope, dict[int, _TaskEntry]] = {}
        self._context_states: dict[tuple[Scope, str], bytes] = {}
        self._conversations: dict[tuple[Scope, str], int] = {}
        # By number, in the order in which the tasks ended. Compactable tasks still have their events.
        self._ended_tasks: dict[int, _TaskEntry] = {}
        self._compactable_tasks: dict[int, _TaskEntry] = {}
        self._with_webhooks: dict[int, _TaskEntry] = {}
        self._repeats: dict[bytes, tuple[int, str, bytes | None]] = {}
        self._drafts: dict[int, _TaskEntry] = {}
        self._tables: dict[TaskTable, dict[int, ExtraRow]] = {}
        self._unreported: list[tuple[Write, BaseException | None]] = []

    def add_table(self, table: TaskTable) -> None:
        """Add a plug-in table, effective at once."""
        self._tables.setdefault(table, {})

    async def open(self) -> None:
        """Do nothing: a memory store needs no opening."""

    async def close(self) -> None:
        """Report the writes that have not been reported yet."""
        while self._unreported:
            self._report_all()

    async def check(self) -> None:
        """Do nothing: a memory store always takes writes."""

    # -- writing ---------------------------------------------------------------------------------------------------

    def next_number(self) -> int:
        """Return a new task number, larger than all before."""
        self._last_number += 1
        return self._last_number

    def queue(self, write: Write) -> None:
        """Apply a change at once; it is reported on the next turn of the event loop."""
        if not self._unreported:
            # Reported later: the caller must not be called back from within its own call.
            asyncio.get_running_loop().call_soon(self._report_all)
            self._at_ms = self._clock.now()
        error = self._apply(write)
        self._unreported.append((write, error))

    def _report_all(self) -> None:
        unreported, self._unreported = self._unreported, []
        for write, error in unreported:
            try:
                if write.dedupe_key is None:
                    write.done(error)
                else:
                    self.report(write, error)
            except Exception as failure:  # noqa: BLE001 - one failing callback must not stop the others
                asyncio.get_running_loop().call_exception_handler(
                    {"message": "a store's write could not be reported", "exception": failure}
                )

    def _apply(self, write: Write) -> BaseException | None:
        if isinstance(write, MailWrite):
            self._post(write)
            return None
        if write.dedupe_key is not None and self._is_repeated(write.dedupe_key, write.row):
            return MessageRepeated("another task has accepted this message")
        if write.draft or write.delete:
            (self._write_draft if write.draft else self._delete)(write)
            return None
        row, records = write.row, write.records
        draft = self._drafts.get(row.number) if self._drafts else None
        if draft is not None and not write.create:
            return _add_to_draft(draft, write)
        entry = _TaskEntry(row) if write.create else self._by_id.get(row.id)
        if entry is None:
            return TaskGenerationMismatch(f"there is no task {row.id}")
        if not records and not write.notes and (write.pushes or write.deleted_pushes or write.push_progress):
            # Webhooks alone: the writer may hold an older row of the task.
            self._write_pushes(entry, write)
            return None
        generation = len(entry.bodies) + len(records)
        error = self._find_conflict(write, entry, generation)
        if error is not None:
            return error
        if write.create:
            if draft is not None:
                self._open_draft(entry, draft)
            self._add(entry)
        for record in records:
            entry.bodies.append(record.body)
            entry.times.append(self._at_ms)
        entry.row = row
        if row.state.final and row.number not in self._ended_tasks:
            self._ended_tasks[row.number] = self._compactable_tasks[row.number] = entry
        entry.notes.extend(write.notes)
        self._write_related(entry, write)
        return None

    def _post(self, post: MailWrite) -> None:
        key, entry = post.dedupe_key, self._by_number.get(post.row.number)
        if key is not None and self._repeats.get(key.digest, (0,))[0] > (key.at_ms or post.row.status_ms):
            post.outcome.is_repeated = True
        elif entry is not None and post.fits(entry.row.state, entry.row.generation):
            entry.mail += 1
            entry.notes.append(post.numbered_note(entry.row.generation, entry.mail))
            post.outcome.number = entry.mail
            if key is not None:
                self._add_dedupe_key(entry, key)

    def _is_repeated(self, key: DedupeKey, row: TaskRow) -> bool:
        until_ms, task_id, _ = self._repeats.get(key.digest, (0, "", None))
        return task_id != row.id and until_ms > (key.at_ms or row.status_ms)

    def _write_draft(self, write: Write) -> None:
        entry = self._drafts.pop(write.row.number, None) or _TaskEntry(write.row)
        if not write.delete:
            entry.snapshot, entry.snapshot_generation = write.snapshot, 1
            entry.notes.extend(write.notes)
            entry.pushes.update((push.id, push) for push in write.pushes)
            self._drafts[write.row.number] = entry
        if write.dedupe_key is not None:
            self._add_dedupe_key(entry, write.dedupe_key, write.reply)

    def _open_draft(self, entry: _TaskEntry, draft: _TaskEntry) -> None:
        """Move notes, dedupe keys and webhooks from a draft to its task."""
        del self._drafts[entry.row.number]
        entry.notes, entry.dedupe_keys, entry.pushes = draft.notes, draft.dedupe_keys, draft.pushes
        if entry.pushes:
            self._with_webhooks[entry.row.number] = entry

    def _write_related(self, entry: _TaskEntry, write: Write) -> None:
        row = write.row
        if write.snapshot is not None:
            entry.snapshot, entry.snapshot_generation, entry.snapshot_mail = write.snapshot, row.generation, write.mail
        if write.context_state is not None:
            self._context_states[row.scope, row.context_id] = write.context_state
        if write.dedupe_key is not None:
            self._add_dedupe_key(entry, write.dedupe_key)
        if write.pushes or write.deleted_pushes or write.push_progress:
            self._write_pushes(entry, write)
        for extra in write.rows:
            self._tables[extra.table][extra.key] = extra

    def _find_conflict(self, write: Write, entry: _TaskEntry, generation: int) -> BaseException | None:
        row, records = write.row, write.records
        if write.create and (row.id in self._by_id or row.number in self._by_number):
            return TaskGenerationMismatch(f"there is a task {row.id} or a task number {row.number} already")
        if row.generation != generation or (records and records[-1].generation != generation):
            return TaskGenerationMismatch(f"task {row.id} is at generation {len(entry.bodies)}: this does not follow")
        return None

    def _write_pushes(self, entry: _TaskEntry, write: Write) -> None:
        for push in write.pushes:
            entry.pushes[push.id] = push
        for push_id in write.deleted_pushes:
            entry.pushes.pop(push_id, None)
        for push in write.push_progress:
            existing = entry.pushes.get(push.id)
            if existing is not None and existing.created_ms == push.created_ms:
                entry.pushes[push.id] = push
        # Most tasks have no webhook, so those that have one are indexed.
        if entry.pushes:
            self._with_webhooks[entry.row.number] = entry
        else:
            self._with_webhooks.pop(entry.row.number, None)

    def _add(self, entry: _TaskEntry) -> None:
        row = entry.row
        self._by_id[row.id] = entry
        self._by_number[row.number] = entry
        self._by_scope.setdefault(row.scope, {})[row.number] = entry
        self._last_number = max(self._last_number, row.number)
        conversation = (row.scope, row.context_id)
        self._conversations[conversation] = self._conversations.get(conversation, 0) + 1

    async def sweep(self, rules: Sweep) -> int:
        """Delete and compact at most `rules.limit` tasks, and return how many. Dedupe keys expire without it."""
        ended_before_ms = rules.ended_before_ms
        surplus = 0 if rules.keep_tasks is None else max(0, len(self._ended_tasks) - rules.keep_tasks)
        deleted: list[_TaskEntry] = []
        for entry in islice(self._ended_tasks.values(), rules.limit):
            if len(deleted) >= surplus and (ended_before_ms is None or entry.row.status_ms >= ended_before_ms):
                break
            deleted.append(entry)
        for entry in deleted:
            self._delete_task(entry.row.id)
        compacted: list[_TaskEntry] = []
        for entry in islice(self._compactable_tasks.values(), rules.limit - len(deleted)):
            if rules.compact_before_ms is None or entry.row.status_ms >= rules.compact_before_ms:
                break
            compacted.append(entry)
        for entry in compacted:
            del self._compactable_tasks[entry.row.number]
            if entry.snapshot_generation == entry.row.generation:
                entry.bodies.clear()
                del entry.times[:]
                # The messages that were posted after the snapshot was made are nowhere else.
                entry.notes = [note for note in entry.notes if note.mail > entry.snapshot_mail]
        return len(deleted) + len(compacted)

    def _delete(self, write: Write) -> None:
        self._delete_task(write.row.id)

    def _delete_task(self, task_id: str) -> None:
        entry = self._by_id.pop(task_id, None)
        if entry is None:
            return
        del self._by_number[entry.row.number]
        self._ended_tasks.pop(entry.row.number, None)
        self._compactable_tasks.pop(entry.row.number, None)
        self._with_webhooks.pop(entry.row.number, None)
        del self._by_scope[entry.row.scope][entry.row.number]
        for table, rows in self._tables.items():
            key = table.key_of(task_id)
            if key is not None:
                rows.pop(key, None)
        conversation = (entry.row.scope, entry.row.context_id)
        self._conversations[conversation] -= 1
        if not self._conversations[conversation]:  # a context without tasks cannot be continued
            del self._conversations[conversation]
            self._context_states.pop(conversation, None)
        for key in entry.dedupe_keys:
            if self._repeats.get(key, (0, "", None))[1] == task_id:
                del self._repeats[key]
                self._keys.forget(key)

    async def replace_row(self, row: ExtraRow, version: Value) -> bool:
        """Replace a row of a plug-in table if it still has that version. Return whether it had."""
        rows = self._tables[row.table]
        existing = rows.get(row.key)
        if existing is None or existing.values[row.table.position(row.table.version)] != version:
            return False
        rows[row.key] = row
        return True

    def _add_dedupe_key(self, entry: _TaskEntry, dedupe_key: DedupeKey, reply: bytes | None = None) -> None:
        while self._repeats:
            key, (until_ms, _, _) = next(iter(self._repeats.items()))
            if until_ms > entry.row.status_ms:
                break
            del self._repeats[key]
        # Removed first, so that the dict stays ordered by age.
        self._repeats.pop(dedupe_key.digest, None)
        self._repeats[dedupe_key.digest] = (dedupe_key.expires_ms, entry.row.id, reply)
        entry.dedupe_keys.append(dedupe_key.digest)

    # -- reading ---------------------------------------------------------------------------------------------------

    async def task(self, task_id: str) -> StoredTask | None:
        """Read a task by its id; None when there is none, or only a draft."""
        entry = self._by_id.get(task_id)
        return None if entry is None else entry.stored_task()

    async def records(self, number: int, after: int, limit: int) -> list[Record]:
        """The records of a task with a generation above `after`, in order, at most `limit`."""
        entry = self._by_number.get(number)
        if entry is None:
            return []
        return [Record(after + 1 + index, body) for index, body in enumerate(entry.bodies[after : after + limit])]

    async def journal(self, number: int, after: int, limit: int, budget: int) -> list[JournalRecord]:
        """The records of a task with the times of their commits, up to `budget` bytes."""
        entries: list[JournalRecord] = []
        entry = self._by_number.get(number)
        if entry is not None:
            for index in range(after, min(after + limit, len(entry.bodies))):
                entries.append(JournalRecord(index + 1, entry.times[index], entry.bodies[index]))
                budget -= len(entry.bodies[index])
                if budget <= 0:
                    break
        return entries

    async def notes(self, number: int) -> list[Note]:
        """All notes of a task, in the order they were written."""
        entry = self._by_number.get(number)
        return [] if entry is None else list(entry.notes)

    async def mail(self, number: int, after: int) -> list[tuple[int, bytes]]:
        """The messages that were added to a task with `post`, with their numbers, after number `after`."""
        entry = self._by_number.get(number)
        return [] if entry is None else [(note.mail, note.body) for note in entry.notes if note.mail > after]

    async def pushes(self, number: int) -> list[Push]:
        """The webhooks of a task, oldest first."""
        entry = self._with_webhooks.get(number)
        return [] if entry is None else list(entry.pushes.values())

    async def undelivered_pushes(self, *, woken: bool = False) -> list[tuple[Push, TaskRow]]:
        """The webhooks that are not done, with their tasks, oldest task first; or only those that were woken."""
        entries = sorted(self._with_webhooks.items())
        return [
            (push, entry.row)
            for _, entry in entries
            for push in entry.pushes.values()
            if push.state is not PushState.DONE and (not woken or push.due_ms == WOKEN)
        ]

    async def wake_pushes(self, task_id: str, push_id: str) -> int:
        """Wake a webhook that is dead or fails. Returns how many were woken."""
        entry = self._by_id.get(task_id)
        push = None if entry is None else entry.pushes.get(push_id)
        if (
            entry is None
            or push is None
            or not (push.state is PushState.DEAD or (push.state is PushState.OPEN and push.tries))
        ):
            return 0
        entry.pushes[push_id] = structs.replace(push, state=PushState.OPEN, tries=0, failing_ms=0, due_ms=WOKEN)
        return 1

    async def read_row(self, table: TaskTable, key: int) -> ExtraRow | None:
        """Read a row of a plug-in table."""
        return self._tables[table].get(key)

    async def last_key(self, table: TaskTable) -> int:
        """The largest key in a plug-in table; 0 when it is empty."""
        return max(self._tables[table], default=0)

    async def page(self, query: TaskQuery) -> TaskPage:
        """One page of tasks, newest status first."""
        rows = [entry.row for entry in self._by_scope.get(query.scope, {}).values() if _matches(entry.row, query)]
        total = len(rows)
        if query.after is not None:
            rows = [row for row in rows if _sort_key(row) < query.after]
        first = heapq.nlargest(query.limit + 1, rows, key=_sort_key)
        return TaskPage.of((self._by_id[row.id].stored_task() for row in first), query, total)

    async def search(self, query: TaskSearch) -> SearchPage:
        """One page of the tasks of several scopes, newest status first."""
        newest: list[tuple[int, int, TaskRow, _TaskEntry]] = []
        async for entries in self._slices(query.scopes):
            found = [
                # The row of now: with a later one, the cursor after a page would be before its last task.
                (*_sort_key(entry.row), entry.row, entry)
                for entry in entries
                if _matches(entry.row, query)
                and (query.until_ms is None or entry.row.status_ms < query.until_ms)
                and (query.after is None or _sort_key(entry.row) < query.after)
            ]
            newest = heapq.nlargest(query.limit + 1, [*newest, *found])
        return SearchPage.of((entry.stored_task()._replace(row=row) for _, _, row, entry in newest), query)

    async def counts(self, scopes: ScopeFilter) -> dict[State, int]:
        """How many tasks of these scopes are in each state."""
        counts: Counter[State] = Counter()
        async for entries in self._slices(scopes):
            counts.update(entry.row.state for entry in entries)
        return counts

    async def _slices(self, scopes: ScopeFilter) -> AsyncGenerator[Sequence[_TaskEntry], None]:
        """Yield the entries of these scopes, some at a time: there may be many, and others are served in between."""
        entries = [
            entry for scope, found in self._by_scope.items() if scopes.matches(scope) for entry in found.values()
        ]
        for start in range(0, len(entries), _SLICE):
            if start:
                await asyncio.sleep(0)
            yield entries[start : start + _SLICE]

    async def context_state(self, scope: Scope, context_id: str) -> bytes | None:
        """The saved `ctx.state` of a conversation as JSON, or None."""
        return self._context_states.get((scope, context_id))

    async def read_duplicate(self, key: bytes, now_ms: int) -> str | None:
        until_ms, task_id, _ = self._repeats.get(key, (now_ms, "", None))
        return task_id if until_ms > now_ms else None

    async def read_reply(self, key: bytes, now_ms: int) -> bytes | None:
        until_ms, _, reply = self._repeats.get(key, (now_ms, "", None))
        return reply if until_ms > now_ms else None

    async def dedupe_keys(self, now_ms: int) -> list[bytes]:
        """The digests of all dedupe keys that have not expired."""
        return [key for key, (until_ms, _, _) in self._repeats.items() if until_ms > now_ms]

    async def unfinished(self, agent: str) -> list[StoredTask]:
        """The tasks of an agent that are submitted or working, oldest first."""
        return [
            entry.stored_task()
            for _, entry in sorted(self._by_number.items())
            if entry.row.scope.agent == agent and entry.row.state in _UNFINISHED
        ]

    async def drafts(self, agent: str) -> list[StoredTask]:
        """The drafts of an agent, oldest first."""
        return [entry.stored_task() for _, entry in sorted(self._drafts.items()) if entry.row.scope.agent == agent]


def _add_to_draft(draft: _TaskEntry, write: Write) -> BaseException | None:
    if write.records:
        return TaskGenerationMismatch(f"task {write.row.id} is a draft: this does not follow")
    draft.notes.extend(write.notes)
    return None


def _sort_key(row: TaskRow) -> tuple[int, int]:
    return row.status_ms, row.number


def _matches(row: TaskRow, query: TaskQuery | TaskSearch) -> bool:
    return (
        (query.context_id is None or row.context_id == query.context_id)
        and (query.state is None or row.state is query.state)
        and (query.since_ms is None or row.status_ms >= query.since_ms)
    )
