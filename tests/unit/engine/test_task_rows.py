"""Tasks that are also rows of a plug-in's table: `a2a_tasks`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from dragoman import Agent, Context, User
from dragoman.clock import milliseconds, timestamp
from dragoman.compat.tool_server.dialect import TOOL_TASKS
from dragoman.compat.tool_server.responses import ToolResponses
from dragoman.compat.tool_server.rows import A2ATask, NumberedTasks, number_of, user_number
from dragoman.dialects.negotiate import MethodMatch
from dragoman.engine.call import CallContext
from dragoman.engine.settings import EngineSettings
from dragoman.errors import Failed, Rejected
from dragoman.model.error import TaskGenerationMismatch
from dragoman.model.operation import CancelTaskRequest, Operation
from dragoman.model.state import State
from dragoman.stores.memory import MemoryStore
from dragoman.stores.sqlite.store import SqliteStore
from dragoman.transports.endpoint import Endpoint

NOW = 1_800_000_000_000
OWNER = CallContext(User("7"))
OLD = CallContext(User("7"), origin=TOOL_TASKS.origin, asks=False)


@pytest.fixture
def begin(start: Any, clock: Any) -> Any:
    """Start an engine whose tasks of 0.1 have rows. Agents that share a store share the `task_rows`."""

    async def begin(agent: Any, *, store: Any = None, task_rows: NumberedTasks | None = None) -> Any:
        store = MemoryStore() if store is None else store
        rows = task_rows or NumberedTasks(store, clock)
        return await start(agent, store=store, settings=EngineSettings(drain=0, task_rows=rows))

    return begin


async def row_of(store: Any, number: int = NOW) -> Any:
    return await A2ATask.read(store, str(number))


async def cancel(engine: Any, task: Any, *, dialect: Any = TOOL_TASKS) -> Any:
    """Cancel as a caller of 0.1 does."""
    answers = ToolResponses(engine.store, engine.clock)
    endpoint = Endpoint(engine.service, (), body_limit=0, blocking=True)
    request = CancelTaskRequest(getattr(task, "id", task))
    return (await answers.perform(endpoint, MethodMatch(Operation.CANCEL, dialect), OLD, request)).result


async def with_row_state(engine: Any, task: Any) -> Any:
    return await ToolResponses(engine.store, engine.clock).with_row_state(task)


async def echo(ctx: Context) -> AsyncIterator[Any]:
    match ctx.message.text:
        case "fail":
            raise Failed("no")
        case "refuse":
            raise Rejected("no")
        case "hang":
            await ctx.progress("half of it")
            await asyncio.Event().wait()
        case text:
            yield text


# -- ids ---------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S0-49", "S0-57")
async def test_ids_are_times_and_distinct_within_one_millisecond(begin: Any) -> None:
    engine = await begin(echo)
    tasks = await asyncio.gather(*(engine.send("hi", call=OLD) for _ in range(5)))
    assert [task.id for task in tasks] == [str(NOW + number) for number in range(5)]
    assert [task.context_id for task in tasks] == [task.id for task in tasks]


@pytest.mark.requirement("S0-49")
@pytest.mark.parametrize("days", [0, 2])
async def test_ids_are_distinct_after_a_restart_with_an_earlier_clock(begin: Any, clock: Any, days: int) -> None:
    store = MemoryStore()
    clock.move(days * 86_400)
    before = await begin(echo, store=store)
    first = [await before.send("hi", call=OLD) for _ in range(3)]
    clock._now -= days * 86_400_000_000 + 1_000_000 * (days == 0)
    after = await begin(echo, store=store)
    again = [await after.send("hi", call=OLD) for _ in range(3)]
    assert len({task.id for task in (*first, *again)}) == 6
    assert all(len(task.id) == 13 for task in again)


async def test_an_id_that_is_taken_is_passed_over(begin: Any) -> None:
    engine = await begin(echo)
    for taken in (NOW, NOW + 2):
        await engine.send("hi", call=OLD, new_task_id=str(taken))
    hanging = await engine.send("hang", call=OLD, new_task_id=str(NOW + 3), wait=False)
    assert [(await engine.send("hi", call=OLD)).id for _ in range(2)] == [str(NOW + 1), str(NOW + 4)]
    await engine.cancel(hanging, call=OWNER)


async def test_an_id_of_the_far_future_is_no_reason_to_go_on_from_there(begin: Any) -> None:
    store = MemoryStore()
    before = await begin(echo, store=store)
    await before.send("hi", call=OLD, new_task_id="9999999999999")
    after = await begin(echo, store=store)
    assert (await after.send("hi", call=OLD)).id == str(NOW)


async def test_agents_that_share_a_store_share_the_ids(begin: Any, clock: Any) -> None:
    store = MemoryStore()
    rows = NumberedTasks(store, clock)
    engines = [await begin(Agent(name, run=echo), store=store, task_rows=rows) for name in ("a", "b")]
    tasks = await asyncio.gather(*(engine.send("hi", call=OLD) for engine in engines * 5))
    assert len({task.id for task in tasks}) == 10
    assert {task.state for task in tasks} == {State.COMPLETED}


async def test_a_repeated_message_makes_no_second_task(begin: Any) -> None:
    engine = await begin(echo)
    answers = [await engine.answer("hi", call=OLD, message_id="8b5e2c0e-1111-4222-8333-944445555666") for _ in range(2)]
    assert [answer.result.id for answer in answers] == [str(NOW)] * 2
    assert [answer.repeat for answer in answers] == [False, True]


@given(st.text())
def test_a_number_is_read_from_its_plain_spelling_alone(text: str) -> None:
    number = number_of(text)
    assert number is None or (str(number) == text and 0 <= number < 2**63)


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("42", 42), (str(NOW), NOW), ("042", None), ("-1", None), ("٣", None), ("", None), ("9" * 19, None)],
)
def test_the_number_of_an_id(text: str, number: int | None) -> None:
    assert number_of(text) == number


@pytest.mark.requirement("S0-51")
@given(st.text(st.characters(codec=None)))
def test_every_owner_has_a_number_that_stays(owner: str) -> None:
    number = user_number(owner)
    assert 0 <= number < 2**63
    assert number == user_number(owner)
    assert (number == 0) is (owner == "" or (owner.isascii() and owner.isdigit() and int(owner) == 0))


def test_an_owner_who_is_no_number_has_one_of_52_bits() -> None:
    assert [user_number(owner) for owner in ("", "7", "ada")] == [0, 7, int(sha256(b"ada").hexdigest()[:13], 16)]
    assert all(0 < user_number(f"user {number}") < 2**52 for number in range(1000))
    assert 0 < user_number("9" * 30) < 2**52


# -- rows --------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S0-28", "S0-35", "S0-58")
@pytest.mark.parametrize(
    ("text", "state", "word"),
    [
        ("hi", State.COMPLETED, "completed"),
        ("fail", State.FAILED, "failed"),
        ("refuse", State.REJECTED, "failed"),
    ],
)
async def test_a_row_follows_its_task(begin: Any, text: str, state: State, word: str) -> None:
    seen: list[A2ATask] = []

    class Watching(MemoryStore):
        def queue(self, write: Any) -> None:
            seen.extend(A2ATask(*row.values) for row in write.rows)
            super().queue(write)

    engine = await begin(echo, store=Watching())
    task = await engine.send(text, call=structs.replace(OLD, user=User("7")))
    assert [row.state for row in seen] == ["working", word]
    assert [(row.id, row.user_id) for row in seen] == [(int(task.id), 7)] * 2
    assert [row.history for row in seen] == [TOOL_TASKS.history(task).decode()] * 2
    assert [row.artifacts for row in seen] == ["[]", TOOL_TASKS.artifacts(task).decode()]
    # All of this was one millisecond, and yet each change has a time of its own.
    assert [row.updated_at for row in seen] == [NOW + 1, NOW + 2]
    assert (task.state, task.status.timestamp) == (state, timestamp(NOW + 2))


async def test_no_tool_runs_before_the_row_is_durable(begin: Any, held_store: Any, turns: Any) -> None:
    ran: list[str] = []

    async def run(ctx: Context) -> AsyncIterator[str]:
        ran.append(ctx.task_id)
        yield "done"

    engine = await begin(run, store=held_store)
    held_store.holding = True
    sending = engine.sending("hi", call=OLD)
    await turns()
    assert ran == []
    assert [bool(write.rows) for write in held_store.held] == [False, True]
    held_store.release()
    assert (await sending).state is State.COMPLETED
    assert ran == [str(NOW)]


async def test_a_task_that_is_canceled_while_its_row_is_written_never_runs(
    begin: Any, held_store: Any, turns: Any
) -> None:
    async def run(ctx: Context) -> AsyncIterator[str]:
        raise AssertionError("it ran")
        yield ""

    engine = await begin(run, store=held_store)
    held_store.holding = True
    sending = engine.sending("hi", call=OLD)
    await turns()
    canceling = asyncio.create_task(cancel(engine, str(NOW)))
    await turns()
    held_store.release()
    assert (await sending).state is (await canceling).state is State.CANCELED
    assert (await row_of(engine.store)).state == "canceled"


async def test_a_store_that_refuses_the_row_ends_the_task_later(begin: Any, failing_store: Any, clock: Any) -> None:
    failing_store.refuses = lambda write: any("working" in row.values for row in write.rows)
    engine = await begin(echo, store=failing_store)
    with pytest.raises(Exception, match="the store cannot take writes now"):
        await engine.send("hi", call=OLD)
    await clock.advance(2)
    task = await engine.until_state(str(NOW), State.FAILED, call=OWNER)
    row = await row_of(engine.store)
    assert (row.state, row.updated_at) == ("failed", milliseconds(task.status.timestamp))


async def test_progress_changes_no_row(begin: Any, turns: Any) -> None:
    engine = await begin(echo)
    task = await engine.send("hang", call=OLD, wait=False)
    await turns()
    task = await engine.get(task, call=OWNER)
    assert task.status.message.text == "half of it"
    row = await row_of(engine.store)
    assert (row.state, row.updated_at) == ("working", NOW + 1)
    assert milliseconds(task.status.timestamp) > row.updated_at
    # What is shown with the row is the row's.
    shown = await with_row_state(engine, task)
    assert (shown.state, shown.status.timestamp) == (State.WORKING, timestamp(row.updated_at))
    await engine.cancel(task, call=OWNER)
    # It has come further meanwhile: what was read then is not called canceled now.
    assert await with_row_state(engine, task) == task


async def test_a_task_that_had_not_begun_before_a_crash_gets_its_row_when_it_begins(
    begin: Any, held_store: Any, turns: Any
) -> None:
    before = await begin(echo, store=held_store)
    held_store.holding = True
    sending = before.sending("hi", call=OLD)
    await turns()
    held_store.release(1)  # the task is there, and nothing else ever will be
    held_store.held.clear()
    await before.connection.close()
    with pytest.raises(Exception, match=r"stopping|cannot take writes"):
        await sending
    assert await row_of(held_store) is None
    after = await begin(echo, store=held_store)
    await after.until_state(str(NOW), State.COMPLETED, call=OWNER)
    assert (await row_of(held_store)).state == "completed"


# -- canceling what has ended ------------------------------------------------------------------------------------------


class Contested(SqliteStore):
    """A store in which others change a row each time after it was read, so many times."""

    def __init__(self, path: Path, times: int) -> None:
        super().__init__(path)
        self.times = times

    async def read_row(self, table: Any, key: int) -> Any:
        found = await super().read_row(table, key)
        if found is not None and self.times:
            self.times -= 1
            row = A2ATask(*found.values)
            await super().replace_row(structs.replace(row, updated_at=row.updated_at + 100).row, row.updated_at)
        return found


@pytest.mark.requirement("S0-45")
async def test_a_lost_race_is_run_again_and_no_change_is_lost(begin: Any, tmp_path: Path) -> None:
    engine = await begin(echo, store=Contested(tmp_path / "t.db", 0))
    task = await engine.send("hi", call=OLD)
    before = await row_of(engine.store)
    engine.store.times = 2
    await cancel(engine, task)
    row = await row_of(engine.store)
    # Both changes of the others came first, and this one follows them.
    assert row == structs.replace(before, state="canceled", updated_at=before.updated_at + 201)


@pytest.mark.requirement("S0-45")
async def test_a_race_that_is_always_lost_is_a_conflict(begin: Any, tmp_path: Path) -> None:
    engine = await begin(echo, store=Contested(tmp_path / "t.db", 0))
    task = await engine.send("hi", call=OLD)
    engine.store.times = 1000
    with pytest.raises(TaskGenerationMismatch, match="changed by somebody else: try again"):
        await cancel(engine, task)
    engine.store.times = 0
    assert (await row_of(engine.store)).state == "completed"
