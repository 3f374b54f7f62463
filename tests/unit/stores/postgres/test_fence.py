"""Only the owner of a task writes it, whatever happens at the same time. On a real PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from urllib.parse import urlsplit, urlunsplit

import pytest
from msgspec import structs
from unit.stores.postgres.changes import NOW, SCOPE, Change, created, new_row
from unit.stores.postgres.cluster import Cluster, ClusterNode, next_record

from dragoman.engine.ports.store import DedupeKey, Note, Scope, TaskQuery
from dragoman.model.state import State
from dragoman.net.postgres import PostgresConnection
from dragoman.stores.postgres.database import ConnectionLost, TaskOwner
from dragoman.stores.postgres.sql import reader
from dragoman.stores.postgres.sql.session import SessionPool

KEY = DedupeKey(b"key", NOW + 1000)


async def test_of_two_who_claim_a_waiting_task_one_gets_it(cluster: Cluster) -> None:
    nodes = [await cluster.node() for _ in range(3)]
    row = await nodes[0].create()
    assert await nodes[0].append(row, State.INPUT_REQUIRED) == "committed"
    claims = await asyncio.gather(
        *(node.database.claim(node.id, row.number, 2, revoke=False) for node in nodes for _ in range(2))
    )
    owners = {node.id for node, won in zip([n for n in nodes for _ in range(2)], claims, strict=True) if won}
    # Who has it may claim it again, with a later epoch.
    assert len(owners) == 1
    owner = owners.pop()
    claimed = await nodes[0].database.owners(nodes[0].id, [row.number])
    assert claimed[row.number] == TaskOwner(owner, 1 + sum(won is not None for won in claims), 2, row.id)


async def test_a_node_that_claims_again_writes_with_its_last_claim_only(node: ClusterNode) -> None:
    row = await node.create()
    claimed = await node.database.claim(node.id, row.number, 1, revoke=False)
    assert claimed is not None
    assert await node.append(row, epoch=1) == "refused"
    assert await node.append(row, epoch=claimed.claim.epoch) == "committed"


async def test_an_update_that_waited_for_a_lock_decides_by_the_row_as_it_is_then(
    cluster: Cluster, one: ClusterNode, two: ClusterNode
) -> None:
    kept, lost = await one.create(), await one.create()
    async with cluster.locked(kept, lost) as stranger:
        key = DedupeKey(b"k", NOW + 1000)
        waiting = asyncio.create_task(one.kinds(next_record(kept, dedupe_key=key), next_record(lost)))
        await cluster.until_waiting()
        await stranger.execute("UPDATE tasks SET mail = mail + 1 WHERE number = $1", kept.number)
        await stranger.execute("UPDATE tasks SET owner = $1, epoch = epoch + 1 WHERE number = $2", two.id, lost.number)
    assert await waiting == ["committed", "refused"]
    assert await one.database.run(reader.duplicate_of, b"k", NOW) == kept.id


# -- statements whose answer is lost -----------------------------------------------------------------------------------


async def test_a_batch_that_is_sent_again_changes_nothing(node: ClusterNode) -> None:
    old = await node.create()
    row = structs.replace(new_row(), state=State.WORKING)
    batch = (
        created(row, dedupe_key=KEY, notes=(Note(1, "request", b"r"),)),
        next_record(old, State.COMPLETED, notes=(Note(2, "message", b"m"),), snapshot=b"s"),
    )
    noted = Change(row, notes=(Note(1, "begun", b"pay"),), epoch=1, key=7)
    assert await node.kinds(*batch) == ["committed", "committed"]
    assert await node.kinds(noted) == ["committed"]
    assert await node.kinds(*batch) == ["refused", "refused"]
    assert await node.kinds(noted) == ["committed"]
    assert len(await node.database.run(reader.records, old.number, 0, 9)) == 2
    assert [note.kind for note in await node.database.run(reader.notes, row.number)] == ["request", "begun"]
    assert len(await node.database.run(reader.notes, old.number)) == 1
    assert (await node.database.run(reader.page, TaskQuery(SCOPE))).total == 2
    assert (await node.database.run(reader.page, TaskQuery(SCOPE, state=State.WORKING))).total == 1


async def test_a_statement_that_commits_after_its_client_was_cut_counts_once(
    cluster: Cluster, node: ClusterNode
) -> None:
    row = await node.create()
    change = next_record(row, State.COMPLETED, snapshot=b"s")
    async with cluster.locked(row):
        first = asyncio.create_task(node.commit(change))
        await cluster.until_waiting()
        node.database._writer.terminate()  # pyright: ignore[reportPrivateUsage]
        with pytest.raises(ConnectionLost):
            await first
        again = asyncio.create_task(node.kinds(change))
        await cluster.until_waiting(2)
    # Whichever came first, the other is refused; the row tells that it is committed.
    if await again == ["refused"]:
        owners = await node.database.owners(node.id, [row.number])
        assert owners == {row.number: TaskOwner(None, 1, 2, row.id)}
    assert len(await node.database.run(reader.records, row.number, 0, 9)) == 2
    assert await cluster.value("SELECT sum(tasks)::int FROM state_counts WHERE scope > 0") == 1


async def test_a_connection_that_works_is_used_before_one_that_cannot_be_made(cluster: Cluster) -> None:
    parts = urlsplit(cluster.url)
    role = f"limited_{parts.path[1:]}"
    await cluster.value(f"CREATE ROLE {role} LOGIN CONNECTION LIMIT 1")
    pool = SessionPool(urlunsplit(parts._replace(netloc=f"{role}@{parts.hostname}:{parts.port}")), 2)
    has_begun, may_end = asyncio.Event(), asyncio.Event()

    async def hold(connection: PostgresConnection) -> int:
        has_begun.set()
        await may_end.wait()
        return await connection.fetchval("SELECT 1")

    def ask(connection: PostgresConnection) -> Awaitable[int]:
        return connection.fetchval("SELECT 2")

    first = asyncio.create_task(pool.run(hold))
    await has_begun.wait()
    second = asyncio.create_task(pool.run(ask))
    await asyncio.sleep(0)
    may_end.set()
    assert await first == 1
    with pytest.raises(ConnectionLost, match="no free connection"):
        await second
    assert await pool.run(ask) == 2
    await pool.close()
    await cluster.value(f"DROP ROLE {role}")


async def test_a_server_behind_a_new_connection_is_asked_for_its_scopes(cluster: Cluster, node: ClusterNode) -> None:
    mine = structs.replace(new_row(), scope=Scope("agent", "", "mine"))
    assert await node.kinds(created(mine)) == ["committed"]
    # A standby that takes over may have lost a scope, and have given its number to another.
    await cluster.value("UPDATE scopes SET owner = 'theirs' WHERE owner = 'mine' RETURNING 1")
    node.database._writer.terminate()  # pyright: ignore[reportPrivateUsage]
    later = structs.replace(new_row(), scope=mine.scope)
    assert await node.kinds(created(later)) == ["committed"]
    stored = await node.database.run(reader.task, later.id)
    assert stored is not None
    assert stored.row.scope == mine.scope


async def test_a_deadlock_is_resolved_by_sending_again(cluster: Cluster) -> None:
    node = await cluster.node(deadlock_timeout="10ms")
    one, two = await node.create(), await node.create()
    async with cluster.locked(two) as stranger:
        await stranger.execute("SET LOCAL deadlock_timeout = '10s'")
        async with cluster.locked(one):
            writing = asyncio.create_task(node.kinds(next_record(one), next_record(two)))
            await cluster.until_waiting()
            locking = asyncio.create_task(
                stranger.execute("SELECT 1 FROM tasks WHERE number = $1 FOR UPDATE", one.number)
            )
            await cluster.until_waiting(2)
        await locking  # the node has given way
        assert not writing.done()
    assert await writing == ["committed", "committed"]


# -- dedupe keys -------------------------------------------------------------------------------------------------------


async def test_of_two_nodes_that_accept_the_same_message_one_creates_the_task(cluster: Cluster) -> None:
    nodes = [await cluster.node() for _ in range(3)]
    rows = [new_row() for _ in nodes]
    kinds = await asyncio.gather(
        *(node.kinds(created(row, dedupe_key=KEY)) for node, row in zip(nodes, rows, strict=True))
    )
    assert sorted(kind for (kind,) in kinds) == ["committed", "repeated", "repeated"]
    winner = rows[kinds.index(["committed"])]
    assert await nodes[0].database.run(reader.duplicate_of, KEY.digest, NOW) == winner.id
    assert await cluster.value("SELECT count(*) FROM tasks") == 1
    assert await cluster.value("SELECT count(*) FROM events") == 1


async def test_a_message_is_repeated_within_one_batch_too(node: ClusterNode) -> None:
    kinds = await node.kinds(created(new_row(), dedupe_key=KEY), created(new_row(), dedupe_key=KEY))
    assert sorted(kinds) == ["committed", "repeated"]


async def test_a_key_is_free_again_when_it_has_expired_or_its_task_is_gone(node: ClusterNode) -> None:
    old = DedupeKey(KEY.digest, NOW)
    rows = [new_row() for _ in range(3)]
    assert await node.kinds(created(rows[0], dedupe_key=old)) == ["committed"]
    assert await node.kinds(created(rows[1], dedupe_key=KEY)) == ["committed"]
    assert await node.kinds(created(rows[2], dedupe_key=KEY)) == ["repeated"]
    assert await node.kinds(Change(rows[1], delete=True)) == ["committed"]
    assert await node.database.run(reader.duplicate_of, KEY.digest, NOW) is None
    assert await node.kinds(created(rows[2], dedupe_key=KEY)) == ["committed"]


async def test_a_refused_change_leaves_no_key(cluster: Cluster, node: ClusterNode) -> None:
    row = await node.create()
    assert await node.append(row, dedupe_key=KEY, epoch=7) == "refused"
    taken = structs.replace(new_row(), id=row.id)
    assert await node.kinds(created(taken, dedupe_key=KEY)) == ["refused"]
    assert await cluster.value("SELECT count(*) FROM repeats") == 0


# -- messages for tasks of others --------------------------------------------------------------------------------------


async def test_a_message_that_races_the_end_is_refused_or_stored(
    cluster: Cluster, one: ClusterNode, two: ClusterNode
) -> None:
    ends_first, posted_first = await one.create(), await one.create()
    async with cluster.locked(ends_first):
        ending = asyncio.create_task(one.append(ends_first, State.COMPLETED))
        await cluster.until_waiting()
        posting = asyncio.create_task(two.database.post(ends_first, b"late", KEY, None, 1))
        await cluster.until_waiting(2)
    assert (await ending, (await posting).kind) == ("committed", "refused")
    assert await two.database.run(reader.duplicate_of, KEY.digest, NOW) is None
    async with cluster.locked(posted_first):
        posting = asyncio.create_task(two.database.post(posted_first, b"in time", KEY, None, 2))
        await cluster.until_waiting()
        ending = asyncio.create_task(one.append(posted_first, State.COMPLETED))
        await cluster.until_waiting(2)
    assert (await ending, (await posting).kind) == ("committed", "committed")
    assert await one.database.run(reader.mail, posted_first.number, 0) == [(1, b"in time")]


async def test_a_message_that_is_posted_again_while_the_first_statement_waits_takes_one_number(
    cluster: Cluster,
    node: ClusterNode,
) -> None:
    row = await node.create()
    async with cluster.locked(row):
        posts = [asyncio.ensure_future(node.database.post(row, b"m", None, None, 7)) for _ in range(2)]
        await cluster.until_waiting(2)
    assert [(await post).kind for post in posts] == ["committed", "committed"]
    assert (await node.database.post(row, b"n", None, None, 8)).kind == "committed"
    assert await node.database.run(reader.mail, row.number, 0) == [(1, b"m"), (2, b"n")]
