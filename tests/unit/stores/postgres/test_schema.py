"""Tables are made once, migrated forward, and never taken from another program."""

from __future__ import annotations

import asyncio

import pytest

from dragoman.model.error import ConfigError
from dragoman.net.postgres import PostgresConnection, connect
from dragoman.stores.postgres.sql import reader, schema
from dragoman.stores.postgres.sql.database import POOL_SIZE, PostgresDatabase
from dragoman.stores.postgres.sql.schema import VERSION, check_version, migrate


async def test_an_empty_database_gets_its_tables_once(empty_postgres_url: str) -> None:
    connection = await connect(empty_postgres_url)
    assert await check_version(connection, "it") == 0
    await migrate(connection, "it")
    await migrate(connection, "it")
    assert await check_version(connection, "it") == VERSION
    await connection.close()


async def test_of_many_servers_that_start_together_one_makes_the_tables(empty_postgres_url: str) -> None:
    connections = [await connect(empty_postgres_url) for _ in range(5)]
    await asyncio.gather(*(migrate(connection, "it") for connection in connections))
    assert await check_version(connections[0], "it") == VERSION
    await asyncio.gather(*(connection.close() for connection in connections))


async def test_the_tables_of_another_program_are_left_alone(empty_postgres_url: str) -> None:
    connection = await connect(empty_postgres_url)
    await connection.execute("CREATE TABLE tasks (theirs int)")
    with pytest.raises(ConfigError, match="tables of another program in the schema public: use a database of its own"):
        await migrate(connection, "it")
    await connection.execute("CREATE SCHEMA ours")
    await connection.close()
    connection = await connect(f"{empty_postgres_url}?search_path=ours")
    await migrate(connection, "it")
    assert await connection.fetchval("SELECT count(*) FROM ours.tasks") == 0
    await connection.close()


async def test_newer_tables_are_used_as_long_as_they_say_so(postgres_url: str) -> None:
    connection = await connect(postgres_url)
    await connection.execute(f"UPDATE dragoman_meta SET value = {VERSION + 1} WHERE key = 'version'")
    await migrate(connection, "it")
    await connection.execute(f"UPDATE dragoman_meta SET value = {VERSION + 1} WHERE key = 'oldest'")
    with pytest.raises(ConfigError, match=r"was migrated by a newer Dragoman .*: upgrade this server"):
        await migrate(connection, "it")
    await connection.close()


async def test_tables_are_not_migrated_under_nodes_that_would_not_work_with_them(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = await connect(postgres_url)
    join = "INSERT INTO nodes (id, name, agents, version, lease, keys, tables, seen) VALUES ({}, {}, '{{}}', {})"
    await connection.execute(join.format(1, "'old'", f"'0.2.0', 6, '{{}}', {VERSION}, clock_timestamp()"))
    await connection.execute(join.format(2, "'gone'", "'0.1.0', 6, '{}', 1, clock_timestamp() - interval '2 minutes'"))
    later = schema._Migration(VERSION + 1, "CREATE TABLE more (n int)")
    monkeypatch.setattr(schema, "_MIGRATIONS", (*schema._MIGRATIONS, later))
    monkeypatch.setattr(schema, "VERSION", VERSION + 1)
    with pytest.raises(ConfigError, match=r"while nodes run that would not work .*: stop old \(Dragoman 0.2.0\), or"):
        await migrate(connection, "it")
    await connection.execute("UPDATE nodes SET dead = true WHERE id = 1")
    await migrate(connection, "it")
    assert await connection.fetchval("SELECT value FROM dragoman_meta WHERE key = 'oldest'") == VERSION + 1
    await connection.close()


async def version_3(url: str) -> PostgresConnection:
    """A connection to tables as the release before made them."""
    connection = await connect(url)
    await migrate(connection, "it")
    await connection.execute(
        "ALTER TABLE users ADD COLUMN failures integer NOT NULL DEFAULT 0, "
        "ADD COLUMN locked_until_ms bigint NOT NULL DEFAULT 0; "
        "UPDATE dragoman_meta SET value = 3 WHERE key = 'version'; "
        "UPDATE dragoman_meta SET value = 1 WHERE key = 'oldest'"
    )
    return connection


async def test_tables_of_the_release_before_are_migrated_while_its_nodes_write(empty_postgres_url: str) -> None:
    old, new = await version_3(empty_postgres_url), await connect(empty_postgres_url)
    migrating, users = asyncio.ensure_future(migrate(new, "it")), 0
    while not migrating.done():
        users += 1
        await old.execute("INSERT INTO users (name, password, created_ms) VALUES ($1, '', 0)", f"user{users}")
    await migrating
    assert await schema.check_version(old, "it") == VERSION
    assert await new.fetchval("SELECT count(*) FROM users") == users
    columns = "SELECT count(*) FROM pg_attribute WHERE attrelid = 'users'::regclass AND attname = 'failures'"
    assert await new.fetchval(columns) == 0
    await asyncio.gather(old.close(), new.close())


async def test_a_migration_lets_others_work_while_it_waits_for_a_lock(
    empty_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "LOCK_TRIES", 2)
    monkeypatch.setattr(schema, "LOCK_PAUSE", 0)
    monkeypatch.setattr(schema, "LOCK_MS", 20)
    backup = await version_3(empty_postgres_url)
    old, new = [await connect(empty_postgres_url) for _ in range(2)]
    async with backup.transaction():
        await backup.fetchval("SELECT count(*) FROM users")
        with pytest.raises(ConfigError, match="a transaction keeps its tables locked: wait for backups to end"):
            await migrate(new, "it")
        await old.execute("INSERT INTO users (name, password, created_ms) VALUES ('ada', '', 0)")
    await migrate(new, "it")
    assert await schema.check_version(new, "it") == VERSION
    await asyncio.gather(backup.close(), old.close(), new.close())


async def test_tables_from_before_the_first_release_are_refused(empty_postgres_url: str) -> None:
    connection = await version_3(empty_postgres_url)
    await connection.execute("UPDATE dragoman_meta SET value = 2 WHERE key = 'version'")
    with pytest.raises(ConfigError, match=r"before its first release \(schema 2, .*: use another --store"):
        await migrate(connection, "it")
    await connection.close()


async def test_another_encoding_is_refused(empty_postgres_url: str) -> None:
    connection = await connect(empty_postgres_url)
    await connection.execute("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'")
    other = await connect(empty_postgres_url.rpartition("/")[0] + "/latin")
    with pytest.raises(ConfigError, match="has the encoding LATIN1"):
        await migrate(other, "it")
    await other.close()
    await connection.execute("DROP DATABASE latin")
    await connection.close()


def test_a_database_that_was_closed_is_opened_on_another_event_loop(postgres_url: str) -> None:
    database = PostgresDatabase(postgres_url)

    async def use() -> list[object]:
        await database.open(())
        answers = await asyncio.gather(*(database.run(reader.task, "x") for _ in range(2 * POOL_SIZE)))
        await database.close()
        return [*answers]

    assert [asyncio.run(use()) for _ in range(2)] == [[None] * 2 * POOL_SIZE] * 2
