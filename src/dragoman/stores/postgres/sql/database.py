"""The database port on asyncpg: one connection for commits, and a few for everything else."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from dragoman.net.postgres import parse_address
from dragoman.stores.postgres.grouped_calls import GroupedCalls
from dragoman.stores.postgres.sql import claims, reader, retention, tables
from dragoman.stores.postgres.sql.commit import BatchCommit
from dragoman.stores.postgres.sql.partition import reserve_numbers
from dragoman.stores.postgres.sql.retention import UNHURRIED, DaySweeper, SweepPauses
from dragoman.stores.postgres.sql.schema import LOCK_MS, attach_today, migrate
from dragoman.stores.postgres.sql.session import Session, SessionPool

if TYPE_CHECKING:
    from dragoman.engine.ports.ownership import ClaimedTask
    from dragoman.engine.ports.rows import TaskTable
    from dragoman.engine.ports.store import DedupeKey, Note, Sweep, TaskRow, Write
    from dragoman.model.record import Record
    from dragoman.net.postgres import PostgresConnection
    from dragoman.stores.postgres.database import ChangeOutcome, Query, TaskOwner

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
        grouped = {**reader.GROUPED, claims.release: claims.release_many}
        self._groups: dict[Callable[..., Awaitable[Any]], GroupedCalls[tuple[Any, ...], Any]] = {
            one: self._group(one, many) for one, many in grouped.items()
        }

    def _group(
        self,
        one: Callable[..., Awaitable[Any]],
        many: Callable[[PostgresConnection, Sequence[Any]], Awaitable[Sequence[Any]]],
    ) -> GroupedCalls[tuple[Any, ...], Any]:
        return GroupedCalls(
            lambda args: self._pool.run(lambda connection: one(connection, *args)),
            lambda requests: self._pool.run(lambda connection: many(connection, requests)),
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

    async def run(self, query: Query[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a query, or several calls of it in one statement. Raises what `Session.run` raises."""
        group = self._groups.get(query)
        if group is None or kwargs:  # groups tell calls apart by their positional arguments
            return await self._pool.run(lambda connection: query(connection, *args, **kwargs))
        return await group.call(args)

    async def numbers(self, count: int) -> int:
        """Reserve `count` task numbers, and return the first."""
        return await self.run(reserve_numbers, count)

    async def commit(self, node: int, changes: Sequence[Sequence[Write]]) -> list[ChangeOutcome]:
        """Apply the changes of many tasks: one sequence of changes per task, each whole or not at all."""
        return await self._writer.run(
            lambda connection: self._commits.commit(connection, node, changes, self._now_ms())
        )

    async def owners(self, node: int, numbers: Sequence[int]) -> dict[int, TaskOwner]:
        """Who owns these tasks and drafts now."""
        return await self.run(claims.owners, node, numbers)

    async def claim(self, node: int, number: int, generation: int, *, revoke: bool) -> ClaimedTask | None:
        """Claim one task."""
        return await self.run(claims.claim, node, number, generation, revoke=revoke)

    async def release(self, node: int, number: int, epoch: int, *, begun: bool = False) -> bool:
        """Give up a claim of this node on a task, unless it has begun, or also then."""
        return await self.run(claims.release, node, number, epoch, begun)

    async def take(
        self, node: int, agent: str, *, parallel: bool, limit: int, queued: bool = True
    ) -> list[ClaimedTask]:
        """Claim tasks of an agent that no live node owns."""
        return await self.run(claims.take, node, agent, parallel=parallel, limit=limit, queued=queued)

    async def post(
        self, row: TaskRow, body: bytes, dedupe_key: DedupeKey | None, generation: int | None, key: int
    ) -> ChangeOutcome:
        """Add a message to a submitted or working task."""
        return await self.run(claims.post, row, body, dedupe_key, generation, key, self._now_ms())

    async def sweep(self, rules: Sweep) -> int:
        """One step of retention. Returns how many tasks were touched; 0 when all is done."""
        async with self._pauses.step():
            touched = await self.run(retention.sweep, rules, self._tables)
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

    async def records(self, number: int, after: int, limit: int) -> list[Record]:
        """The records of a task with a generation above `after`, in order, at most `limit`."""
        return await self.run(reader.records, number, after, limit)

    async def notes(self, number: int) -> list[Note]:
        """All notes of a task, in the order they were written."""
        return await self.run(reader.notes, number)

    async def reply(self, key: bytes, now_ms: int) -> bytes | None:
        """The bare message that answered a message with this dedupe key; None when there is none, or it expired."""
        return await self.run(reader.reply, key, now_ms)
