"""The URL of a database: what it may say, and what is answered when it is wrong. No text has a password."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trustme
from postgres_server import NoPostgres, PostgresServer
from unit.net.pooler import pooled

from dragoman.model.error import ConfigError
from dragoman.net.postgres import PostgresUnreachable, connect, is_postgres_url, parse_address, without_password


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda url: url.replace("/test_", "/missing_"), "does not exist: create it with `createdb`"),
        (lambda url: url.replace("postgres@", "nobody_here@"), "refuses the login"),
        (lambda url: f"{url}?no_such_setting=1", "refuses a parameter of the URL"),
        (lambda url: f"{url}?sslmode=nonsense", "`sslmode` parameter must be one of"),
        (lambda url: f"{url}?connect_timeout=soon", "is not a number of seconds"),
    ],
)
def test_a_refusal_of_the_server_is_an_error_with_what_to_do(change: object, words: str, postgres_url: str) -> None:
    url = change(postgres_url)  # type: ignore[operator]
    with pytest.raises(ConfigError, match=words):
        asyncio.run(connect(url))


async def test_a_server_that_is_not_there_can_come_back(unused_tcp_port: int) -> None:
    with pytest.raises(PostgresUnreachable, match="refuses connections: is PostgreSQL running there"):
        await connect(f"postgresql://me:s3cr3t@127.0.0.1:{unused_tcp_port}/tasks")
    with pytest.raises(PostgresUnreachable, match="there is no socket for"):
        await connect("postgresql://me@/tasks?host=/nowhere")
    with pytest.raises(PostgresUnreachable, match="check the name of the host"):
        await connect("postgresql://me@no.such.host.invalid/tasks")


async def test_canceling_a_transaction_does_not_wait_for_its_rollback(postgres_url: str) -> None:
    one, other = await connect(postgres_url), await connect(postgres_url)
    process = one.get_server_pid()

    async def work() -> None:
        async with one.transaction():
            await one.execute("SELECT pg_sleep(3600)")

    working = asyncio.ensure_future(work())
    async with asyncio.timeout(10):
        while not await other.fetchval(
            "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND pid = $1)",
            process,
        ):
            pass
    working.cancel()
    await asyncio.wait((working,))
    assert one.is_closed()
    await other.execute("SELECT pg_terminate_backend($1)", process)
    await other.close()


async def test_of_several_hosts_the_first_that_takes_writes_is_used(postgres_url: str, unused_tcp_port: int) -> None:
    good = urlsplit(postgres_url).netloc.rpartition("@")[2]
    hosts = f"127.0.0.1:{unused_tcp_port},{good}"
    connection = await connect(postgres_url.replace(good, hosts))
    assert await connection.fetchval("SELECT 1") == 1
    await connection.execute(f"ALTER DATABASE {urlsplit(postgres_url).path[1:]} SET default_transaction_read_only = on")
    await connection.close()
    with pytest.raises(PostgresUnreachable, match="is a standby that takes no writes"):
        await connect(postgres_url)


async def test_a_silent_host_does_not_keep_the_next_one_waiting(postgres_url: str) -> None:
    accepted: list[asyncio.StreamWriter] = []
    silent = await asyncio.start_server(lambda _, writer: accepted.append(writer), "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    good = urlsplit(postgres_url).netloc.rpartition("@")[2]
    async with asyncio.timeout(5):  # less than a lease: a node that gives up earlier never comes to the second host
        connection = await connect(postgres_url.replace(good, f"127.0.0.1:{port},{good}"))
    assert await connection.fetchval("SELECT 1") == 1
    await connection.close()
    (writer,) = accepted
    writer.close()
    silent.close()


@pytest.mark.parametrize("shares", [True, False], ids=["transactions", "sessions"])
async def test_a_pooler_is_refused_when_it_shares_sessions(shares: bool, postgres_url: str) -> None:
    async with pooled(postgres_url, shares=shares) as url:
        if shares:
            with pytest.raises(ConfigError, match="use the address of PostgreSQL itself, or a pool in session mode"):
                await connect(url)
        else:
            connection = await connect(url)
            assert await connection.fetchval("SHOW synchronous_commit") == "on"
            await connection.close()


@pytest.fixture(scope="module")
def guarded_server(postgres_databases: object) -> Iterator[tuple[str, Path]]:
    """The URL of a server that takes TLS with a password only, and the folder with its authority."""
    folder = Path(tempfile.mkdtemp(prefix="dragoman-tls-"))
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1", "localhost")
    authority.cert_pem.write_to_path(folder / "authority.pem")
    trustme.CA().cert_pem.write_to_path(folder / "another.pem")
    certificate.cert_chain_pems[0].write_to_path(folder / "server.pem")
    certificate.private_key_pem.write_to_path(folder / "server.key")
    (folder / "server.key").chmod(0o600)
    folder.chmod(0o755)
    if os.geteuid() == 0:
        shutil.chown(folder / "server.key", "nobody")
    files = {"ssl_cert_file": str(folder / "server.pem"), "ssl_key_file": str(folder / "server.key")}
    server = PostgresServer(folder / "server", ssl="on", fsync="off", password_encryption="scram-sha-256", **files)
    try:
        server.start()

        async def set_password() -> None:
            connection = await connect(server.url())
            await connection.execute("ALTER USER postgres PASSWORD 's3cr3t#1'")
            await connection.close()

        asyncio.run(set_password())
        server.stop()
        (folder / "server" / "data" / "pg_hba.conf").write_text("hostssl all all 127.0.0.1/32 scram-sha-256\n")
        server.start()
        yield server.url(), folder
    except NoPostgres as error:
        pytest.skip(f"no PostgreSQL with TLS: {error}")
    finally:
        server.stop()
        shutil.rmtree(folder)


async def test_tls_is_as_strict_as_the_url_says(guarded_server: tuple[str, Path]) -> None:
    plain, folder = guarded_server
    url = plain.replace("postgres@", "postgres:s3cr3t%231@")
    for options in ("", "?sslmode=require", f"?sslmode=verify-full&sslrootcert={folder}/authority.pem"):
        connection = await connect(url + options)
        assert await connection.fetchval("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"), options
        await connection.close()
    refused = {
        f"?sslmode=verify-full&sslrootcert={folder}/another.pem": "check sslmode and sslrootcert",
        f"?sslmode=verify-full&sslrootcert={folder}/missing.pem": "names a file that is not there",
        "?sslmode=verify-full&sslrootcert=system": "check sslmode and sslrootcert",
        "?sslmode=disable": "refuses the login",
    }
    for options, words in refused.items():
        with pytest.raises(ConfigError, match=words) as error:
            await connect(url + options)
        assert "s3cr3t" not in str(error.value), options


async def test_a_wrong_password_is_an_error_that_does_not_show_it(guarded_server: tuple[str, Path]) -> None:
    url = guarded_server[0].replace("postgres@", "postgres:wr0ng%21@")
    with pytest.raises(ConfigError, match=r"refuses the login: .*: check user and password") as error:
        await connect(url)
    assert "wr0ng" not in str(error.value)
