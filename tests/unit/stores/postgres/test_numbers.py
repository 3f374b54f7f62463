"""The numbers of new tasks always lead to a partition that is there, and to no other task."""

from __future__ import annotations

import asyncio

import pytest
from unit.stores.postgres.cluster import Cluster, ClusterNode
from unit.stores.postgres.test_days import COMPACT

from dragoman.clock import SystemClock
from dragoman.model.error import ServerError
from dragoman.stores.postgres import numbers
from dragoman.stores.postgres.numbers import TaskNumbers
from dragoman.stores.postgres.sql.partition import MS_PER_DAY, READ_TODAY, attach_days, day_of, partition_of
from dragoman.testing import Clock


async def away_for(cluster: Cluster, days: int) -> int:
    """Nobody was there for some days: the last partition is as old. Returns its day."""
    await (await cluster.node()).stop()
    connection = await cluster.stranger()
    today: int = await connection.fetchval(READ_TODAY)
    for (day,) in await connection.fetch("SELECT day FROM days WHERE day > 0"):
        await connection.execute(f"DROP TABLE {partition_of(day)}")
    await connection.execute("DELETE FROM days WHERE day > 0")
    await attach_days(connection, [today - days])
    await connection.execute("UPDATE dragoman_meta SET value = 0 WHERE key = 'numbers'")
    return today - days


async def test_a_node_that_starts_after_months_gets_numbers_that_can_be_used(cluster: Cluster) -> None:
    await away_for(cluster, 60)
    node = await cluster.node()
    task_numbers = TaskNumbers(node.database, Clock(SystemClock().now()))
    await task_numbers.open()
    await node.database.sweep(COMPACT)
    await node.create(number=task_numbers.next())


async def test_numbers_of_the_last_day_can_be_used_after_days_were_missing(cluster: Cluster, node: ClusterNode) -> None:
    last = await away_for(cluster, 60)
    task_numbers = TaskNumbers(node.database, Clock(SystemClock().now()))
    await task_numbers.open()
    assert day_of(task_numbers.next()) == last
    await node.database.sweep(COMPACT)  # it attaches today
    await node.create(number=task_numbers.next())
    await task_numbers.open()
    await cluster.value("UPDATE tasks SET state = 5")
    await cluster.value("UPDATE days SET kept_until = kept_until - interval '1 day'")
    await cluster.value("INSERT INTO snapshots SELECT number, generation, 0, 's' FROM tasks")
    await node.database.sweep(COMPACT)
    assert await cluster.value("SELECT min(day) FROM days WHERE day > 0") == await cluster.value(READ_TODAY)


async def test_a_node_that_was_suspended_for_days_uses_none_of_its_old_numbers(cluster: Cluster) -> None:
    node, clock = await cluster.node(), Clock(SystemClock().now())
    task_numbers = TaskNumbers(node.database, clock)
    await task_numbers.open()
    first = task_numbers.next()
    clock.move(2 * MS_PER_DAY / 1000)
    with pytest.raises(ServerError, match="try again"):
        task_numbers.next()
    (refill,) = asyncio.all_tasks() - {asyncio.current_task()}
    await refill
    number = task_numbers.next()
    assert number >= first + numbers.BLOCK


async def test_a_promoted_standby_gives_out_no_number_twice_that_it_has_not_replicated(
    cluster: Cluster, node: ClusterNode
) -> None:
    await node.database.numbers(1)
    before = await cluster.value("SELECT value FROM dragoman_meta WHERE key = 'numbers'")
    lost = await node.database.numbers(numbers.BLOCK)
    await cluster.value("UPDATE dragoman_meta SET value = $1 WHERE key = 'numbers'", before)
    assert await node.database.numbers(1) == lost, "this test has no sense"
    await cluster.value("UPDATE dragoman_meta SET value = value + 1 WHERE key = 'timeline'")
    first = await node.database.numbers(numbers.BLOCK)
    assert first > lost + numbers.BLOCK
    assert await node.database.numbers(1) == first + numbers.BLOCK
    await node.create(number=first)
