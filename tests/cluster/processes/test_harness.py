"""The means of these tests themselves: a proxy that swallows nothing would prove nothing."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest
from cluster.processes.postgres import url_through
from cluster.processes.wire_proxy import How, Trap, WireProxy, changes_tasks
from postgres_server import PostgresServer

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]
INSERT = "INSERT INTO tasks VALUES ($1)"


async def stored(postgres: PostgresServer) -> list[int]:
    connection = await asyncpg.connect(postgres.url())
    try:
        return [row[0] for row in await connection.fetch("SELECT number FROM tasks ORDER BY number")]
    finally:
        await connection.close()


@pytest.fixture
async def empty(postgres: PostgresServer) -> PostgresServer:
    connection = await asyncpg.connect(postgres.url())
    await connection.execute("DROP TABLE IF EXISTS tasks; CREATE TABLE tasks (number int PRIMARY KEY)")
    await connection.close()
    return postgres


@pytest.mark.parametrize("how", ["swallow", "cut", "late"])
async def test_a_statement_whose_reply_is_swallowed_commits_all_the_same(empty: PostgresServer, how: How) -> None:
    async with WireProxy(empty.port) as proxy:
        connection = await asyncpg.connect(url_through(proxy.port, empty.url()))
        await connection.execute(INSERT, 1)
        proxy.traps.append(Trap(changes_tasks, how))
        assert await connection.fetchval("SELECT count(*) FROM tasks") == 1
        with pytest.raises((asyncpg.PostgresConnectionError, OSError)):
            await connection.execute(INSERT, 2)
        async with asyncio.timeout(10):
            await proxy.until_sprung(1)
        assert await stored(empty) == [1, 2]
        assert proxy.sprung == {how: 1}
        assert not proxy.traps


async def test_a_cut_connection_is_gone_and_the_next_one_works(empty: PostgresServer) -> None:
    async with WireProxy(empty.port) as proxy:
        connection = await asyncpg.connect(url_through(proxy.port, empty.url()))
        await connection.execute(INSERT, 1)
        assert proxy.cut() == 1
        with pytest.raises((asyncpg.PostgresConnectionError, asyncpg.InterfaceError, OSError)):
            await connection.execute(INSERT, 2)
        connection = await asyncpg.connect(url_through(proxy.port, empty.url()))
        await connection.execute(INSERT, 3)
        await connection.close()
        assert await stored(empty) == [1, 3]


async def test_what_was_committed_before_a_crash_is_there_after_it(empty: PostgresServer) -> None:
    connection = await asyncpg.connect(empty.url())
    await connection.execute(INSERT, 1)
    await asyncio.to_thread(empty.restart)
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
        await connection.execute(INSERT, 2)
    assert await stored(empty) == [1]
