"""`Done` and `closing_message`: the message of the status that completes a task."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman import Agent, Client, Context, File, Message, Part, State, Task
from dragoman.engine.call import CallContext
from dragoman.engine.execute.run import MAX_CLOSING_TEXT
from dragoman.model.state import Role
from dragoman.model.task import closing_parts
from dragoman.outputs import Ask, Done, Reply
from dragoman.stores.sqlite.store import SqliteStore

from .conftest import raising, yielding


def closing_of(task: Task) -> tuple[Part, ...]:
    return () if task.status.message is None else task.status.message.parts


# -- Done ----------------------------------------------------------------------------------------------------------


def in_coroutine(agent: Agent) -> None:
    @agent.skill
    async def book(city: str) -> Done:
        return Done(f"Booked {city}")


def in_generator(agent: Agent) -> None:
    @agent.skill
    async def book(city: str) -> AsyncIterator[Done]:
        yield Done(f"Booked {city}")


def in_def(agent: Agent) -> None:
    @agent.skill
    def book(city: str) -> Done:
        return Done(f"Booked {city}")


def in_def_generator(agent: Agent) -> None:
    @agent.skill
    def book(city: str) -> Iterator[Done]:
        yield Done(f"Booked {city}")


@pytest.mark.parametrize("make", [in_coroutine, in_generator, in_def, in_def_generator], ids=lambda make: make.__name__)
async def test_any_kind_of_skill_may_return_or_yield_it(start: Any, make: Any) -> None:
    agent = Agent("test")
    make(agent)
    engine = await start(agent)
    task = await engine.send("Porto")
    assert (task.state, task.artifacts, closing_of(task)) == (State.COMPLETED, (), (Part(text="Booked Porto"),))
    assert task.text == task.value == "Booked Porto"  # without an artifact it is the answer


async def test_it_stands_beside_the_artifacts_which_stay_the_answer(start: Any) -> None:
    engine = await start(
        yielding("one ", "two", {"rows": 3}, Done("All done", {"took": 2}, File(b"x", name="log.txt")))
    )
    task = await engine.send()
    assert (task.state, task.text, task.data) == (State.COMPLETED, "one two", {"rows": 3})
    assert [artifact.artifact_id for artifact in task.artifacts] == ["test-result", "test-result-2"]
    closing, took, log = closing_of(task)
    assert (closing.text, took.data, log.raw, log.filename) == ("All done", {"took": 2}, b"x", "log.txt")
    assert closing_parts(task) == (closing, took, log)
    assert task.files == [log]
    assert await engine.states(task) == [State.SUBMITTED, State.WORKING, State.COMPLETED]


async def test_a_stream_ends_with_it_and_its_text_is_not_in_the_answer(start: Any) -> None:
    async with Client(Agent("test", run=yielding("one ", "two", Done("bye")))) as client:
        stream = client.stream("go")
        events = [event async for event in stream]
    assert "".join(event.text for event in events) == stream.task.text == "one two"
    assert events[-1].state is State.COMPLETED
    assert events[-1].raw.status.message.text == "bye"


async def test_without_values_it_only_ends_the_run(start: Any) -> None:
    engine = await start(yielding("one", Done()))
    task = await engine.send()
    assert (task.state, task.text, task.status.message) == (State.COMPLETED, "one", None)


@pytest.mark.parametrize(
    "later", ["more", {"a": 1}, Done("again"), Ask("?"), Reply("hi")], ids=lambda each: type(each).__name__
)
async def test_nothing_may_follow_it(start: Any, later: Any) -> None:
    engine = await start(yielding("one ", Done("bye"), later))
    records = await engine.stream()
    status = records[-1].event.status
    assert status.state is State.FAILED
    assert status.message.text == f"Done must be the last output: {type(later).__name__} followed it"


async def test_code_after_it_runs_before_the_task_completes(start: Any) -> None:
    steps: list[str] = []

    async def run(ctx: Context) -> AsyncIterator[Any]:
        yield Done("bye")
        await ctx.artifact("late", name="late")
        steps.append("cleaned up")

    engine = await start(run)
    task = await engine.send()
    assert (steps, task.text, closing_of(task)) == (["cleaned up"], "late", (Part(text="bye"),))


async def test_a_value_without_a_json_form_fails_the_task(start: Any) -> None:
    engine = await start(yielding(Done(object())))
    assert (await engine.send()).state is State.FAILED


async def test_a_skill_that_may_reply_makes_a_task_of_it(start: Any) -> None:
    agent = Agent("test")

    @agent.skill(replies=True)
    async def answer(text: str) -> Reply | Done:
        return Done("a task") if text == "task" else Reply("no task")

    engine = await start(agent)
    assert isinstance(await engine.send("hi"), Message)
    task = await engine.send("task")
    assert (task.state, task.text) == (State.COMPLETED, "a task")


async def test_after_a_question_and_a_restart_the_message_is_there_once(start: Any, tmp_path: Path) -> None:
    async def restarted() -> Any:
        agent = Agent("test")

        @agent.skill
        async def trip(ctx: Context, city: str) -> AsyncIterator[Any]:
            yield f"{city}: "
            yield f"{await ctx.ask('How many days?')} days"
            yield Done("Have fun")

        return await start(agent, store=SqliteStore(tmp_path / "tasks.db"))

    engine = await restarted()
    task = await engine.send("Porto")
    await engine.connection.close()
    engine = await restarted()
    task = await engine.send("3", task=task)
    assert (task.text, closing_of(task)) == ("Porto: 3 days", (Part(text="Have fun"),))
    await engine.connection.close()
    assert await (await restarted()).get(task) == task


async def test_data_in_it_is_text_for_callers_who_read_only_text(start: Any) -> None:
    engine = await start(yielding("one", Done({"a": 1})))
    task = await engine.send(accepted_output_modes=("text/plain",))
    assert closing_of(task)[0].text == '{"a":1}'


# -- closing_message -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "closing"),
    [
        (("one ", "two"), "one two"),
        (({"a": 1}, "one two"), "one two"),
        ((File(b"x"), "one two"), "one two"),
        (({"a": 1},), None),
        ((File(b"x"),), None),
        ((), None),
    ],
)
async def test_an_agent_may_repeat_the_text_of_the_answer(
    start: Any, values: tuple[Any, ...], closing: str | None
) -> None:
    engine = await start(Agent("test", run=yielding(*values), closing_message=True))
    task = await engine.send()
    assert closing_of(task) == (() if closing is None else (Part(text=closing),))
    assert task.text == (closing or "")
    assert closing_parts(task) == ()  # nothing that the answer does not hold


@pytest.mark.parametrize("values", [("one ", "two"), ("one ", "two", Done("bye"))], ids=["text", "done"])
async def test_the_repeated_answer_is_in_the_history_too_and_stays_there(start: Any, values: tuple[Any, ...]) -> None:
    engine = await start(Agent("test", run=yielding(*values), closing_message=True))
    task = await engine.send()
    assert [(each.role, each.text) for each in task.history][1:] == [(Role.AGENT, "one two")]
    assert (await engine.get(task)).history == task.history
    assert task.text == "one two"


async def test_polling_shows_no_artifact_before_the_task_has_ended_or_asks(start: Any) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def run(ctx: Context) -> AsyncIterator[Any]:
        yield "one "
        yield {"a": 1}
        begun.set()
        await go_on.wait()
        yield "two"

    for hides in (True, False):
        begun.clear()
        go_on.clear()
        engine = await start(Agent("test", run=run, closing_message=hides))
        sent = asyncio.create_task(engine.send())
        await begun.wait()
        (listed,) = (await engine.list(include_artifacts=True)).tasks
        polled = await engine.get(listed)
        assert polled.state is State.WORKING
        assert [bool(task.artifacts) for task in (listed, polled)] == [not hides] * 2
        go_on.set()
        assert (await sent).text == "one two"
        assert (await engine.get(listed)).text == "one two"


async def test_a_message_of_its_own_is_kept(start: Any) -> None:
    engine = await start(Agent("test", run=yielding("one", Done("bye")), closing_message=True))
    task = await engine.send()
    assert closing_of(task) == closing_parts(task) == (Part(text="bye"),)


async def test_a_long_answer_is_repeated_in_part(start: Any) -> None:
    engine = await start(Agent("test", run=yielding("x" * MAX_CLOSING_TEXT, "y"), closing_message=True))
    task = await engine.send()
    (part,) = closing_of(task)
    assert len(part.text) == MAX_CLOSING_TEXT
    assert part.text.endswith("x…")
    assert closing_parts(task) == ()


@pytest.mark.parametrize("closing", ["last", "whole"])
async def test_however_a_streamed_text_ends_its_repeat_is_the_whole(start: Any, closing: str) -> None:
    engine = await start(Agent("test", run=yielding("one ", "two ", "three"), closing_message=True))
    records = await engine.stream(call=CallContext(closing=closing))
    assert records[-1].event.status.message.text == "one two three"


async def test_a_failed_task_has_its_reason_only(start: Any) -> None:
    run = raising(ZeroDivisionError(), "one")
    task = await (await start(Agent("test", run=run, closing_message=True))).send()
    assert task.error.startswith("execution failed")


# -- reading it ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("closing", "shown"),
    [("bye", "bye"), ("one two", ""), (" one two\n", ""), ("one t…", ""), ("on", "on"), ("one three…", "one three…")],
)
async def test_the_closing_message_is_worth_showing_if_it_says_something_else(
    start: Any, closing: str, shown: str
) -> None:
    task = await (await start(yielding("one two", Done(closing, File(b"x"))))).send()
    texts = [part.text for part in closing_parts(task) if part.text is not None]
    assert "".join(texts) == shown
    assert [part.raw for part in closing_parts(task) if part.raw is not None] == [b"x"]


async def test_a_message_or_a_task_without_artifacts_has_no_closing_message_beside_the_answer(start: Any) -> None:
    task = await (await start(yielding(Done("bye")))).send()
    assert (task.text, closing_parts(task)) == ("bye", ())
