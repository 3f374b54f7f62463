"""The events in PostgreSQL, in one partition per day.

The number of a task begins with the day on which it was created, by the clock of the database. So the number alone
tells where the events of a task are. Tasks from before there were partitions are of day 0.

A reader goes to the partition itself: a plan for the whole table would lock all partitions of it. Only inserts use the
whole table, which lock the partition that they find. There is no default partition: beside one, nothing can be detached
without blocking writers.
"""

from __future__ import annotations

from datetime import date, timedelta
from typing import TYPE_CHECKING

from dragoman.net.failover.search import TIMELINES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dragoman.net.postgres import PostgresConnection

# The bits of a task number below the day: a million and a half new tasks per second, and still exact in JSON.
DAY_BITS = 37
MS_PER_DAY = 86_400_000
# How many days there are partitions ahead. While none can be attached, new tasks are counted to the last day there is.
DAYS_AHEAD = 8

_TODAY = "floor(extract(epoch FROM clock_timestamp()) / 86400)::integer"
# A standby that was promoted may lack the last reservations: nodes use numbers that it would give out again. So many
# are left out then. (The second parameter is the timeline of the server, 0 if it is unknown.)
_LOST_NUMBERS = 1 << 24
_RESERVE = f"""
WITH moved AS (
    INSERT INTO dragoman_meta AS m (key, value) SELECT 'timeline', $2::bigint WHERE $2::bigint > 0
    ON CONFLICT (key) DO UPDATE SET value = excluded.value WHERE m.value <> excluded.value RETURNING 1
)
UPDATE dragoman_meta SET value = $1::bigint + CASE WHEN EXISTS (SELECT 1 FROM moved) THEN {_LOST_NUMBERS} ELSE 0 END
    + greatest(value, (
        SELECT least({_TODAY}, max(day))::bigint << {DAY_BITS} FROM days WHERE NOT dropped
    ))
WHERE key = 'numbers' RETURNING value
"""
READ_TODAY = f"SELECT {_TODAY}"
# Numbers were reserved last on a day long past: no node was there, or no partition, or the clock was wrong. Nodes may
# have some of them, and of the day before, for as long as `TaskNumbers` uses them.
_KEEP_USED = f"""
UPDATE days SET kept_until = clock_timestamp() + interval '1 day' FROM dragoman_meta m
WHERE m.key = 'numbers' AND m.value >> {DAY_BITS} BETWEEN 1 AND {_TODAY} - 2
AND day BETWEEN (m.value >> {DAY_BITS}) - 1 AND (m.value >> {DAY_BITS}) AND (kept_until > clock_timestamp()) IS NOT TRUE
"""
_MISSING = """
SELECT d.day FROM unnest($1::integer[]) AS d (day) WHERE NOT EXISTS (SELECT 1 FROM days WHERE days.day = d.day)
ORDER BY d.day
"""


def day_of(number: int) -> int:
    """The day of a task by its number: days since 1970, or 0."""
    return number >> DAY_BITS


def date_of(day: int) -> str:
    """A day as text."""
    return f"{date(1970, 1, 1) + timedelta(days=day)}" if day else "the time before partitions"


def first_number(day: int) -> int:
    """The smallest number of the tasks of a day."""
    return day << DAY_BITS


def partition_of(day: int) -> str:
    """The name of the table with the events of a day."""
    return f"events_{day}"


async def reserve_numbers(connection: PostgresConnection, count: int) -> int:
    """Reserve `count` task numbers, and return the first."""
    return await connection.fetchval(_RESERVE, count, TIMELINES.number_of(connection)) - count + 1


async def attach_days(connection: PostgresConnection, days: Iterable[int]) -> None:
    """Make partitions for days, where they are missing. Only sessions that do so too wait for each other."""
    for (day,) in await connection.fetch(_MISSING, list(days)):
        name, bounds = partition_of(day), (first_number(day), first_number(day + 1))
        async with connection.transaction():
            await connection.execute("LOCK TABLE days IN SHARE ROW EXCLUSIVE MODE")
            if not await connection.fetch(_MISSING, [day]):  # another node was faster
                continue
            # Not `PARTITION OF`, which blocks writers. The table is empty: attaching it reads nothing.
            await connection.execute(f"CREATE TABLE {name} (LIKE events, PRIMARY KEY (task, generation))")
            await connection.execute(
                f"ALTER TABLE events ATTACH PARTITION {name} FOR VALUES FROM ({bounds[0]}) TO ({bounds[1]})"
            )
            await connection.execute("INSERT INTO days (day, checked) VALUES ($1, $2)", day, bounds[0])


async def attach_ahead(connection: PostgresConnection) -> None:
    """Make partitions for today and the days ahead, where they are missing."""
    today: int = await connection.fetchval(READ_TODAY)
    await connection.execute(_KEEP_USED)
    await attach_days(connection, range(today, today + DAYS_AHEAD + 1))


async def detach_day(connection: PostgresConnection, day: int) -> None:
    """Drop the partition of a day, with its events, while all others go on. Goes on where an earlier try was cut off.

    It cannot be in a transaction, and waits for the transactions that use the table.
    """
    name = partition_of(day)
    is_pending = await connection.fetchval(
        "SELECT i.inhdetachpending FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE c.relname = $1 "
        "AND c.relnamespace = quote_ident(current_schema())::regnamespace",
        name,
    )
    if is_pending is not None:
        how = "FINALIZE" if is_pending else "CONCURRENTLY"
        await connection.execute(f"ALTER TABLE events DETACH PARTITION {name} {how}")
    await connection.execute(f"DROP TABLE IF EXISTS {name}")
