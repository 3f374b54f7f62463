"""Users of several nodes: what one changes counts on all, and an outage does not say where the database is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import urlsplit, urlunsplit

import pytest

from dragoman.model.error import ConfigError, ServerError
from dragoman.net.postgres import connect
from dragoman.stores.postgres.admin import lookup
from dragoman.stores.postgres.admin.users import PostgresUsers
from dragoman.testing import Clock


@pytest.fixture
async def node(postgres_url: str) -> AsyncIterator[PostgresUsers]:
    """The users as a node sees them. Its clock stands still: what it has cached is fresh until a notice comes."""
    users = PostgresUsers(postgres_url, Clock())
    await users.open()
    yield users
    await users.close()


async def permissions(users: PostgresUsers) -> frozenset[str] | None:
    account = await users.by_name("alice")
    return None if account is None else account.user.permissions


async def become(users: PostgresUsers, expected: frozenset[str] | None) -> None:
    """Wait until a node knows of a change."""
    async with asyncio.timeout(10):
        while await permissions(users) != expected:  # noqa: ASYNC110 - the notice has no event
            await asyncio.sleep(0)


async def test_what_one_node_changes_counts_on_all(node: PostgresUsers, postgres_url: str) -> None:
    elsewhere = PostgresUsers(postgres_url, Clock())
    elsewhere.add("alice", "hash", ("count",))
    await become(node, frozenset({"count"}))
    elsewhere.grant("alice", "admin")
    await become(node, frozenset({"count", "admin"}))
    elsewhere.revoke("alice")
    await become(node, None)


async def test_a_node_whose_connection_was_cut_connects_again_and_has_missed_nothing(
    node: PostgresUsers, postgres_url: str
) -> None:
    node.add("alice", "hash", ("count",))
    await become(node, frozenset({"count"}))
    admin = await connect(postgres_url)
    cut = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'dragoman users'"
    assert await admin.fetchval(cut)
    await admin.close()
    PostgresUsers(postgres_url, Clock()).grant("alice", "admin")
    assert await node.by_name("bob") is None, "the lookup that finds the connection gone succeeds on another"
    await become(node, frozenset({"count", "admin"}))


async def test_without_the_database_callers_get_a_retryable_error_and_the_log_has_the_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    users = PostgresUsers("postgresql://me:hunter2@127.0.0.1:1/tasks", Clock())
    await users.open()
    with pytest.raises(ServerError) as caught:
        await users.by_name("alice")
    assert str(caught.value) == "the users cannot be looked up now: try again in a moment"
    assert "127.0.0.1:1 refuses connections" in caplog.text
    caplog.clear()
    with pytest.raises(ServerError):
        await users.by_key(b"d" * 32)
    assert "refuses" not in caplog.text, "for a second, no other attempt is made"
    await users.close()
    with pytest.raises(ServerError, match="refuses connections") as direct:
        users.list_users()
    assert "hunter2" not in str(direct.value) + caplog.text


def test_users_come_before_the_first_server(empty_postgres_url: str) -> None:
    users = PostgresUsers(empty_postgres_url)
    with pytest.raises(ConfigError, match="has no tables yet"):
        users.list_users()
    users.prepare()
    users.prepare()
    assert users.list_users() == []


async def test_a_role_without_rights_is_an_error_with_what_to_do(empty_postgres_url: str) -> None:
    admin = await connect(empty_postgres_url)
    parts = urlsplit(empty_postgres_url)
    role = f"weak_{parts.path[1:]}"
    await admin.execute(f"CREATE ROLE {role} LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    try:
        weak = PostgresUsers(urlunsplit(parts._replace(netloc=f"{role}@{parts.netloc.rpartition('@')[2]}")))
        with pytest.raises(
            ConfigError, match=r"permission denied for schema public: make the role of the servers the owner"
        ):
            weak.prepare()
        PostgresUsers(empty_postgres_url).prepare()
        with pytest.raises(ConfigError, match=r"permission denied for table dragoman_meta: make the role"):
            weak.list_users()
    finally:
        await admin.execute(f"DROP ROLE {role}")
        await admin.close()


async def test_what_cannot_be_a_name_is_nobody_s_and_reaches_no_database() -> None:
    users = PostgresUsers("postgresql://me@127.0.0.1:1/tasks", Clock())
    await users.open()
    for name in ("a\0b", "a\udc80b", "", "x" * 101):
        assert await users.by_name(name) is None
    await users.close()


async def test_requests_do_not_queue_up_for_a_database_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    callers: list[asyncio.StreamWriter] = []
    monkeypatch.setattr(lookup, "_TIMEOUT", 0.2)
    server = await asyncio.start_server(lambda _, writer: callers.append(writer), "127.0.0.1")
    host, port = server.sockets[0].getsockname()
    users = PostgresUsers(f"postgresql://me@{host}:{port}/tasks", Clock())
    await users.open()
    answers = await asyncio.gather(*(users.by_name(f"user{number}") for number in range(20)), return_exceptions=True)
    assert {type(answer) for answer in answers} == {ServerError}
    assert len(callers) == 1, "the others are told at once"
    await users.close()
    for writer in callers:
        writer.close()
    server.close()
