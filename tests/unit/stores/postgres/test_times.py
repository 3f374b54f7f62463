"""The time of each event's commit, by the clock of the database."""

from __future__ import annotations

import time

from dragoman.net.postgres import connect
from dragoman.stores.postgres.sql import reader
from dragoman.stores.postgres.sql.partition import READ_TODAY, attach_days, first_number
from dragoman.stores.postgres.sql.schema import migrate

INSERT = """
INSERT INTO events (task, generation, body) SELECT * FROM unnest($1::bigint[], $2::int[], $3::bytea[])
"""


async def test_events_of_one_commit_have_its_time_whatever_the_day_of_their_task(empty_postgres_url: str) -> None:
    connection = await connect(empty_postgres_url)
    await migrate(connection, "it")
    today = await connection.fetchval(READ_TODAY)
    await attach_days(connection, [today + 30])
    for day in (today, today + 30):
        number, before = first_number(day) + 5, time.time() * 1000
        await connection.execute(INSERT, [number] * 2, [1, 2], [b"{}"] * 2)
        first, second = [entry.at_ms for entry in await reader.journal(connection, number, 0, 10, 100)]
        assert first is not None
        assert first == second
        assert abs(first - before) < 60_000
    await connection.close()
