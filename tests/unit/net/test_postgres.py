"""The URL of a database: what it may say, and what is answered when it is wrong. No text has a password."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import pytest

from dragoman.model.error import ConfigError
from dragoman.net.postgres import PostgresUnreachable, connect, is_postgres_url, parse_address, without_password


@pytest.mark.rows(
    "url, hosts",
    [
        ("postgresql://me@db/tasks", (("db", 5432),)),
        ("postgres://me@db:6000/tasks", (("db", 6000),)),
        ("postgresql://me:secret@one,two:5433/tasks", (("one", 5432), ("two", 5433))),
        ("postgresql://[::1]:5433,[::2]/tasks", (("::1", 5433), ("::2", 5432))),
        ("postgresql://%2Ftmp%2Fsockets/tasks", (("/tmp/sockets", 5432),)),
        ("postgresql://me@/tasks?host=/tmp/sockets&port=5433", (("/tmp/sockets", 5433),)),
        ("postgresql://me@/tasks?host=one,two&port=1,2", (("one", 1), ("two", 2))),
        ("postgresql:///tasks", (None,)),
    ],
)
def test_hosts_are_read_as_libpq_reads_them(url: str, hosts: object) -> None:
    assert parse_address(url).hosts == hosts


@pytest.mark.rows(
    "url",
    [
        "postgresql://me:s3cr3t!@db/tasks",
        "postgresql://me:s3cr%33t%21@db/tasks?sslmode=require",
        "postgresql://me@db/tasks?password=s3cr3t!&sslpassword=s3cr3t!",
    ],
)
def test_a_password_is_in_no_text(url: str) -> None:
    assert "s3cr" not in without_password(url)
    assert "db/tasks" in without_password(url)
    assert "s3cr" not in parse_address(url).clean("wrong: s3cr3t!")


@pytest.mark.rows(
    "url, words",
    [
        ("mysql://me:s3cr3t@db/tasks", "mysql is not the scheme of a PostgreSQL database"),
        ("postgresql://me:s3cr3t@db:port/tasks", "a port in the URL of the database is not a number"),
        ("postgresql://me:s3c#r3t@db/tasks", "is not a number: .* special characters of a password as %XX"),
        ("postgresql://me:s3c/r3t@db/tasks", "is not a number: .* special characters of a password as %XX"),
        ("postgresql://me:s3cr3t@db/tasks/more", "has a part too many"),
        ("postgresql://me:s3cr3t@db/tasks?sslmode", "cannot be read"),
        ("postgresql://me:s3cr3t@db/tasks?channel_binding=require", "use sslmode=verify-full instead"),
    ],
)
def test_a_wrong_url_is_answered_with_what_to_write(url: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as error:
        parse_address(url)
    assert "r3t" not in str(error.value)
    assert "r3t" not in without_password(url)


def test_what_is_no_url_of_postgresql_is_recognized() -> None:
    assert is_postgres_url("postgres://db/tasks")
    assert not is_postgres_url("sqlite:///postgres.db")


# -- real servers ------------------------------------------------------------------------------------------------------


async def test_a_session_has_its_settings_and_those_of_the_url_come_first(postgres_url: str) -> None:
    url = f"{postgres_url}?application_name=mine&lock_timeout=7&connect_timeout=3"
    connection = await connect(url, {"application_name": "theirs", "enable_seqscan": "off"})
    names = ("application_name", "lock_timeout", "enable_seqscan", "synchronous_commit", "statement_timeout")
    settings = [await connection.fetchval(f"SHOW {name}") for name in names]
    assert settings == ["mine", "7ms", "off", "on", "0"]
    await connection.close()


@pytest.mark.rows(
    "change, words",
    [
        (lambda url: url.replace("/test_", "/missing_"), "does not exist: create it with `createdb`"),
        (lambda url: url.replace("postgres@", "nobody_here@"), "refuses the login"),
        (lambda url: f"{url}?no_such_setting=1", "refuses a parameter of the URL"),
        (lambda url: f"{url}?sslmode=nonsense", "`sslmode` parameter must be one of"),
        (lambda url: f"{url}?connect_timeout=soon", "is not a number of seconds"),
    ],
)
def test_what_a_server_refuses_is_said_with_what_to_do(change: object, words: str, postgres_url: str) -> None:
    url = change(postgres_url)  # type: ignore[operator]
    with pytest.raises(ConfigError, match=words):
        asyncio.run(connect(url))


async def test_a_server_that_is_not_there_can_come_back(unused_tcp_port: int) -> None:
    with pytest.raises(PostgresUnreachable, match="refuses connections: is PostgreSQL running there"):
        await connect(f"postgresql://me:s3cr3t@127.0.0.1:{unused_tcp_port}/tasks")
    with pytest.raises(PostgresUnreachable, match="check the name of the host"):
        await connect("postgresql://me@no.such.host.invalid/tasks")


async def test_of_several_hosts_the_first_that_takes_writes_is_used(postgres_url: str, unused_tcp_port: int) -> None:
    good = urlsplit(postgres_url).netloc.rpartition("@")[2]
    hosts = f"127.0.0.1:{unused_tcp_port},{good}"
    connection = await connect(postgres_url.replace(good, hosts))
    assert await connection.fetchval("SELECT 1") == 1
    await connection.execute(f"ALTER DATABASE {urlsplit(postgres_url).path[1:]} SET default_transaction_read_only = on")
    await connection.close()
    with pytest.raises(PostgresUnreachable, match="is a standby that takes no writes"):
        await connect(postgres_url)
