"""The time of each event's commit: of new events by the clock of the database, of those that were there before none."""

from __future__ import annotations

import asyncio
import time

from unit.stores.postgres.changes import NOW

from dragoman.net.postgres import PostgresConnection, connect
from dragoman.stores.postgres.sql import reader, schema
from dragoman.stores.postgres.sql.partition import (
    READ_TODAY,
    attach_days,
    first_number,
    partition_events,
    prepare_partitions,
)
from dragoman.stores.postgres.sql.schema import migrate

# What a server of version 2 sends.
OLD_INSERT = """
INSERT INTO events SELECT i.task, i.generation, i.body
FROM unnest($1::bigint[], $2::int[], $3::bytea[]) AS i (task, generation, body)
"""
OLD_DAYS_AHEAD = 7
WITHOUT_TIMES = """
SELECT count(*) FROM pg_inherits i WHERE i.inhparent = 'events'::regclass
AND NOT EXISTS (SELECT 1 FROM pg_attribute a WHERE a.attrelid = i.inhrelid AND a.attname = 'at_ms')
"""


async def version_2(connection: PostgresConnection) -> int:
    """Make the tables before there were times, with an event of today. Returns the number of its task."""
    await connection.execute(schema._VERSION_1)
    await prepare_partitions(connection)
    async with connection.transaction():
        await partition_events(connection)
        await connection.execute("UPDATE dragoman_meta SET value = 2 WHERE key = 'version'")
        await connection.execute("UPDATE dragoman_meta SET value = 1 WHERE key = 'oldest'")
    number = first_number(await connection.fetchval(READ_TODAY)) + 1
    await connection.execute(OLD_INSERT, [number], [1], [b"{}"])
    return number


async def test_events_that_were_there_have_no_time_and_all_later_ones_have(empty_postgres_url: str) -> None:
    old, new = await connect(empty_postgres_url), await connect(empty_postgres_url)
    number = await version_2(old)
    migrating = asyncio.ensure_future(migrate(new, "it"))
    generation = 1
    while not migrating.done():  # an older server goes on writing
        generation += 1
        await old.execute(OLD_INSERT, [number], [generation], [b"{}"])
    await migrating
    before = time.time() * 1000
    await old.execute(OLD_INSERT, [number] * 2, [generation + 1, generation + 2], [b"{}"] * 2)
    entries = await reader.journal(new, number, 0, 10_000, 1 << 20)
    assert [entry.generation for entry in entries] == list(range(1, generation + 3))
    assert entries[0].at_ms is None
    last, second_last = entries[-1].at_ms, entries[-2].at_ms
    assert last == second_last, "one commit has two times"
    assert last is not None
    assert abs(last - before) < 60_000
    assert len(await reader.records(old, number, 0, 10_000)) == generation + 2
    await asyncio.gather(old.close(), new.close())


async def test_every_partition_has_the_column_and_an_older_server_finds_all_that_it_needs(
    empty_postgres_url: str,
) -> None:
    connection = await connect(empty_postgres_url)
    await version_2(connection)
    await migrate(connection, "it")
    assert await connection.fetchval(WITHOUT_TIMES) == 0
    today = await connection.fetchval(READ_TODAY)
    # Tomorrow, too, before any new server has made the next one.
    days = range(today, today + 1 + OLD_DAYS_AHEAD + 1)
    missing = (
        "SELECT count(*) FROM unnest($1::int[]) d (day) WHERE NOT EXISTS (SELECT 1 FROM days WHERE days.day = d.day)"
    )
    assert await connection.fetchval(missing, list(days)) == 0
    await attach_days(connection, [today + 30])
    assert await connection.fetchval(WITHOUT_TIMES) == 0
    number = first_number(today + 30) + 5
    await connection.execute(OLD_INSERT, [number], [1], [b"{}"])
    (entry,) = await reader.journal(connection, number, 0, 10, 100)
    assert entry.at_ms is not None
    await connection.close()


async def test_the_column_can_be_taken_away_again_for_the_version_before(empty_postgres_url: str) -> None:
    """As the page about upgrades says."""
    connection = await connect(empty_postgres_url)
    number = await version_2(connection)
    await migrate(connection, "it")
    async with connection.transaction():
        await connection.execute("ALTER TABLE events DROP COLUMN at_ms")
        await connection.execute("UPDATE dragoman_meta SET value = 2 WHERE key = 'version'")
    await connection.execute(OLD_INSERT, [number], [2], [b"{}"])
    await migrate(connection, "it")
    entries = await reader.journal(connection, number, 0, 10, 100)
    assert [entry.at_ms for entry in entries] == [None, None]
    await connection.close()


async def test_a_task_whose_day_was_dropped_has_no_journal(empty_postgres_url: str) -> None:
    connection = await connect(empty_postgres_url)
    await migrate(connection, "it")
    assert await reader.journal(connection, first_number(NOW // 86_400_000 - 5000) + 1, 0, 10, 100) == []
    await connection.close()
