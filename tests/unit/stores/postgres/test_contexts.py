"""Tasks of one context run one after the other, whichever nodes they are on, and none is forgotten."""

from __future__ import annotations

import asyncio
import random

import pytest
from msgspec import structs
from unit.stores.postgres.changes import NOW, Change, created, new_row
from unit.stores.postgres.cluster import Cluster, ClusterNode, draft_of, next_record

from dragoman.engine.ports.store import DedupeKey, Scope, TaskRow
from dragoman.model.state import State
from dragoman.stores.postgres.database import InvalidValue
from dragoman.stores.postgres.sql import reader

JOINS = {"joins_context": True, "serial": True}
BEGINS = {"begins": True, **JOINS}


def joiner(context: str) -> TaskRow:
    return structs.replace(new_row(context), state=State.WORKING)


def queued(context: str) -> TaskRow:
    return new_row(context)


async def test_a_context_without_others_announces_nothing(node: ClusterNode) -> None:
    row = await node.create("talk")
    other = await node.create("other talk")
    outcomes = await node.commit(next_record(row, State.COMPLETED), next_record(other, State.INPUT_REQUIRED))
    assert [outcome.queue for outcome in outcomes] == [False, False]


async def test_of_two_joiners_at_the_same_time_one_begins(cluster: Cluster) -> None:
    nodes = [await cluster.node() for _ in range(3)]
    for turn in range(5):
        rows = [joiner(f"talk {turn}") for _ in nodes]
        kinds = await asyncio.gather(
            *(node.kinds(created(row, **BEGINS)) for node, row in zip(nodes, rows, strict=True))
        )
        assert sorted(kind for (kind,) in kinds) == ["busy", "busy", "committed"]


async def test_of_several_joiners_in_one_batch_one_begins(node: ClusterNode) -> None:
    kinds = await node.kinds(*(created(joiner("talk"), **BEGINS) for _ in range(3)), created(joiner("x"), **BEGINS))
    assert kinds == ["committed", "busy", "busy", "committed"]


async def test_a_waiting_task_is_seen_by_an_end_that_began_before_it(
    cluster: Cluster, one: ClusterNode, two: ClusterNode
) -> None:
    """The statement that ends the first task has read the database before the second was there."""
    other, first = await one.create(), await one.create("talk")
    async with cluster.locked(other):
        ending = asyncio.create_task(one.commit(next_record(other), next_record(first, State.COMPLETED)))
        await cluster.until_waiting()
        second = queued("talk")
        assert await two.kinds(created(second, queued=True, **JOINS)) == ["committed"]
        assert await two.take() == []
    assert [outcome.queue for outcome in await ending] == [False, True]
    assert await two.take() == [second.number]


async def test_a_creation_that_waits_for_an_end_finds_the_context_free(
    cluster: Cluster, one: ClusterNode, two: ClusterNode
) -> None:
    """The statement that creates the second task waits for the one that ends the first."""
    first, other = await one.create("talk"), await one.create()
    async with cluster.locked(other):
        ending = asyncio.create_task(one.commit(next_record(first, State.COMPLETED), next_record(other)))
        await cluster.until_waiting()
        row = joiner("talk")
        beginning = asyncio.create_task(two.kinds(created(row, **BEGINS)))
        await cluster.until_waiting(2)
    await ending
    # It was refused by what it had read; another attempt is not.
    assert await beginning == ["busy"]
    assert await two.kinds(created(row, **BEGINS)) == ["committed"]


async def test_a_task_waits_for_a_draft_and_is_announced_when_it_is_answered(
    cluster: Cluster, one: ClusterNode, two: ClusterNode
) -> None:
    other, draft = await one.create(), new_row("talk")
    assert await one.kinds(draft_of(draft, **BEGINS)) == ["committed"]
    assert await two.kinds(created(joiner("talk"), **BEGINS)) == ["busy"]
    answered = Change(draft, draft=True, delete=True, epoch=1)
    async with cluster.locked(other):
        ending = asyncio.create_task(one.commit(next_record(other), answered))
        await cluster.until_waiting()
        second = queued("talk")
        assert await two.kinds(created(second, queued=True, **JOINS)) == ["committed"]
        assert await two.take() == []
    assert [outcome.queue for outcome in await ending] == [False, True]
    assert await two.take() == [second.number]


async def test_a_turn_that_nobody_uses_is_taken_over(cluster: Cluster, node: ClusterNode) -> None:
    first = await node.create("talk", **BEGINS)
    await node.append(first, State.COMPLETED)
    stranger = await cluster.stranger()
    await stranger.execute("UPDATE contexts SET running = 4711")
    assert await node.kinds(created(joiner("talk"), **BEGINS)) == ["committed"]


async def test_a_repeated_message_does_not_occupy_the_context(node: ClusterNode) -> None:
    key = DedupeKey(b"key", NOW + 1000)
    first = await node.create("talk", dedupe_key=key)
    await node.append(first, State.COMPLETED)
    assert await node.kinds(created(joiner("talk"), dedupe_key=key, **BEGINS)) == ["repeated"]
    assert await node.kinds(created(joiner("talk"), **BEGINS)) == ["committed"]


