"""Calls that begin while others are under way share a statement, and get what they would have got alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from msgspec import structs
from unit.stores.postgres.changes import Change, created, new_row
from unit.stores.postgres.cluster import Cluster, ClusterNode, draft_of, next_record

from dragoman.engine.ports.store import Note
from dragoman.model.record import Record
from dragoman.model.state import State
from dragoman.stores.postgres.grouped_calls import MAX_CALLS, MAX_STATEMENTS, TOO_LARGE, GroupedCalls, LargeResult
from dragoman.stores.postgres.sql import claims, reader


class Table:
    """Answers when a test says so. The value of a key is the number of the statement that has read it."""

    def __init__(self) -> None:
        self.statements: list[list[str]] = []
        self.answers: list[asyncio.Future[None]] = []
        self.canceled = 0

    async def read_one(self, key: str) -> int:
        return (await self.read_many([key]))[0]  # type: ignore[return-value]

    async def read_many(self, keys: Sequence[str]) -> list[int | LargeResult]:
        number = len(self.statements)
        self.statements.append(list(keys))
        self.answers.append(asyncio.get_running_loop().create_future())
        try:
            await self.answers[number]
        except asyncio.CancelledError:
            self.canceled += 1
            raise
        return [TOO_LARGE if key.startswith("large") and len(keys) > 1 else number for key in keys]

    async def sent(self, count: int) -> None:
        while len(self.statements) < count:  # noqa: ASYNC110 - it takes a few turns of the loop
            await asyncio.sleep(0)

    async def answer(self, number: int) -> None:
        await self.sent(number + 1)
        self.answers[number].set_result(None)


class Reading:
    """A table, and reads that go on while others begin."""

    def __init__(self) -> None:
        self.table = Table()
        self._calls = GroupedCalls[str, int](self.table.read_one, self.table.read_many)

    def begin(self, *keys: str) -> list[asyncio.Task[int]]:
        return [asyncio.ensure_future(self._calls.call(key)) for key in keys]

    async def occupy(self) -> list[asyncio.Task[int]]:
        """Begin as many reads as are made at a time, each alone. What begins later waits for them."""
        reads = self.begin(*(f"first {number}" for number in range(MAX_STATEMENTS)))
        await self.table.sent(MAX_STATEMENTS)
        return reads


# The number of the first statement for many.
NEXT = MAX_STATEMENTS


@pytest.fixture
async def reading() -> Reading:
    return Reading()


async def test_a_lone_call_has_a_statement_of_its_own(reading: Reading) -> None:
    reads = reading.begin("a", "b")
    await reading.table.answer(1)
    await reading.table.answer(0)
    assert await asyncio.gather(*reads) == [0, 1]
    assert reading.table.statements == [["a"], ["b"]]


async def test_what_comes_while_others_are_under_way_is_one_statement_and_each_key_is_read_once(
    reading: Reading,
) -> None:
    early = await reading.occupy()
    reads = reading.begin("a", "b", "a", "c")
    await reading.table.answer(0)
    await reading.table.answer(NEXT)
    assert await asyncio.gather(*reads) == [NEXT] * 4
    assert reading.table.statements[NEXT:] == [["a", "b", "c"]]
    for number in range(1, MAX_STATEMENTS):
        await reading.table.answer(number)
    assert await asyncio.gather(*early) == list(range(MAX_STATEMENTS))


async def test_a_read_is_never_answered_by_a_statement_that_was_sent_before_it(reading: Reading) -> None:
    await reading.occupy()
    (early,) = reading.begin("a")
    await reading.table.answer(0)
    await reading.table.sent(NEXT + 1)
    (late,) = reading.begin("a")
    await reading.table.answer(NEXT)
    await reading.table.answer(NEXT + 1)
    assert (await early, await late) == (NEXT, NEXT + 1)


async def test_a_statement_has_no_more_than_so_many_calls(reading: Reading) -> None:
    await reading.occupy()
    keys = [f"{number}" for number in range(MAX_CALLS + 1)]
    reads = reading.begin(*keys)
    for number in range(NEXT + 2):
        await reading.table.answer(number)
    await asyncio.gather(*reads)
    assert reading.table.statements[NEXT:] == [keys[:MAX_CALLS], keys[MAX_CALLS:]]


async def test_what_is_too_large_to_come_along_is_read_alone(reading: Reading) -> None:
    await reading.occupy()
    small, large = reading.begin("small", "large")
    for number in (0, NEXT, NEXT + 1):
        await reading.table.answer(number)
    assert (await small, await large) == (NEXT, NEXT + 1)
    assert reading.table.statements[NEXT:] == [["small", "large"], ["large"]]


async def test_a_failure_reaches_everybody_who_waits_and_nobody_else(reading: Reading) -> None:
    early = await reading.occupy()
    reads = reading.begin("a", "b")
    await reading.table.answer(0)
    await reading.table.sent(NEXT + 1)
    reading.table.answers[NEXT].set_exception(OSError("cut"))
    assert [str(error) for error in await asyncio.gather(*reads, return_exceptions=True)] == ["cut", "cut"]
    await reading.table.answer(1)
    assert await asyncio.gather(*early) == list(range(MAX_STATEMENTS))


async def test_a_failure_of_one_lets_the_others_go_on(reading: Reading) -> None:
    early = await reading.occupy()
    (read,) = reading.begin("a")
    reading.table.answers[0].set_exception(OSError("cut"))
    await reading.table.answer(NEXT)
    assert await read == NEXT
    await asyncio.wait(early[:1])
    assert str(early[0].exception()) == "cut"


async def test_a_statement_is_given_up_when_nobody_waits_for_it_any_more(reading: Reading) -> None:
    await reading.occupy()
    first, second = reading.begin("a", "b")
    await reading.table.answer(0)
    await reading.table.sent(NEXT + 1)
    first.cancel()
    await asyncio.wait((first,))
    assert reading.table.canceled == 0
    second.cancel()
    await asyncio.wait((second,))
    (again,) = reading.begin("a")
    await reading.table.answer(NEXT + 1)
    assert await again == NEXT + 1
    assert reading.table.canceled == 1


async def test_a_read_that_is_given_up_before_it_was_sent_is_not_sent(reading: Reading) -> None:
    await reading.occupy()
    (read,) = reading.begin("a")
    await asyncio.wait((read,), timeout=0)
    read.cancel()
    await asyncio.wait((read,))
    await reading.table.answer(0)
    (other,) = reading.begin("b")
    await reading.table.answer(NEXT)
    assert await other == NEXT
    assert reading.table.statements[NEXT:] == [["b"]]


@pytest.mark.parametrize("strange", ["a\0b", "a\ud800"])
async def test_an_id_that_no_task_can_have_disturbs_nobody_who_reads_at_the_same_time(
    node: ClusterNode, strange: str
) -> None:
    row = await node.create()
    ids = (row.id, strange, row.id)
    found, other, again = await asyncio.gather(*(node.database.run(reader.task, task_id) for task_id in ids))
    assert found == again
    assert found is not None
    assert other is None


async def test_many_tasks_read_together_are_what_each_is_alone(node: ClusterNode) -> None:
    database = node.database
    plain = await node.create()
    other_day = await node.create(number=await database.numbers(1))
    long, large, ended, draft = await node.create(), await node.create(), new_row(), new_row()
    for generation in range(2, 41):
        change = Change(
            structs.replace(long, generation=generation), records=(Record(generation, b"%d" % generation),), epoch=1
        )
        assert await node.kinds(change) == ["committed"]
    assert await node.kinds(
        Change(structs.replace(large, generation=2), records=(Record(2, b"x" * 100_000),), epoch=1)
    ) == ["committed"]
    assert await node.kinds([created(ended), next_record(ended, State.COMPLETED, snapshot=b"y" * 50_000)]) == [
        "committed"
    ]
    assert await node.kinds(draft_of(draft)) == ["committed"]
    for row, size, count in ((plain, 10, 2), (long, 10, 20), (large, 100_000, 1)):
        notes = tuple(Note(1, "message", b"z" * size) for _ in range(count))
        assert await node.kinds(Change(row, notes=notes, epoch=1)) == ["committed"]
    rows = [plain, other_day, long, large, ended, draft, new_row(), new_row(number=99 << 37)]
    tasks = [await database.run(reader.task, row.id) for row in rows]
    assert await asyncio.gather(*(database.run(reader.task, row.id) for row in rows)) == tasks
    assert [task is None for task in tasks] == [False] * 5 + [True] * 3
    notes = [await database.run(reader.notes, row.number) for row in rows]
    assert await asyncio.gather(*(database.run(reader.notes, row.number) for row in rows)) == notes
    assert [len(found) for found in notes] == [2, 0, 20, 1, 0, 0, 0, 0]
    requests = [(row.number, after, limit) for row in rows for after in (0, 1, 30) for limit in (1, 15, 16, 17, 256)]
    records = [await database.run(reader.records, *request) for request in requests]
    assert await asyncio.gather(*(database.run(reader.records, *request) for request in requests)) == records
    together = await database.run(reader.records_of_many, requests)
    assert TOO_LARGE in together
    assert all(many in (one, TOO_LARGE) for one, many in zip(records, together, strict=True))


async def test_many_claims_are_given_up_together_as_each_would_be_alone(cluster: Cluster) -> None:
    node, other = await cluster.node(), await cluster.node()
    begun, handed_over, of_other = await node.create(), await node.create(), await other.create()
    queued = await node.create(begins=False, serial=False)
    given_up = [(begun, 1, False), (handed_over, 1, True), (of_other, 1, True), (queued, 1, False), (queued, 2, True)]
    released = await asyncio.gather(
        *(node.database.release(node.id, row.number, epoch, begun=begun) for row, epoch, begun in given_up)
    )
    assert released == [False, True, False, True, False]
    assert set(await node.database.run(claims.owned, node.id)) == {begun.number}
    assert await other.take() == sorted((handed_over.number, queued.number))
