"""Group commit: what is written with which statement, and what becomes of changes when connections are lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest
from cluster.simulated_database import SimulatedDatabase
from msgspec import structs
from unit.stores.postgres.changes import NOW, Change, appended, created, new_row
from unit.stores.postgres.faulty import FaultyDatabase

from dragoman.dialects.table import V1_0
from dragoman.engine.ports.store import DedupeKey, Note, Push
from dragoman.model.error import ServerError
from dragoman.model.record import Record
from dragoman.model.state import State
from dragoman.stores.postgres.database import ConnectionLost, NodeInfo
from dragoman.stores.postgres.retry import NO_WRITES
from dragoman.stores.postgres.writer import GroupCommit
from dragoman.testing.clock import ManualClock

ONE, TWO = 101, 202
KEY = DedupeKey(b"key", NOW + 60_000)


class Setup:
    """A writer of node ONE in front of a database that fails as a test says; node TWO uses the database directly."""

    def __init__(self) -> None:
        self.clock = ManualClock(NOW)
        self.simulated = SimulatedDatabase(lambda: self.clock.now() / 1000)
        self.database = FaultyDatabase(self.simulated)
        self.announced = 0
        self.writer = GroupCommit(self.database, self.clock, self._on_work)

    def _on_work(self) -> None:
        self.announced += 1

    async def write(self, *changes: Change, seconds: float = 0) -> list[str]:
        """Queue changes at once, wait, and return their outcomes."""
        for change in changes:
            self.writer.put(change.write)
        await self.clock.advance(seconds)
        return [change.outcome for change in changes]

    async def generation(self, change: Change) -> int:
        stored = await self.simulated.task(change.write.row.id)
        return 0 if stored is None else stored.row.generation

    async def seize(self, change: Change) -> None:
        """Node TWO takes a task away."""
        row = change.write.row
        assert await self.simulated.claim(TWO, row.number, row.generation, revoke=True) is not None


@pytest.fixture
async def setup() -> Setup:
    setup = Setup()
    for node in (ONE, TWO):
        await setup.simulated.join(NodeInfo(node, f"node-{node}", ("agent",), "1"))
    setup.writer.open(ONE)
    return setup


# -- batches -----------------------------------------------------------------------------------------------------------


async def test_while_a_statement_is_under_way_changes_collect_for_the_next(setup: Setup) -> None:
    a, b, c = (created(new_row()) for _ in range(3))
    a2 = appended(a.write.row, 2)

    async def meanwhile(statement: Awaitable[Any]) -> Any:
        for change in (b, c, a2):
            setup.writer.put(change.write)
        return await statement

    setup.database.fail("commit", meanwhile)
    assert await setup.write(a) == ["committed"]
    assert [change.outcome for change in (b, c, a2)] == ["committed"] * 3
    assert [len(changes) for _, changes in setup.database.sent("commit")] == [1, 3]


async def test_a_callback_that_fails_keeps_no_other_waiting(setup: Setup, caplog: pytest.LogCaptureFixture) -> None:
    broken, fine = created(new_row()), created(new_row())

    def fail(_: BaseException | None) -> None:
        raise ValueError("a mistake")

    broken.write.done = fail
    assert (await setup.write(broken, fine))[1] == "committed"
    assert "a change could not be reported" in caplog.text


async def test_queued_tasks_of_a_context_are_announced_when_a_task_of_it_settles(setup: Setup) -> None:
    first = created(new_row("c"))
    second = created(new_row("c"), joins_context=True, queued=True)
    assert await setup.write(first, second) == ["committed", "committed"]
    assert setup.announced == 0
    assert await setup.write(appended(first.write.row, 2, State.COMPLETED)) == ["committed"]
    assert setup.announced == 1


async def test_a_closed_writer_has_written_everything_and_takes_no_more(setup: Setup) -> None:
    changes = [created(new_row()) for _ in range(3)]
    for change in changes:
        setup.writer.put(change.write)
    await setup.writer.close()
    assert [change.outcome for change in changes] == ["committed"] * 3
    assert await setup.write(created(new_row())) == ["ServerError"]


# -- refusals ----------------------------------------------------------------------------------------------------------


async def test_changes_of_a_task_that_was_taken_away_are_lost_and_so_are_those_behind_them(setup: Setup) -> None:
    task, other = created(new_row()), created(new_row())
    row = task.write.row
    await setup.write(task, other)
    await setup.seize(task)
    behind = appended(row, 3, begins=True, serial=True)  # needs a statement of its own
    outcomes = await setup.write(appended(row, 2), behind, appended(other.write.row, 2))
    assert outcomes == ["OwnershipLost", "OwnershipLost", "committed"]
    assert len(setup.database.sent("commit")) == 2


async def test_changes_under_a_new_claim_are_not_lost_with_those_of_the_old_one(setup: Setup) -> None:
    task = created(new_row())
    row = task.write.row
    await setup.write(task)
    claimed = await setup.simulated.claim(ONE, row.number, 1, revoke=True)
    assert claimed is not None
    late, cancel = appended(row, 2), appended(row, 2, State.CANCELED, epoch=claimed.claim.epoch)
    assert await setup.write(late, cancel) == ["OwnershipLost", "committed"]


async def test_a_run_whose_context_is_busy_does_not_begin(setup: Setup) -> None:
    first, second = created(new_row("c"), begins=True, serial=True), created(new_row("c"), joins_context=True)
    await setup.write(first, second)
    begin = appended(second.write.row, 2, State.WORKING, begins=True, serial=True)
    assert await setup.write(begin, appended(second.write.row, 3)) == ["ContextBusy", "ContextBusy"]
    assert await setup.generation(second) == 1


async def test_the_second_of_two_tasks_with_one_message_is_a_repetition(setup: Setup) -> None:
    assert await setup.write(created(new_row(), dedupe_key=KEY)) == ["committed"]
    again = created(new_row(), dedupe_key=KEY)
    assert await setup.write(again, appended(again.write.row, 2)) == ["MessageRepeated", "MessageRepeated"]


async def test_an_id_that_exists_is_refused(setup: Setup) -> None:
    first = created(new_row())
    await setup.write(first)
    namesake = structs.replace(new_row(), id=first.write.row.id)
    assert await setup.write(created(namesake)) == ["TaskGenerationMismatch"]
    draft = Change(structs.replace(namesake, number=namesake.number + 1000), draft=True, snapshot=b"s", epoch=1)
    assert await setup.write(draft) == ["TaskGenerationMismatch"]


async def test_a_task_that_the_database_has_forgotten_is_no_lost_task(setup: Setup) -> None:
    # A standby that was behind, or a restored backup: the claim is there, and events are missing.
    task = created(new_row())
    await setup.write(task)
    change = appended(task.write.row, 4)
    assert await setup.write(change) == ["ServerError"]
    assert "has lost events" in str(change.reported[0])


async def test_a_webhook_of_a_deleted_task_is_refused_as_such(setup: Setup) -> None:
    row = new_row()
    push = Push(row.number, "hook", V1_0, "https://hooks/1", b"", 1, NOW)
    assert await setup.write(Change(row, pushes=(push,))) == ["TaskGenerationMismatch"]


async def test_records_that_do_not_fit_their_row_are_not_sent(setup: Setup) -> None:
    change = appended(new_row(), 3)
    change.write.row = new_row()
    assert await setup.write(change) == ["TaskGenerationMismatch"]
    assert setup.database.sent("commit") == []


# -- values that cannot be stored --------------------------------------------------------------------------------------


async def test_a_value_that_cannot_be_stored_fails_its_own_task_only(
    setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    changes = [created(new_row()) for _ in range(9)]
    bad = created(new_row("a\0b"))
    outcomes = await setup.write(*changes[:4], bad, *changes[4:])
    assert outcomes == [*["committed"] * 4, "InvalidValue", *["committed"] * 5]
    assert "cannot store a change" in caplog.text


async def test_what_comes_before_a_value_that_cannot_be_stored_is_stored(setup: Setup) -> None:
    task = created(new_row())
    changes = [appended(task.write.row, generation) for generation in range(2, 7)]
    setup.database.invalid = lambda write: write.row.generation == 4
    outcomes = await setup.write(task, *changes)
    assert outcomes == [*["committed"] * 3, *["InvalidValue"] * 3]
    assert await setup.generation(task) == 3


async def test_an_error_that_nobody_expects_fails_the_batch_and_not_the_writer(
    setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse(statement: Any) -> Any:
        statement.close()
        raise RuntimeError("the disk is full")

    setup.database.fail("commit", refuse)
    assert await setup.write(created(new_row())) == ["RuntimeError"]
    assert await setup.write(created(new_row())) == ["committed"]
    assert "the disk is full" in caplog.text


# -- lost connections --------------------------------------------------------------------------------------------------


async def test_what_a_lost_connection_hides_is_looked_up_when_the_task_has_moved_on(setup: Setup) -> None:
    task = created(new_row())
    row = task.write.row
    await setup.write(task)
    pause = appended(row, 2, State.INPUT_REQUIRED)

    async def commit_and_answer_elsewhere(statement: Awaitable[Any]) -> Any:
        await statement
        assert await setup.simulated.claim(TWO, row.number, 2, revoke=False) is not None
        answer = appended(row, 3, State.WORKING, epoch=2)
        assert (await setup.simulated.commit(TWO, [[answer.write]]))[0].kind == "committed"
        raise ConnectionLost("the answer is lost")

    setup.database.fail("commit", commit_and_answer_elsewhere)
    assert await setup.write(pause, seconds=10) == ["committed"]


async def test_a_change_that_arrives_too_late_is_lost_although_the_task_has_its_generation(setup: Setup) -> None:
    task = created(new_row())
    row = task.write.row
    await setup.write(task)

    async def cancel_elsewhere(statement: Any) -> Any:
        statement.close()
        await setup.seize(task)
        canceled = appended(row, 2, State.CANCELED, epoch=2)
        canceled.write.records = (Record(2, b'{"canceled":true}'),)
        assert (await setup.simulated.commit(TWO, [[canceled.write]]))[0].kind == "committed"
        raise ConnectionLost("it was not sent")

    setup.database.fail("commit", cancel_elsewhere)
    assert await setup.write(appended(row, 2), seconds=10) == ["OwnershipLost"]


async def test_an_outage_of_any_length_fails_nothing(setup: Setup) -> None:
    task = created(new_row())
    await setup.write(task)
    setup.database.down = True
    changes = [appended(task.write.row, 2), created(new_row())]
    assert await setup.write(*changes, seconds=3600) == ["waiting", "waiting"]
    setup.database.down = False
    await setup.clock.advance(1)
    assert [change.outcome for change in changes] == ["committed", "committed"]


async def test_a_database_without_room_refuses_messages_and_lets_runs_wait(
    setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    running, waiting = created(new_row()), created(new_row())
    await setup.write(running, waiting)
    setup.database.fail("commit", *["refused"] * 100)
    row = waiting.write.row
    words = [
        created(new_row()),
        created(new_row(), draft=True),
        appended(row, 2, State.WORKING, notes=(Note(1, "answer", b"{}"),)),
    ]
    output = appended(running.write.row, 2)
    assert await setup.write(words[0]) == ["ServerError"]
    assert await setup.write(output, *words[1:], seconds=9) == ["waiting", "ServerError", "ServerError"]
    behind = created(new_row())
    assert await setup.write(behind, appended(behind.write.row, 2)) == ["ServerError", "waiting"]
    (error,) = behind.reported
    assert isinstance(error, ServerError)
    assert (str(error), error.metadata) == (NO_WRITES, {"retryAfter": "1"})
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    setup.database.faults.clear()
    await setup.clock.advance(10)
    assert output.outcome == "committed"
    assert await setup.write(created(new_row())) == ["committed"]
    assert await setup.simulated.task(behind.write.row.id) is None


async def test_a_message_whose_outcome_is_not_certain_is_not_refused(setup: Setup) -> None:
    setup.database.fail("commit", "swallowed", "refused", "refused")
    assert await setup.write(created(new_row()), seconds=5) == ["committed"]


async def test_records_that_a_database_refuses_after_writing_them_are_committed(setup: Setup) -> None:
    async def repeat(statement: Awaitable[Any]) -> Any:
        await statement
        return await setup.simulated.commit(ONE, [[change.write]])

    task = created(new_row())
    await setup.write(task)
    change = appended(task.write.row, 2)
    setup.database.fail("commit", repeat)  # as the session does after a deadlock
    assert await setup.write(change) == ["committed"]


async def test_a_silent_database_does_not_keep_a_server_from_stopping(setup: Setup) -> None:
    setup.database.down = True
    first, second = created(new_row()), created(new_row())
    setup.writer.put(first.write)
    await setup.clock.advance(1)
    setup.writer.put(second.write)
    closing = asyncio.ensure_future(setup.writer.close())
    await setup.clock.advance(20)
    assert closing.done()
    assert [first.outcome, second.outcome] == ["ServerError", "ServerError"]


# -- a node that was declared dead -------------------------------------------------------------------------------------


async def test_a_dead_node_loses_what_is_not_certain_and_writes_as_another(setup: Setup) -> None:
    task = created(new_row())
    await setup.write(task)
    setup.database.down = True
    sent, queued = appended(task.write.row, 2), created(new_row())
    await setup.write(sent, seconds=1)
    setup.writer.put(queued.write)
    setup.writer.lose_all()
    await setup.clock.advance(0)
    assert [sent.outcome, queued.outcome] == ["OwnershipLost", "OwnershipLost"]
    setup.database.down = False
    later = created(new_row())
    assert await setup.write(later, seconds=60) == ["waiting"]
    await setup.simulated.join(NodeInfo(303, "node-101", ("agent",), "1"))
    setup.writer.resume(303)
    await setup.clock.advance(0)
    assert later.outcome == "committed"
    assert setup.database.sent("commit")[-1][0] == 303


async def test_the_answer_to_a_statement_decides_even_if_the_node_is_dead_by_then(setup: Setup) -> None:
    async def die(statement: Awaitable[Any]) -> Any:
        setup.writer.lose_all()
        return await statement

    setup.database.fail("commit", die)
    assert await setup.write(created(new_row())) == ["committed"]