async def test_the_states_of_a_context_are_written_one_after_the_other(node: ClusterNode) -> None:
    rows = [await node.create("talk", begins=False) for _ in range(3)]
    changes = [next_record(row, context_state=b"%d" % place) for place, row in enumerate(rows)]
    assert await node.kinds(*changes) == ["committed"] * 3
    assert await node.database.run(reader.context_state, Scope("agent", "", ""), "talk") == b"2"


async def test_of_several_statements_nothing_is_applied_when_one_fails(node: ClusterNode) -> None:
    one, two = await node.create("talk", begins=False), await node.create("talk", begins=False)
    bad = next_record(structs.replace(two, status_ms=1 << 70), context_state=b"bad")
    with pytest.raises(InvalidValue):
        await node.commit(next_record(one, context_state=b"good"), bad)
    assert await node.append(one) == "committed"


async def test_several_statements_are_sent_again_together_when_a_lock_is_not_granted(cluster: Cluster) -> None:
    node = await cluster.node(lock_timeout="20ms")
    one, two = await node.create("talk", begins=False), await node.create("talk", begins=False)
    async with cluster.locked(two):
        changes = [next_record(row, context_state=b"state") for row in (one, two)]
        writing = asyncio.create_task(node.kinds(*changes))
        await cluster.until_waiting()
        began = "SELECT max(xact_start) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        first = await cluster.value(began)
        # The lock is given up after a while, and asked for again by a new transaction.
        while (await cluster.value(began) or first) == first:
            pass
    assert await writing == ["committed", "committed"]


async def test_a_draft_that_is_answered_saves_the_state_and_gives_its_turn_back(node: ClusterNode) -> None:
    draft = new_row("talk")
    await node.commit(draft_of(draft, **BEGINS))
    answered = Change(draft, draft=True, delete=True, context_state=b"saved", epoch=1)
    assert await node.kinds(answered) == ["committed"]
    assert await node.database.run(reader.context_state, Scope("agent", "", ""), "talk") == b"saved"
    assert await node.kinds(created(joiner("talk"), **BEGINS)) == ["committed"]


class Worker:
    """What an engine does with the contexts of its node: it begins what it may, and announces work."""

    def __init__(self, node: ClusterNode, workers: list[Worker]) -> None:
        self.node = node
        self.work = asyncio.Event()
        self._workers = workers
        workers.append(self)

    def announce(self) -> None:
        for worker in self._workers:
            worker.work.set()

    async def accept(self, context: str, running: set[str], ended: list[int]) -> None:
        row = joiner(context)
        (kind,) = await self.node.kinds(created(row, **BEGINS))
        if kind == "committed":
            await self.run(row, 1, running, ended)
            return
        waiting = structs.replace(row, state=State.SUBMITTED)
        assert await self.node.kinds(created(waiting, queued=True, **JOINS)) == ["committed"]
        self.announce()

    async def take_work(self, running: set[str], ended: list[int]) -> None:
        while True:
            await self.work.wait()
            self.work.clear()
            for task in await self.node.database.take(self.node.id, "agent", parallel=False, limit=3):
                self.work.set()
                row, epoch = task.stored.row, task.claim.epoch
                begins = next_record(row, State.WORKING, epoch=epoch, begins=True, serial=True)
                if await self.node.kinds(begins) == ["committed"]:
                    await self.run(begins.write.row, epoch, running, ended)
                else:
                    assert await self.node.database.release(self.node.id, row.number, epoch)
                    self.announce()

    async def run(self, row: TaskRow, epoch: int, running: set[str], ended: list[int]) -> None:
        assert row.context_id not in running, "two tasks of one context are at work"
        running.add(row.context_id)
        for _ in range(random.randrange(4)):
            await asyncio.sleep(0)
        running.remove(row.context_id)
        (outcome,) = await self.node.commit(next_record(row, State.COMPLETED, epoch=epoch))
        assert outcome.kind == "committed"
        ended.append(row.number)
        if outcome.queue:
            self.announce()


async def test_under_load_runs_never_overlap_and_no_wakeup_is_lost(cluster: Cluster) -> None:
    workers: list[Worker] = []
    for _ in range(3):
        Worker(await cluster.node(), workers)
    running: set[str] = set()
    ended: list[int] = []
    takers = [asyncio.create_task(worker.take_work(running, ended)) for worker in workers]
    async with asyncio.timeout(15):
        await asyncio.gather(*(workers[place % 3].accept(f"talk {place % 2}", running, ended) for place in range(24)))
        while len(ended) < 24:
            assert not any(taker.done() for taker in takers)
            await asyncio.sleep(0)
    for taker in takers:
        taker.cancel()
    await asyncio.gather(*takers, return_exceptions=True)
    assert len(set(ended)) == 24
