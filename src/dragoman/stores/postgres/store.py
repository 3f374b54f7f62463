"""The store that several servers share, over the database port."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from dragoman.clock import SystemClock, sleep
from dragoman.model.error import CannotConnect, ServerError
from dragoman.stores.postgres.database import ConnectionLost, NodeInfo
from dragoman.stores.postgres.heartbeat import Heartbeat, HeartbeatThread
from dragoman.stores.postgres.lease import NodeLease, new_node_id
from dragoman.stores.postgres.numbers import TaskNumbers
from dragoman.stores.postgres.ownership import PostgresOwnership
from dragoman.stores.postgres.retry import SILENCE_SECONDS, Retry, answer_within, unavailable
from dragoman.stores.postgres.sql import claims, reader, tables
from dragoman.stores.postgres.writer import GroupCommit
from dragoman.telemetry.metrics.catalog import METRICS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import CoroutineType

    from dragoman.clock import Clock
    from dragoman.engine.ports.rows import ExtraRow, TaskTable, Value
    from dragoman.engine.ports.store import Push, Sweep, TaskRow, Write
    from dragoman.stores.postgres.database import Database, NodeDatabase, Query
    from dragoman.stores.postgres.heartbeat import HeartbeatLoop

P = ParamSpec("P")
T = TypeVar("T")
logger = logging.getLogger("dragoman.store")
# How long a node that starts waits for the database, and how often it tries.
START_SECONDS, START_PAUSE = 60, 1.0
LEASE_SECONDS = 6.0
CHECK_SECONDS = 2.0
# A step of retention may delete many events, and counting the tasks of a filter may read many rows.
SWEEP_SECONDS, PAGE_SECONDS = 300.0, 60.0
PUSHES_PER_CLAIM = 1000


class PostgresStore:
    """A durable store that any number of servers use at a time. `ownership` says which tasks are this one's.

    `node_id` is the id with which this one joins, by default a random one. `ended` are the ids of nodes whose processes
    have surely ended: they are declared dead without waiting for their leases.

    Writes never fail for a lost connection: they wait. Reads are repeated for some seconds and then raise ServerError.
    """

    durable: bool = True

    def __init__(
        self,
        database: Database,
        nodes: NodeDatabase,
        *,
        name: str = "",
        agents: tuple[str, ...] = (),
        version: str = "",
        keys: tuple[str, ...] = (),
        runs_limit: int | None = None,
        lease: NodeLease | None = None,
        clock: Clock | None = None,
        heartbeat_loop: HeartbeatLoop | None = None,
        node_id: int | None = None,
        ended: Sequence[int] = (),
    ) -> None:
        self._database = database
        self._lease = lease = lease or NodeLease(LEASE_SECONDS)
        self._clock = clock = clock or SystemClock()
        self._beating = heartbeat_loop or HeartbeatThread(lease.now)
        info = NodeInfo(node_id or new_node_id(), name, agents, version, keys=keys)
        self._heartbeat = Heartbeat(nodes, info, lease, clock, runs=runs_limit != 0, ended=ended)
        self._retry = Retry(clock, lease.now)
        self._numbers = TaskNumbers(database, clock)
        self._writer = GroupCommit(database, clock, self._on_work)
        self.ownership = PostgresOwnership(
            database, lease, self._writer, self._retry, clock, runs_limit, beat_now=self._heartbeat.beat_now
        )
        self._tables: list[TaskTable] = []
        self.next_number = self._numbers.next
        # The port `Store` says what each of these does, and the query how.
        self.task = self._repeating(reader.task)
        self.generations = self._repeating(reader.generations)
        self.records = self._repeating(reader.records)
        self.journal = self._repeating(reader.journal)
        self.notes = self._repeating(reader.notes)
        self.page = self._repeating(reader.page, PAGE_SECONDS)
        self.search = self._repeating(reader.search, PAGE_SECONDS)
        self.counts = self._repeating(reader.counts, PAGE_SECONDS)
        self.context_state = self._repeating(reader.context_state)
        self.duplicate_of = self._repeating(reader.duplicate_of)
        self.reply = self._repeating(reader.reply)
        self.dedupe_keys = self._repeating(reader.dedupe_keys)
        self.unfinished = self._repeating(reader.unfinished)
        self.drafts = self._repeating(reader.drafts)
        self.pushes = self._repeating(reader.pushes)
        self._pushes_of = self._repeating(reader.undelivered_pushes)
        self._take_pushes = self._repeating(claims.take_pushes)
        self.wake_pushes = self._repeating(claims.wake_pushes)
        self.read_row = self._repeating(tables.read_row)
        self.last_key = self._repeating(tables.last_key)

    def add_table(self, table: TaskTable) -> None:
        """Add a plug-in table, effective at the next `open`."""
        if table not in self._tables:
            self._tables.append(table)

    async def open(self) -> None:
        """Connect, migrate the tables, and become a node. Waits a minute for a database that is down or starting.

        Raises:
            CannotConnect: the database was not reached in that time.
            ConfigError: the database cannot be used.
        """
        end: int | None = None
        while True:
            try:
                await self._open()
                return
            except ConnectionLost as error:
                now = self._clock.now()
                if end is None:
                    end = now + START_SECONDS * 1000
                    logger.warning(
                        "the database of --store does not answer, waiting up to %d s: %s", START_SECONDS, error
                    )
                elif now >= end:
                    raise CannotConnect(f"the database of --store does not answer: {error}") from None
            await sleep(self._clock, START_PAUSE)

    async def _open(self) -> None:
        await self._database.open(self._tables)
        try:
            await self._numbers.open()
            await self._beating.start(self._heartbeat, self.ownership)
        except BaseException:
            await self._beating.stop()
            await self._database.close()
            raise
        self.ownership.start(self._heartbeat.node)
        self._writer.open(self._heartbeat.node)

    async def close(self) -> None:
        """Complete the queued writes, leave the other nodes, and close the connections."""
        self._numbers.close()
        await self._writer.close()
        await self.ownership.stop()
        await self._beating.stop()
        await self._database.close()

    def sample(self) -> None:
        """Set the metric of the lease: the seconds that are left of it."""
        METRICS.lease_left.set(max(0.0, self._lease.remaining))

    def write(self, write: Write) -> None:
        """Queue a change."""
        self._writer.put(write)

    def _on_work(self) -> None:
        self.ownership.announce_work()

    def _repeating(
        self, query: Query[P, T], silence: float = SILENCE_SECONDS
    ) -> Callable[P, CoroutineType[Any, Any, T]]:
        """Return a function that runs a query, again if the database does not answer."""

        async def run(*args: P.args, **kwargs: P.kwargs) -> T:
            return await self._retry.call(lambda: self._database.run(query, *args, **kwargs), silence)

        return run

    async def undelivered_pushes(self, *, woken: bool = False) -> list[tuple[Push, TaskRow]]:
        """Claim the open webhooks that no live node delivers, and return those of this node and the dead ones.

        With `woken`, only those that were woken by hand, or that this node has claimed and not saved since.

        Raises:
            ServerError: the database does not answer, or this process is no node now.
        """
        node = await self.ownership.require_node()
        while await self._take_pushes(node, PUSHES_PER_CLAIM) == PUSHES_PER_CLAIM:
            pass
        return await self._pushes_of(node, woken=woken)

    async def replace_row(self, row: ExtraRow, version: Value) -> bool:
        """Replace a row of a plug-in table if it still has that version. Return whether it had.

        Raises:
            ServerError: the database does not answer.
        """
        replaced, repeated = await self._retry.call_counting(
            lambda: self._database.run(tables.replace_row, row, version)
        )
        # After a lost answer, the row that is in the way may be this one.
        return replaced or (repeated and await self.read_row(row.table, row.key) == row)

    async def sweep(self, rules: Sweep) -> int:
        """Run one step of retention. Returns how many tasks were touched, and 0 when all is done.

        Raises:
            ServerError: the database does not answer.
        """
        # First: after that, the day of numbers that were reserved earlier may be dropped.
        await self._retry.call(self._numbers.renew)
        return await self._retry.call(lambda: self._database.sweep(rules), SWEEP_SECONDS)

    async def check(self) -> None:
        """Raise ServerError when this node must get no more requests: its lease ends, or the database is silent."""
        if self._lease.remaining < self._lease.interval:
            raise ServerError("the lease of this node is about to end: it cannot reach the database")
        try:
            await answer_within(self._clock, CHECK_SECONDS, lambda: self._database.check(self.ownership.node))
        except ConnectionLost as error:
            raise unavailable(error) from error
