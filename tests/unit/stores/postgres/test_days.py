"""The events of a day are dropped as a whole, when no task needs them any more."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

import pytest
from unit.stores.postgres.changes import NOW
from unit.stores.postgres.cluster import Cluster, ClusterNode

from dragoman.clock import SystemClock
from dragoman.engine.ports.store import Sweep, TaskRow
from dragoman.model.state import State
from dragoman.stores.postgres import numbers
from dragoman.stores.postgres.database import ConnectionLost
from dragoman.stores.postgres.numbers import TaskNumbers
from dragoman.stores.postgres.sql import reader, retention
from dragoman.stores.postgres.sql.partition import (
    DAYS_AHEAD,
    READ_TODAY,
    attach_days,
    day_of,
    first_number,
    partition_of,
)
from dragoman.stores.postgres.sql.retention import DROP_AFTER, SweepPauses
from dragoman.testing import Clock

COMPACT = Sweep(compact_before_ms=NOW + 1)
PARTITIONS = """
SELECT array_agg(c.relname::text ORDER BY c.relname) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = 'events'::regclass
"""


class Past:
    """A node, and a day some days ago whose tasks a test makes."""

    def __init__(self, cluster: Cluster, node: ClusterNode, today: int, ago: int) -> None:
        self.cluster = cluster
        self.node = node
        self.today = today
        self.day = today - ago
        self._numbers = count(first_number(self.day) + 1)

    async def task(self, state: State | None = State.COMPLETED, **parts: Any) -> TaskRow:
        """A task of that day, which has ended, unless another state is given; None is one that works."""
        row = await self.node.create(number=next(self._numbers))
        if state is not None:
            assert await self.node.append(row, state, **{"snapshot": b"s", **parts}) == "committed"
        return row

    async def has_partition(self) -> bool:
        return partition_of(self.day) in await self.cluster.value(PARTITIONS)

    async def events(self) -> int:
        """How many events the day has."""
        return await self.cluster.value(f"SELECT count(*) FROM {partition_of(self.day)}")


async def past(cluster: Cluster, ago: int = DROP_AFTER) -> Past:
    node = await cluster.node()
    connection = await cluster.stranger()
    today: int = await connection.fetchval(READ_TODAY)
    await attach_days(connection, [today - ago])
    return Past(cluster, node, today, ago)


@pytest.fixture
async def day(cluster: Cluster) -> Past:
    """A day whose events may go."""
    return await past(cluster)


async def test_a_day_goes_when_all_its_tasks_have_ended(cluster: Cluster, day: Past) -> None:
    rows = [await day.task(state) for state in (State.COMPLETED, State.FAILED, State.CANCELED)]
    await day.node.database.sweep(COMPACT)
    assert not await day.has_partition()
    for row in rows:
        stored = await day.node.database.run(reader.task, row.id)
        assert stored is not None
        assert (stored.snapshot, stored.row.generation) == (b"s", 2), "a task was lost with its events"
        assert await day.node.database.run(reader.records, row.number, 0, 9) == []
        assert await day.node.database.run(reader.journal, row.number, 0, 9, 1000) == []
    assert await cluster.value("SELECT count(*) FROM days WHERE day = $1", day.day) == 0


@pytest.mark.parametrize("state", [None, State.INPUT_REQUIRED], ids=["working", "waiting"])
async def test_a_day_stays_while_a_task_of_it_has_not_ended(cluster: Cluster, day: Past, state: State | None) -> None:
    await day.task()
    held = await day.task(state)
    await day.task()
    await day.node.database.sweep(COMPACT)
    assert await day.events() == (5 if state is None else 6), "too early for a deletion row by row"
    row = held
    if state is not None:
        claimed = await day.node.database.claim(day.node.id, held.number, 2, revoke=False)
        assert claimed is not None
        row = claimed.stored.row
    epoch = await cluster.value("SELECT epoch FROM tasks WHERE number = $1", held.number)
    assert await day.node.append(row, State.COMPLETED, epoch=epoch, snapshot=b"s") == "committed"
    await day.node.database.sweep(COMPACT)
    assert not await day.has_partition()


@pytest.mark.parametrize("ago", range(DROP_AFTER))
async def test_a_day_that_may_get_new_tasks_stays(cluster: Cluster, ago: int) -> None:
    day = await past(cluster, ago)
    await day.task()
    await day.node.database.sweep(COMPACT)
    assert await day.events() == 2


async def test_a_task_that_ended_too_late_keeps_its_day(day: Past) -> None:
    row = await day.task()
    await day.node.database.sweep(Sweep(compact_before_ms=NOW))
    assert len(await day.node.database.run(reader.records, row.number, 0, 9)) == 2
    await day.node.database.sweep(Sweep(compact_before_ms=NOW + 1))
    assert not await day.has_partition()


async def test_a_task_without_a_snapshot_of_its_end_keeps_its_day(day: Past) -> None:
    row = await day.task(snapshot=None)
    await day.node.database.sweep(COMPACT)
    assert len(await day.node.database.run(reader.records, row.number, 0, 9)) == 2


async def test_events_are_kept_for_longer_as_soon_as_the_rule_says_so(cluster: Cluster, day: Past) -> None:
    await day.task()
    await day.task(None)
    await day.node.database.sweep(COMPACT)  # which has looked at the first one
    await cluster.value("UPDATE tasks SET state = 3, generation = 1 WHERE state = 2")
    await cluster.value("INSERT INTO snapshots SELECT number, 1, 0, 's' FROM tasks WHERE generation = 1")
    await day.node.database.sweep(Sweep(compact_before_ms=NOW - 1))
    assert await day.events() == 3


@pytest.mark.parametrize("rules", [Sweep(ended_before_ms=NOW + 1), Sweep(keep_tasks=1)], ids=["age", "number"])
async def test_deleted_tasks_leave_their_events_to_their_day(cluster: Cluster, day: Past, rules: Sweep) -> None:
    rows = [await day.task() for _ in range(3)]
    young = await day.node.create(number=first_number(day.today) + 1)
    await day.node.append(young, State.COMPLETED, snapshot=b"s")
    await cluster.value("UPDATE tasks SET status_ms = status_ms + 10 WHERE number = $1", young.number)
    assert await day.node.database.sweep(rules) == 3
    assert [await day.node.database.run(reader.task, row.id) for row in rows] == [None] * 3
    assert await day.events() == 6, "deleted one by one"
    assert await day.node.database.sweep(rules) == 0
    assert not await day.has_partition()


async def test_a_day_that_is_held_for_long_is_cleared_row_by_row(cluster: Cluster) -> None:
    day = await past(cluster, ago=9)
    ended, deleted = [await day.task() for _ in range(5)], [await day.task() for _ in range(2)]
    held = await day.task(State.INPUT_REQUIRED)
    await cluster.value("DELETE FROM tasks WHERE number = ANY($1)", [row.number for row in deleted])
    cleared = [await day.node.database.sweep(Sweep(compact_before_ms=NOW + 1, limit=2)) for _ in range(5)]
    assert cleared == [2, 2, 1, 0, 0]
    assert await day.events() == 2
    assert len(await day.node.database.run(reader.records, held.number, 0, 9)) == 2
    for row in ended:
        assert await day.node.database.run(reader.records, row.number, 0, 9) == []
    assert await cluster.value("SELECT count(*) FROM notes") == 0


async def test_a_held_day_is_not_read_again_and_again(cluster: Cluster) -> None:
    day = await past(cluster, ago=9)
    await day.task(State.INPUT_REQUIRED)
    assert await day.node.database.sweep(COMPACT) == 0
    late = await day.task()
    assert await day.node.database.sweep(COMPACT) == 0
    assert len(await day.node.database.run(reader.records, late.number, 0, 9)) == 2
    await cluster.value("UPDATE days SET cleared_at = cleared_at - interval '25 hours'")
    assert await day.node.database.sweep(COMPACT) == 1


async def test_days_are_not_read_when_no_rule_deletes_anything(cluster: Cluster) -> None:
    day = await past(cluster, ago=9)
    await day.task()
    await day.node.database.sweep(Sweep(expired_before_ms=NOW))
    assert await cluster.value("SELECT cleared_at FROM days WHERE day = $1", day.day) is None
    assert await day.events() == 2
    await day.node.database.sweep(Sweep(keep_tasks=9))
    assert await cluster.value("SELECT cleared_at FROM days WHERE day = $1", day.day) is not None


async def test_a_reader_delays_the_end_of_a_day_and_nobody_waits_for_that(cluster: Cluster, day: Past) -> None:
    await day.task()
    other = await cluster.stranger()
    async with other.transaction():
        assert await other.fetchval(f"SELECT count(*) FROM {partition_of(day.day)}") == 2
        await day.node.database.sweep(COMPACT)  # gives up after half a second
        row = await day.node.create(number=first_number(day.today) + 1)
        assert len(await day.node.database.run(reader.records, row.number, 0, 9)) == 1
    await day.node.database.sweep(COMPACT)
    assert await cluster.value("SELECT to_regclass($1) IS NULL", partition_of(day.day))


async def test_a_drop_that_was_cut_off_is_finished_by_the_next_node(cluster: Cluster, day: Past) -> None:
    await day.task()
    other, cut = await cluster.stranger(), await cluster.stranger()
    async with other.transaction():
        await other.fetchval("SELECT count(*) FROM events")
        await cut.execute("UPDATE days SET dropped = true WHERE day = $1", day.day)
        await cut.execute("SET lock_timeout = 50")
        with pytest.raises(Exception, match="lock timeout"):
            await cut.execute(f"ALTER TABLE events DETACH PARTITION {partition_of(day.day)} CONCURRENTLY")
    assert await cluster.value("SELECT count(*) FROM pg_inherits WHERE inhdetachpending") == 1
    await (await cluster.node()).database.sweep(COMPACT)
    assert await cluster.value("SELECT to_regclass($1) IS NULL", partition_of(day.day))
    assert await cluster.value("SELECT count(*) FROM days WHERE dropped") == 0


async def test_two_nodes_sweep_at_the_same_time(cluster: Cluster, day: Past) -> None:
    other = await cluster.node()
    for _ in range(3):
        await day.task()
    await asyncio.gather(*(node.database.sweep(COMPACT) for node in (day.node, other) for _ in range(4)))
    assert not await day.has_partition()


_KILL_WAITING = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


@pytest.mark.parametrize(
    "lock",
    [
        "SELECT 1 FROM days WHERE day = {day} FOR UPDATE",
        "LOCK TABLE events IN ACCESS SHARE MODE",
        "LOCK TABLE {partition} IN ACCESS SHARE MODE",
        "LOCK TABLE notes IN ACCESS EXCLUSIVE MODE",
    ],
    ids=["decided", "detached", "dropped", "cleared"],
)
async def test_a_sweep_that_is_killed_at_any_step_is_finished_by_the_next(cluster: Cluster, lock: str) -> None:
    day, other, holder = await past(cluster), await cluster.node(), await cluster.stranger()
    await day.task()
    async with holder.transaction():
        await holder.execute(lock.format(day=day.day, partition=partition_of(day.day)))
        sweeping = asyncio.ensure_future(day.node.database.sweep(COMPACT))
        await cluster.until_waiting()
        assert await cluster.value(_KILL_WAITING)
        with pytest.raises(ConnectionLost):
            await sweeping
    await other.database.sweep(COMPACT)
    assert not await day.has_partition()
    assert await cluster.value("SELECT to_regclass($1) IS NULL", partition_of(day.day))
    assert await cluster.value("SELECT count(*) FROM days WHERE day = $1", day.day) == 0


async def test_partitions_are_made_while_another_is_only_half_dropped(cluster: Cluster) -> None:
    day, reader = await past(cluster), await cluster.stranger()
    await day.task()
    last = partition_of(day.today + DAYS_AHEAD)
    await cluster.value(f"DROP TABLE {last}")
    await cluster.value("DELETE FROM days WHERE day = $1", day.today + DAYS_AHEAD)
    async with reader.transaction():
        await reader.fetchval(f"SELECT count(*) FROM {partition_of(day.day)}")
        for _ in range(2):
            await day.node.database.sweep(COMPACT)
        assert await cluster.value("SELECT count(*) FROM pg_inherits WHERE inhdetachpending") == 1
        assert last in await cluster.value(PARTITIONS)
        node = await cluster.node()
        await node.create(number=await node.database.numbers(1))


async def test_there_are_partitions_for_a_week(cluster: Cluster, node: ClusterNode) -> None:
    today = await cluster.value(READ_TODAY)
    last = partition_of(today + DAYS_AHEAD)
    await cluster.value(f"DROP TABLE {last}")
    await cluster.value("DELETE FROM days WHERE day = $1", today + DAYS_AHEAD)
    await node.database.sweep(Sweep())
    assert last in await cluster.value(PARTITIONS)


async def test_without_a_partition_for_today_tasks_are_counted_to_the_last_day(
    cluster: Cluster, node: ClusterNode
) -> None:
    today = await cluster.value(READ_TODAY)
    assert day_of(await node.database.numbers(1)) == today
    await cluster.value("UPDATE dragoman_meta SET value = 0 WHERE key = 'numbers'")
    await cluster.value("DELETE FROM days WHERE day > $1", today - 4)
    connection = await cluster.stranger()
    await attach_days(connection, [today - 4])
    number = await node.database.numbers(1)
    assert day_of(number) == today - 4
    await node.create(number=number)


async def test_a_read_locks_the_partition_of_its_task_only(cluster: Cluster) -> None:
    node, connection = await cluster.node(), await cluster.stranger()
    row = await node.create(number=await node.database.numbers(1))
    today = await cluster.value(READ_TODAY)
    others = [partition_of(day) for day in range(today + 1, today + DAYS_AHEAD + 1)]
    async with connection.transaction():
        await connection.execute(f"LOCK TABLE {', '.join(others)} IN ACCESS EXCLUSIVE MODE")
        assert len(await node.database.run(reader.records, row.number, 0, 9)) == 1
        assert await node.append(row) == "committed"


async def test_reserved_numbers_are_given_up_before_their_day_can_go(cluster: Cluster) -> None:
    node, clock = await cluster.node(), Clock(SystemClock().now())
    task_numbers = TaskNumbers(node.database, clock)
    await task_numbers.open()
    first = task_numbers.next()
    await task_numbers.renew()
    assert task_numbers.next() == first + 1
    clock.move(numbers.RENEW_MS / 1000)
    await task_numbers.renew()
    assert task_numbers.next() >= first + numbers.BLOCK


async def test_a_day_that_takes_long_is_dropped_over_several_sweeps(
    cluster: Cluster, day: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    await day.task()
    await day.task(State.INPUT_REQUIRED)
    monkeypatch.setattr(retention, "DAYS_SECONDS", -1.0)
    assert await day.node.database.sweep(COMPACT) == 1, "there is more to do"
    monkeypatch.undo()
    await cluster.value("UPDATE tasks SET state = 3 WHERE state = 6")
    assert await day.node.database.sweep(COMPACT) == 0
    assert not await day.has_partition()


async def test_retention_rests_unless_it_does_not_keep_up() -> None:
    now = [0.0]
    pauses = SweepPauses(lambda: now[0])
    async with pauses.step():
        pass
    assert pauses.pause(0.1) == pytest.approx(0.9)
    now[0] = retention.LATE_SECONDS + 1
    assert pauses.pause(0.1) == 0
    pauses.end()
    assert pauses.pause(0.1) == pytest.approx(0.9)
