"""Two PostgreSQL servers in a URL: the one that takes writes is found, also when the other comes back."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator

import asyncpg
import pytest
from cluster.processes.replicas import PostgresPair, replicated_postgres

from dragoman.net.failover.timelines import Timeline, Timelines
from dragoman.net.postgres import PostgresConnection, PostgresUnreachable, connect, is_lost
from dragoman.stores.postgres.admin import standbys
from dragoman.stores.postgres.database import ConnectionLost
from dragoman.stores.postgres.sql.session import Session

WHERE = "SELECT inet_server_port()"


@pytest.fixture(scope="module")
def pair() -> Iterator[PostgresPair]:
    with replicated_postgres() as pair:
        yield pair


async def port_of(connection: PostgresConnection) -> int:
    return await connection.fetchval(WHERE)


async def test_a_server_that_takes_no_writes_any_more_is_left(pair: PostgresPair) -> None:
    session = Session(pair.url)
    assert await session.run(port_of) == pair.primary.port
    await session.run(lambda connection: connection.execute("CREATE TABLE numbers (number int)"))
    await session.run(lambda connection: connection.execute("SET default_transaction_read_only = on"))
    with pytest.raises(ConnectionLost, match="read-only transaction"):
        await session.run(lambda connection: connection.execute("INSERT INTO numbers VALUES (1)"))
    await session.run(lambda connection: connection.execute("INSERT INTO numbers VALUES (1)"))
    await session.close()


async def test_the_doctor_says_what_a_standby_promises(pair: PostgresPair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standbys, "LONG_COMMIT", 0.0)
    primary = await connect(pair.url)
    await primary.execute("CREATE ROLE plain LOGIN; CREATE TABLE words (word text); GRANT INSERT ON words TO plain")
    stranger = await connect(pair.primary.url().replace("postgres@", "plain@"))

    async def says(connection: PostgresConnection) -> str:
        finding, *_ = await standbys.examine_standbys(connection, 2)
        return f"{finding.level} {finding.says}"

    async with asyncio.timeout(10):
        while ", up to " not in (finding := await says(primary)):  # the standby has not reported a position yet
            assert finding.startswith("warn 1, all asynchronous")
    await asyncio.to_thread(pair.synchronize)
    assert await says(primary) == "ok 1, 1 of them synchronous"
    assert await says(stranger) == "ok 1, synchronous_standby_names = '*'"
    pair.standby.send_signal(signal.SIGSTOP)
    commit = asyncio.ensure_future(stranger.execute("INSERT INTO words VALUES ('hello')"))
    async with asyncio.timeout(10):
        while not (finding := await says(primary)).startswith("FAIL 1 commit waits for a standby"):
            assert finding == "ok 1, 1 of them synchronous"
    assert not commit.done()
    pair.standby.send_signal(signal.SIGCONT)
    await commit
    await asyncio.gather(primary.close(), stranger.close())


async def test_a_process_moves_to_the_promoted_server_and_never_back(pair: PostgresPair) -> None:
    old = pair.primary
    idle, busy, both = [await connect(pair.url) for _ in range(3)]
    assert [await port_of(each) for each in (idle, busy, both)] == [old.port] * 3
    waiting = asyncio.ensure_future(busy.fetchval("SELECT pg_sleep(600)"))

    pair.freeze()
    searching = asyncio.ensure_future(connect(pair.url))
    await asyncio.sleep(0)  # it asks a silent server and a standby
    await asyncio.to_thread(pair.promote)
    moved = await searching
    assert await port_of(moved) == pair.primary.port

    # The others do not wait for a server that was replaced, nor read there what is out of date.
    with pytest.raises(asyncpg.PostgresError) as broken:
        await waiting
    assert is_lost(broken.value)
    assert (idle.is_closed(), both.is_closed(), moved.is_closed()) == (True, True, False)

    pair.thaw()  # now both take writes
    again = await connect(pair.url)
    assert await port_of(again) == pair.primary.port
    with pytest.raises(PostgresUnreachable, match="takes writes although a standby was promoted in its place"):
        await connect(old.url())
    await moved.close()
    await again.close()


def test_servers_of_different_systems_have_nothing_to_do_with_each_other() -> None:
    timelines, loop = Timelines(), asyncio.new_event_loop()
    first, second, third = Place(), Place(), Place()
    assert timelines.join(first, Timeline(1, 7), loop)  # type: ignore[arg-type]
    assert timelines.join(second, Timeline(2, 1), loop)  # type: ignore[arg-type]
    assert not timelines.join(third, Timeline(1, 6), loop)  # type: ignore[arg-type]
    assert (timelines.newest(1), timelines.newest(2), timelines.newest(3)) == (7, 1, 0)
    loop.close()


class Place:
    """Stands for a connection: nothing is sent."""
