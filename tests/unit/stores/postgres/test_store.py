"""The shared store and its claims, over a database that fails as a test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from cluster.simulated_database import SimulatedDatabase
from unit.stores.postgres.changes import NOW, Change, appended, created, new_row
from unit.stores.postgres.faulty import FaultyDatabase
from unit.stores.postgres.heartbeat_task import HeartbeatTask

from dragoman.dialects.table import V1_0
from dragoman.engine.ports.ownership import MessageRepeated, OwnershipLost
from dragoman.engine.ports.rows import Column, ExtraRow, TaskTable
from dragoman.engine.ports.store import WOKEN, DedupeKey, Push, TaskRow
from dragoman.model.error import CannotConnect, ServerError
from dragoman.model.state import State
from dragoman.stores.postgres.lease import NodeLease
from dragoman.stores.postgres.numbers import BLOCK
from dragoman.stores.postgres.store import PostgresStore
from dragoman.testing.clock import ManualClock

LEASE = 6.0
EXTRA = TaskTable(
    "extra",
    (Column("id", "INTEGER"), Column("changed", "INTEGER")),
    version="changed",
    owner="id",
    key_of=lambda _: None,
)


class Server:
    """One node: its store, and the notices that its engine got."""

    def __init__(self, simulated: SimulatedDatabase, clock: ManualClock, runs_limit: int | None = None) -> None:
        self.clock = clock
        self.database = FaultyDatabase(simulated)
        self.nodes = FaultyDatabase(simulated)
        self.lease = NodeLease(LEASE, lambda: clock.now() / 1000)
        self.store = PostgresStore(
            self.database,
            self.nodes,
            name="one",
            lease=self.lease,
            clock=clock,
            heartbeat_loop=HeartbeatTask(),
            runs_limit=runs_limit,
        )
        self.ownership = self.store.ownership
        self.events: list[object] = []
        self.ownership.connect(
            lambda: self.events.append("announced"), lambda task_id, _: self.events.append(("notified", task_id))
        )
        self.ownership.subscribe(self)

    def on_work(self) -> None:
        self.events.append("work")

    def on_touched(self, task_ids: Sequence[str]) -> None:
        self.events.append(("touched", *task_ids))

    def on_lost(self, numbers: Iterable[int] | None) -> None:
        self.events.append("lost" if numbers is None else ("lost", *numbers))

    async def write(self, *changes: Change, seconds: float = 0) -> list[str]:
        for change in changes:
            self.store.write(change.write)
        await self.clock.advance(seconds)
        return [change.outcome for change in changes]

    async def result(self, call: Awaitable[Any], seconds: float = 60) -> Any:
        """Let time pass for a call."""
        calling = asyncio.ensure_future(call)
        await self.clock.advance(seconds)
        assert calling.done()
        return await calling

    def down(self, down: bool = True) -> None:
        self.database.down = self.nodes.down = down


class Cluster:
    def __init__(self) -> None:
        self.clock = ManualClock(NOW)
        self.simulated = SimulatedDatabase(lambda: self.clock.now() / 1000)

    @asynccontextmanager
    async def server(self, runs_limit: int | None = None) -> AsyncIterator[Server]:
        server = Server(self.simulated, self.clock, runs_limit)
        server.store.add_table(EXTRA)
        await server.store.open()
        try:
            yield server
        finally:
            server.down(False)
            closing = asyncio.ensure_future(server.store.close())
            await self.clock.advance(30)
            await closing


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
async def one(cluster: Cluster) -> AsyncIterator[Server]:
    async with cluster.server() as server:
        yield server


@pytest.fixture
async def two(cluster: Cluster) -> AsyncIterator[Server]:
    async with cluster.server() as server:
        yield server


async def waiting(server: Server, state: State = State.INPUT_REQUIRED) -> TaskRow:
    """A task at generation 2 that waits for an answer."""
    task = created(new_row(number=server.store.next_number()))
    pause = appended(task.write.row, 2, state)
    assert await server.write(task, pause) == ["committed", "committed"]
    return pause.write.row


# -- reading -----------------------------------------------------------------------------------------------------------


async def test_a_read_survives_a_lost_connection_and_gives_up_after_some_seconds(one: Server) -> None:
    row = await waiting(one)
    one.database.fail("task", "unsent", "swallowed", "unsent")
    stored = await one.result(one.store.task(row.id), 2)
    assert stored.row == row
    one.down()
    with pytest.raises(ServerError, match="try again with the same messageId"):
        await one.result(one.store.task(row.id), 6)


async def test_a_row_of_a_plug_in_that_was_replaced_without_an_answer_is_replaced(one: Server) -> None:
    row = new_row(number=one.store.next_number())
    await one.write(created(row, rows=(ExtraRow(EXTRA, (12, 1)),)))
    one.database.fail("replace_row", "swallowed")
    assert await one.result(one.store.replace_row(ExtraRow(EXTRA, (12, 2)), 1)) is True
    one.database.fail("replace_row", "unsent")
    assert await one.result(one.store.replace_row(ExtraRow(EXTRA, (12, 3)), 1)) is False


async def test_webhooks_of_a_dead_node_are_claimed_and_woken(one: Server, cluster: Cluster) -> None:
    async with cluster.server() as other:
        row = await waiting(other)
        push = Push(row.number, "hook", V1_0, "https://hooks/1", b"", 1, NOW)
        await other.write(Change(row, pushes=(push,)))
        assert await one.store.undelivered_pushes() == []
        assert [found.id for found, _ in await other.store.undelivered_pushes()] == ["hook"]
    one.database.fail("take_pushes", "swallowed")
    woken = await one.result(one.store.undelivered_pushes(woken=True))
    assert [(found.id, found.due_ms) for found, _ in woken] == [("hook", WOKEN)]


async def test_a_process_that_is_no_node_claims_no_webhooks(one: Server, cluster: Cluster) -> None:
    async with cluster.server() as other:
        row = await waiting(other)
        await other.write(Change(row, pushes=(Push(row.number, "hook", V1_0, "https://hooks/1", b"", 1, NOW),)))
    one.ownership.on_dead()
    with pytest.raises(ServerError, match="cannot renew its lease"):
        await one.result(one.store.undelivered_pushes(woken=True))
    one.ownership.on_joined(303)
    assert [found.id for found, _ in await one.store.undelivered_pushes(woken=True)] == ["hook"]


# -- numbers -----------------------------------------------------------------------------------------------------------


async def test_numbers_go_on_through_an_outage_until_none_are_left(one: Server) -> None:
    numbers = [one.store.next_number() for _ in range(BLOCK // 2 + 1)]
    await one.clock.advance(0)
    one.down()
    numbers += [one.store.next_number() for _ in range(BLOCK)]
    with pytest.raises(ServerError, match="no task numbers are left"):
        for _ in range(BLOCK):
            numbers.append(one.store.next_number())
    one.down(False)
    await one.clock.advance(1)
    numbers.append(one.store.next_number())
    assert numbers == sorted(set(numbers))
    assert len(numbers) > BLOCK * 3 // 2


# -- health ------------------------------------------------------------------------------------------------------------


async def test_a_node_is_not_ready_while_its_lease_ends_or_the_database_is_silent(one: Server) -> None:
    await one.store.check()
    one.nodes.down = True
    await one.clock.advance(LEASE - 0.9)
    with pytest.raises(ServerError, match="lease"):
        await one.store.check()
    one.nodes.down = False
    await one.clock.advance(2)
    await one.store.check()
    one.database.down = True
    with pytest.raises(ServerError, match="does not answer"):
        await one.store.check()

    async def hang(statement: Any) -> Any:
        statement.close()
        await asyncio.get_running_loop().create_future()

    one.database.down = False
    one.database.fail("check", hang)
    with pytest.raises(ServerError, match="does not answer"):
        await one.result(one.store.check(), 3)


async def test_a_node_waits_a_minute_for_its_database_and_then_says_that_nobody_answers(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server(cluster.simulated, cluster.clock)
    server.database.down = True
    opening = asyncio.ensure_future(server.store.open())
    await cluster.clock.advance(59)
    assert not opening.done()
    with pytest.raises(CannotConnect, match="does not answer"):
        await server.result(opening, 10)
    (warning,) = [each.getMessage() for each in caplog.records if each.name == "dragoman.store"]
    assert "waiting up to 60 s" in warning


@pytest.mark.parametrize("link", ["database", "nodes"])
async def test_a_database_that_comes_within_the_minute_is_used(cluster: Cluster, link: str) -> None:
    server = Server(cluster.simulated, cluster.clock)
    getattr(server, link).down = True
    opening = asyncio.ensure_future(server.store.open())
    await cluster.clock.advance(20)
    assert not opening.done()
    getattr(server, link).down = False
    await server.result(opening, 30)
    await server.store.check()
    await server.result(server.store.close(), 10)


# -- claims ------------------------------------------------------------------------------------------------------------


async def test_a_claim_without_an_answer_is_made_again(one: Server) -> None:
    row = await waiting(one)
    stored = await one.store.task(row.id)
    assert stored is not None
    one.database.fail("claim", "swallowed", "swallowed")
    claimed = await one.result(one.ownership.claim(stored))
    assert claimed is not None
    assert await one.write(appended(row, 3, State.WORKING, epoch=claimed.claim.epoch)) == ["committed"]


async def test_what_was_taken_without_an_answer_is_among_the_owned(one: Server, two: Server) -> None:
    rows = [new_row(number=two.store.next_number()) for _ in range(2)]
    await two.write(*(created(row, queued=True) for row in rows))
    one.database.fail("take", "swallowed")
    taken = await one.result(one.ownership.take("agent", parallel=True, limit=1))
    assert [claimed.stored.row.number for claimed in taken] == [rows[1].number]
    assert sorted(await one.ownership.owned()) == [row.number for row in rows]


async def test_released_work_is_queued_and_announced(one: Server, two: Server) -> None:
    row = new_row(number=two.store.next_number())
    await two.write(created(row, queued=True))
    (claimed,) = await one.ownership.take("agent", parallel=True, limit=9)
    one.events.clear()
    one.database.fail("release", "unsent", "swallowed")
    one.ownership.release(claimed.claim)
    await one.clock.advance(3)
    assert one.events == ["announced", "work"]
    assert len(await two.ownership.take("agent", parallel=True, limit=9)) == 1


async def test_a_message_is_posted_once_and_wakes_the_owner(one: Server, two: Server) -> None:
    row = new_row(number=one.store.next_number())
    await one.write(created(row))
    one.events.clear()
    two.database.fail("post", "swallowed", "swallowed")
    assert await two.result(two.ownership.post(row, b"hello", DedupeKey(b"k", NOW * 2), 1)) is True
    assert await one.ownership.mail(row.number, 0) == [(1, b"hello")]
    assert two.events[-2:] == [("notified", row.id), ("touched", row.id)]
    with pytest.raises(MessageRepeated):
        await one.ownership.post(row, b"again", DedupeKey(b"k", NOW * 2))
    assert await one.ownership.post(row, b"late", None, 7) is False


async def test_a_node_has_room_up_to_its_limit(cluster: Cluster, one: Server) -> None:
    assert one.ownership.free_runs > 1000
    async with cluster.server(runs_limit=2) as limited, cluster.server(runs_limit=0) as front:
        for _ in range(2):
            limited.ownership.count_run(1)
        assert (limited.ownership.free_runs, front.ownership.free_runs) == (0, 0)
        limited.ownership.count_run(-1)
        assert limited.ownership.free_runs == 1


async def test_an_engine_that_fails_keeps_no_other_from_its_notices(
    one: Server, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(Server):
        def __init__(self) -> None: ...

        def on_work(self) -> None:
            raise ValueError("a mistake")

    unsubscribe = [one.ownership.subscribe(Failing()), one.ownership.subscribe(one)]
    one.events.clear()
    one.ownership.on_work()
    assert one.events == ["work", "work"]
    assert "a mistake" in caplog.text
    for each in unsubscribe:
        each()
    one.ownership.on_lost([3])
    assert one.events == ["work", "work", ("lost", 3)]


# -- the lease ---------------------------------------------------------------------------------------------------------


async def test_nothing_is_claimed_without_a_lease(one: Server) -> None:
    row = await waiting(one)
    stored = await one.store.task(row.id)
    assert stored is not None
    assert not one.ownership.expired
    one.nodes.down = True
    await one.clock.advance(LEASE + 1)
    assert one.ownership.expired
    renewed = asyncio.ensure_future(one.ownership.wait_renewed())
    with pytest.raises(ServerError, match="cannot renew its lease"):
        await one.result(one.ownership.claim(stored), 6)
    assert not renewed.done()
    one.nodes.down = False
    assert await one.result(one.ownership.claim(stored), 3) is not None
    await renewed


async def test_a_node_that_was_declared_dead_loses_its_tasks_and_goes_on_as_another(one: Server, two: Server) -> None:
    task, begun = (created(new_row(number=one.store.next_number()), begins=True) for _ in range(2))
    await one.write(task, begun)
    node = one.ownership.node
    one.down()
    late = appended(task.write.row, 2)
    assert await one.write(late, seconds=LEASE / 2) == ["waiting"]
    await one.clock.advance(LEASE / 2 + 1)
    renewed = asyncio.ensure_future(one.ownership.wait_renewed())
    one.events.clear()
    await one.clock.advance(2 * LEASE)
    assert "work" in two.events
    taken = await two.ownership.take("agent", parallel=True, limit=1)
    assert [(claimed.begun, claimed.claim.attempts) for claimed in taken] == [(True, 1)]
    one.down(False)
    await one.clock.advance(2)
    assert one.events == ["lost", "work"]
    assert late.outcome == "OwnershipLost"
    with pytest.raises(OwnershipLost):
        await renewed
    assert one.ownership.node not in (0, node)
    assert await one.ownership.owned() == {}
    # It takes what nobody else has taken, like everyone.
    assert len(await one.ownership.take("agent", parallel=True, limit=9)) == 1
    assert await one.write(created(new_row(number=one.store.next_number()))) == ["committed"]


async def test_a_claim_that_was_made_by_the_dead_node_counts_for_nothing(one: Server) -> None:
    row = await waiting(one)
    stored = await one.store.task(row.id)
    assert stored is not None

    async def die(statement: Awaitable[Any]) -> Any:
        one.ownership.on_dead()
        return await statement

    one.database.fail("claim", die)
    with pytest.raises(ServerError, match="declared this one dead"):
        await one.ownership.claim(stored)
    one.ownership.on_joined(303)
    one.database.fail("take", die)
    assert await one.ownership.take("agent", parallel=True, limit=9) == []
