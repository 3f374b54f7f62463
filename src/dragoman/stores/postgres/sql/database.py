"""The database port on asyncpg: one connection for commits, and a few for everything else."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from dragoman.engine.ports.store import SearchPage, TaskPage
from dragoman.net.postgres import parse_address
from dragoman.stores.postgres.database import InvalidValue
from dragoman.stores.postgres.grouped_calls import GroupedCalls
from dragoman.stores.postgres.sql import claims, reader, retention, tables
from dragoman.stores.postgres.sql.commit import BatchCommit
from dragoman.stores.postgres.sql.partition import reserve_numbers
from dragoman.stores.postgres.sql.retention import UNHURRIED, DaySweeper, SweepPauses
from dragoman.stores.postgres.sql.schema import LOCK_MS, attach_today, migrate
from dragoman.stores.postgres.sql.session import Session, SessionPool

if TYPE_CHECKING:
    from dragoman.engine.ports.ownership import ClaimedTask, TaskClaim
    from dragoman.engine.ports.rows import ExtraRow, TaskTable, Value
    from dragoman.engine.ports.store import (
        DedupeKey,
        JournalRecord,
        Note,
        Push,
        Scope,
        ScopeFilter,
        StoredTask,
        Sweep,
        TaskQuery,
        TaskRow,
        TaskSearch,
        Write,
    )
    from dragoman.model.record import Record
    from dragoman.model.state import State
    from dragoman.net.postgres import PostgresConnection
    from dragoman.stores.postgres.database import ChangeOutcome, TaskOwner

P = ParamSpec("P")
T = TypeVar("T")
# Connections for reads and claims.
POOL_SIZE = 4


def _wall_ms() -> int:
    return int(time.time() * 1000)


class PostgresDatabase:
    """The tables of one store. It implements the port `Database`, which says what each method does.

    `now_ms` is the time that decides whether a dedupe key has expired.
    """

    def __init__(self, url: str, now_ms: Callable[[], int] = _wall_ms, days: DaySweeper | None = None) -> None:
        self._url = url
        self._text = parse_address(url).text
        self._now_ms = now_ms
        self._writer = Session(url)
        self._pool = SessionPool(url, POOL_SIZE)
        self._days = days or DaySweeper()
        self._pauses = SweepPauses()
        self._tables: list[TaskTable] = []
        self._commits = BatchCommit(self._tables)
        self._tasks = GroupedCalls[str, "StoredTask | None"](
            partial(self._run, reader.task), partial(self._run, reader.tasks)
        )
        self._records = GroupedCalls["tuple[int, int, int]", "list[Record]"](
            lambda request: self._run(reader.records, *request), partial(self._run, reader.records_of_many)
        )
        self._notes = GroupedCalls[int, "list[Note]"](
            partial(self._run, reader.notes), partial(self._run, reader.notes_of_many)
        )
        self._releases = GroupedCalls[claims.Release, bool](
            partial(self._run, claims.release), partial(self._run, claims.release_many)
        )

    async def open(self, tables: Sequence[TaskTable]) -> None:
        """Connect, create or migrate the tables of the store, and create those of plug-ins.

        Raises:
            ConnectionLost: no server can be reached now.
            ConfigError: the database cannot be used; the text says what to do.
        """
        self._tables[:] = tables
        await self._writer.open()
        await self._writer.run(self._migrate)

    async def _migrate(self, connection: PostgresConnection) -> None:
        await migrate(connection, f"the database {self._text}")
        await attach_today(connection, f"the database {self._text}")
        await tables.create_tables(connection, self._tables)

    async def close(self) -> None:
        """Close all connections."""
        await self._writer.close()
        await self._pool.close()

    async def _run(
        self, query: Callable[Concatenate[PostgresConnection, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await self._pool.run(lambda connection: query(connection, *args, **kwargs))

    # -- writing -------------------------------------------------------------------------------------------------------

    async def numbers(self, count: int) -> int:
        """Reserve `count` task numbers, and return the first."""
        return await self._run(reserve_numbers, count)

    async def commit(self, node: int, changes: Sequence[Sequence[Write]]) -> list[ChangeOutcome]:
        """Apply the changes of many tasks: one sequence of changes per task, each whole or not at all."""
        return await self._writer.run(
            lambda connection: self._commits.commit(connection, node, changes, self._now_ms())
        )

    async def owners(self, node: int, numbers: Sequence[int]) -> dict[int, TaskOwner]:
        """Who owns these tasks and drafts now."""
        return await self._run(claims.owners, node, numbers)

    async def claim(self, node: int, number: int, generation: int, *, revoke: bool) -> ClaimedTask | None:
        """Claim one task."""
        return await self._run(claims.claim, node, number, generation, revoke=revoke)

    async def release(self, node: int, number: int, epoch: int, *, begun: bool = False) -> bool:
        """Give up a claim of this node on a task, unless it has begun, or also then."""
        return await self._releases.call(claims.Release(node, number, epoch, begun))

    async def take(
        self, node: int, agent: str, *, parallel: bool, limit: int, queued: bool = True
    ) -> list[ClaimedTask]:
        """Claim tasks of an agent that no live node owns."""
        return await self._run(claims.take, node, agent, parallel=parallel, limit=limit, queued=queued)

    async def owned(self, node: int) -> dict[int, TaskClaim]:
        """The tasks that a node owns."""
        return await self._run(claims.owned, node)

    async def post(
        self, row: TaskRow, body: bytes, dedupe_key: DedupeKey | None, generation: int | None, key: int
    ) -> ChangeOutcome:
        """Add a message to a submitted or working task."""
        return await self._run(claims.post, row, body, dedupe_key, generation, key, self._now_ms())

    async def take_pushes(self, node: int, limit: int) -> int:
        """Claim open webhooks that no live node delivers. Returns how many."""
        return await self._run(claims.take_pushes, node, limit)

    async def wake_pushes(self, task_id: str | None, push_id: str | None) -> int:
        """Wake webhooks that are dead or fail: all, those of a task, or one. Returns how many."""
        return await self._run(claims.wake_pushes, task_id, push_id)

    async def replace_row(self, row: ExtraRow, version: Value) -> bool:
        """Replace a row of a plug-in table if it still has `version`."""
        return await self._run(tables.replace_row, row, version)

    async def sweep(self, rules: Sweep) -> int:
        """One step of retention. Returns how many tasks were touched; 0 when all is done."""
        async with self._pauses.step():
            touched = await self._run(retention.sweep, rules, self._tables)
        if touched:
            return touched
        self._pauses.end()
        session = Session(self._url, {"lock_timeout": str(LOCK_MS), "synchronous_commit": UNHURRIED})
        try:
            return await session.run(lambda connection: self._days.step(connection, rules))
        finally:
            await session.close()

    async def check(self, node: int) -> None:
        """Write a row, to prove that the database takes writes."""
        await self._pool.run(lambda connection: connection.execute(claims.PROBE, node))

    # -- reading -------------------------------------------------------------------------------------------------------

    async def mail(self, number: int, after: int) -> list[tuple[int, bytes]]:
        """The posted messages of a task with a number above `after`."""
        return await self._run(reader.mail, number, after)

    async def task(self, task_id: str) -> StoredTask | None:
        """Read a task by its id; None when there is none, or only a draft."""
        try:
            return await self._tasks.call(task_id)
        except InvalidValue:  # no task has an id that cannot be stored
            return None

    async def generations(self, task_ids: Sequence[str]) -> list[tuple[str, int]]:
        """The generations of many tasks."""
        return await self._run(reader.generations, task_ids)

    async def records(self, number: int, after: int, limit: int) -> list[Record]:
        """The records of a task with a generation above `after`, in order, at most `limit`."""
        return await self._records.call((number, after, limit))

    async def journal(self, number: int, after: int, limit: int, budget: int) -> list[JournalRecord]:
        """The records of a task with the times of their commits, up to `budget` bytes."""
        return await self._run(reader.journal, number, after, limit, budget)

    async def notes(self, number: int) -> list[Note]:
        """All notes of a task, in the order they were written."""
        return await self._notes.call(number)

    async def page(self, query: TaskQuery) -> TaskPage:
        """Read one page of tasks."""
        try:
            return await self._run(reader.page, query)
        except InvalidValue:  # no task has what the query asks for
            return TaskPage((), more=False, total=0)

    async def search(self, query: TaskSearch) -> SearchPage:
        """Read one page of the tasks of several scopes."""
        try:
            return await self._run(reader.search, query)
        except InvalidValue:  # no task has what the query asks for
            return SearchPage((), more=False)

    async def counts(self, scopes: ScopeFilter) -> dict[State, int]:
        """How many tasks of these scopes are in each state."""
        try:
            return await self._run(reader.counts, scopes)
        except InvalidValue:
            return {}

    async def context_state(self, scope: Scope, context_id: str) -> bytes | None:
        """The saved `ctx.state` of a conversation as JSON, or None."""
        return await self._run(reader.context_state, scope, context_id)

    async def duplicate_of(self, key: bytes, now_ms: int) -> str | None:
        """The id of the task that accepted a message with this dedupe key, or None."""
        return await self._run(reader.duplicate_of, key, now_ms)

    async def reply(self, key: bytes, now_ms: int) -> bytes | None:
        """The bare message that answered a message with this dedupe key, or None."""
        return await self._run(reader.reply, key, now_ms)

    async def dedupe_keys(self, now_ms: int) -> list[bytes]:
        """The digests of all dedupe keys that have not expired."""
        return await self._run(reader.dedupe_keys, now_ms)

    async def unfinished(self, agent: str) -> list[StoredTask]:
        """The tasks of an agent that are submitted or working, oldest first."""
        return await self._run(reader.unfinished, agent)

    async def drafts(self, agent: str) -> list[StoredTask]:
        """The drafts of an agent, oldest first."""
        return await self._run(reader.drafts, agent)

    async def pushes(self, number: int) -> list[Push]:
        """The webhooks of a task, oldest first."""
        return await self._run(reader.pushes, number)

    async def undelivered_pushes(self, node: int, *, woken: bool) -> list[tuple[Push, TaskRow]]:
        """The open webhooks that this node delivers and all dead ones, oldest first; or only those WOKEN of it."""
        return await self._run(reader.undelivered_pushes, node, woken=woken)

    async def read_row(self, table: TaskTable, key: int) -> ExtraRow | None:
        """Read a row of a plug-in table."""
        return await self._run(tables.read_row, table, key)

    async def last_key(self, table: TaskTable) -> int:
        """The largest key in a plug-in table; 0 when it is empty."""
        return await self._run(tables.last_key, table)
