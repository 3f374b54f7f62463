"""One task in the console: as it is and as it was, who sees it, its webhooks, and canceling it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from unit.console.conftest import StartConsole
from unit.console.looking import ADMIN, ANNA, BERT, NOBODY, Console

from dragoman import Agent, Context
from dragoman.engine.journal.replay import PAGE, Replay
from dragoman.engine.ports.store import WOKEN, Push, PushState, Sweep, Write
from dragoman.model.error import InvalidParams, TaskNotCancelable, TaskNotFound, UnsupportedOperation
from dragoman.model.json import decode_task, encode
from dragoman.model.record import fold
from dragoman.model.state import State
from dragoman.model.task import Task
from dragoman.outputs import Ask
from dragoman.stores.memory import MemoryStore
from dragoman.testing import Clock

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACE_CONTEXT = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}


def counting_agent() -> Agent:
    agent = Agent("counter")

    @agent.skill
    async def count(text: str, ctx: Context) -> Any:
        """Count the words."""
        for place, word in enumerate(text.split()):
            if word == "progress":
                await ctx.progress(f"at {place}")
            elif word == "data":
                yield {"place": place}
            else:
                yield f"{word} "

    return agent


def asking_agent() -> Agent:
    async def ask(ctx: Context) -> AsyncIterator[Any]:
        if ctx.resume is None:
            yield "before "
            yield Ask("Which one?")
        else:
            yield f"after {ctx.text}"

    return Agent("asker", run=ask)


async def records_of(console: Console, task: Task) -> list[Any]:
    stored = await console.store.task(task.id)
    assert stored is not None
    return [record.event for record in await console.store.records(stored.row.number, 0, 1000)]


async def test_a_task_is_shown_with_its_row_and_the_generations_that_it_had(
    look_at: StartConsole, clock: Clock
) -> None:
    console = await look_at(counting_agent())
    task = await console.send("one data", by=ANNA, origin="1.0", trace=TRACE_CONTEXT)
    shown = await console.get(task.id)
    assert decode_task(encode(shown["task"])) == task
    assert shown["row"] == {
        "id": task.id,
        "agent": "counter",
        "tenant": "",
        "owner": "anna",
        "contextId": task.context_id,
        "state": "TASK_STATE_COMPLETED",
        "created": "2027-01-15T08:00:00.000Z",
        "updated": "2027-01-15T08:00:00.000Z",
        "generation": task.generation,
        "title": "one data",
        "own": False,
    }
    assert (shown["origin"], shown["traceId"]) == ("1.0", TRACE)
    assert (shown["oldest"], shown["newest"]) == (1, task.generation)


STEPS = st.lists(st.sampled_from(["word", "progress", "data", "other"]), max_size=12)


@given(STEPS, STEPS)
@settings(max_examples=25, deadline=None)
def test_a_task_at_a_generation_is_what_a_reader_of_its_stream_had_then(steps: list[str], more: list[str]) -> None:
    asyncio.run(check_generations(" ".join(("go", *steps)), " ".join(("go", *more))))


async def check_generations(text: str, other_text: str) -> None:
    clock = Clock()
    console = Console(counting_agent(), MemoryStore(clock), clock)
    await console.connection.open()
    for task in await asyncio.gather(console.send(text), console.send(other_text)):
        first, *events = await records_of(console, task)
        for generation in range(1, len(events) + 2):
            shown = decode_task(encode((await console.get(task.id, generation=generation))["task"]))
            expected = fold(first, events[: generation - 1])
            assert encode(shown) == encode(structs.replace(expected, generation=generation)), generation
    await console.connection.close()


async def test_an_answer_is_part_of_the_task_from_its_generation_on(look_at: StartConsole) -> None:
    console = await look_at(asking_agent())
    waiting = await console.send("first")
    done = await console.send("the blue one", task=waiting)
    assert waiting.generation is not None
    before = await console.get(done.id, generation=waiting.generation)
    after = await console.get(done.id, generation=waiting.generation + 1)
    assert "the blue one" not in str(before["task"])
    assert before["task"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert after["task"]["history"][-1]["parts"] == [{"text": "the blue one"}]
    assert (await console.get(done.id))["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_a_long_journal_is_folded_in_turns(look_at: StartConsole) -> None:
    console = await look_at(counting_agent())
    task = await console.send("progress " * 600)
    stored = await console.store.task(task.id)
    assert stored is not None
    turns = 0

    async def wait_for_turn() -> None:
        nonlocal turns
        turns += 1

    target = stored.row.generation - 1
    shown = await Replay(console.store, stored, wait_for_turn).task(target)
    assert shown.generation == target
    assert turns >= target // PAGE


async def test_a_compacted_task_keeps_only_its_last_state(look_at: StartConsole, clock: Clock) -> None:
    console = await look_at(counting_agent())
    task = await console.send("one two", trace=TRACE_CONTEXT)
    while await console.store.sweep(Sweep(compact_before_ms=clock.now() + 1)):
        pass
    shown = await console.get(task.id)
    assert (shown["oldest"], shown["newest"], shown["traceId"]) == (task.generation, task.generation, None)
    assert decode_task(encode(shown["task"])) == task
    assert shown["row"]["title"] == "one two"
    with pytest.raises(InvalidParams):
        await console.get(task.id, generation=1)
    journal = await console.journal(task.id)
    assert (journal["events"], journal["notes"], journal["more"]) == ([], [], False)


@pytest.mark.parametrize("generation", ["0", "99", "-1", "two", "1e3", "9" * 40])
async def test_a_generation_that_never_was_is_refused(look_at: StartConsole, generation: str) -> None:
    console = await look_at(counting_agent())
    task = await console.send("one")
    with pytest.raises(InvalidParams):
        await console.get(task.id, generation=generation)


# -- who sees what -----------------------------------------------------------------------------------------------------


async def test_the_task_of_another_is_as_if_there_were_none(
    look_at: StartConsole, caplog: pytest.LogCaptureFixture
) -> None:
    console = await look_at(asking_agent())
    task = await console.send("secret", by=ANNA)
    with caplog.at_level(logging.WARNING, "dragoman.audit"):
        for viewer in (BERT, NOBODY):
            for ask in (console.get, console.journal, console.webhooks, console.cancel):
                with pytest.raises(TaskNotFound) as hidden:
                    await ask(task.id, viewer)
                with pytest.raises(TaskNotFound) as missing:
                    await ask("no-such-task", viewer)
                assert str(hidden.value) == str(missing.value)
            with pytest.raises(TaskNotFound):
                await console.retry(task.id, "w", viewer)
    assert f"event=denied user=bert scheme=owner reason=not-yours agent=asker task={task.id}" in caplog.messages
    assert (await console.get(task.id, ANNA))["row"]["own"] is True
    assert (await console.get(task.id, ADMIN))["row"]["own"] is False
    assert (await console.list(BERT))["tasks"] == (await console.list(NOBODY))["tasks"] == []


async def test_an_administrator_cancels_the_task_of_another_and_the_audit_log_says_who(
    look_at: StartConsole, caplog: pytest.LogCaptureFixture
) -> None:
    console = await look_at(asking_agent())
    task = await console.send("first", by=ANNA)
    with caplog.at_level(logging.INFO, "dragoman.audit"):
        canceled = await console.cancel(task.id)
    assert canceled["task"]["status"]["state"] == "TASK_STATE_CANCELED"
    assert f"event=canceled user=anna agent=asker task={task.id} by=console-token" in caplog.messages
    with pytest.raises(TaskNotCancelable):
        await console.cancel(task.id)
    own = await console.send("second", by=ANNA)
    with caplog.at_level(logging.INFO, "dragoman.audit"):
        assert (await console.cancel(own.id, ANNA))["task"]["status"]["state"] == "TASK_STATE_CANCELED"
    assert f"event=canceled user=anna agent=asker task={own.id}" in caplog.messages


async def test_a_task_of_an_agent_that_is_not_served_is_shown_and_cannot_be_canceled(look_at: StartConsole) -> None:
    console = await look_at(asking_agent())
    task = await console.send("first", by=ANNA)
    stored = await console.store.task(task.id)
    assert stored is not None
    scope = stored.row.scope._replace(agent="gone")
    number = console.store.next_number()
    row = structs.replace(stored.row, id="old", number=number, scope=scope, generation=1)
    records = tuple(await console.store.records(stored.row.number, 0, 1))
    console.store.write(Write(row, lambda _: None, create=True, records=records))
    await console.store.check()
    assert (await console.get("old"))["row"]["agent"] == "gone"
    with pytest.raises(UnsupportedOperation):
        await console.cancel("old")
    assert await console.ids(ANNA) == [task.id]


# -- webhooks ----------------------------------------------------------------------------------------------------------


async def with_webhooks(console: Console, clock: Clock) -> Task:
    task = await console.send("one two", by=ANNA)
    stored = await console.store.task(task.id)
    assert stored is not None
    url = "https://user:S3CR3T@hooks.example.com/in?token=T0K3N#part"
    push = Push(stored.row.number, "dead", "1.0", url, b"S3ALED", 2, clock.now())
    dead = structs.replace(push, tries=4, failing_ms=clock.now(), state=PushState.DEAD, error="HTTP 503")
    late = structs.replace(push, id="late", tries=2, failing_ms=clock.now(), due_ms=clock.now() + 5000)
    done = structs.replace(push, id="done", cursor=stored.row.generation, state=PushState.DONE)
    console.store.write(Write(stored.row, lambda _: None, pushes=(dead, late, done)))
    await console.store.check()
    return task


async def test_webhooks_are_shown_with_their_deliveries_and_without_secrets(
    look_at: StartConsole, clock: Clock
) -> None:
    console = await look_at(counting_agent())
    task = await with_webhooks(console, clock)
    dead, late, done = await console.webhooks(task.id, ANNA)
    assert dead == {
        "id": "dead",
        "url": "https://hooks.example.com/in",
        "state": "dead",
        "cursor": 2,
        "owed": (task.generation or 0) - 2,
        "tries": 4,
        "due": None,
        "failingSince": "2027-01-15T08:00:00.000Z",
        "error": "HTTP 503",
        "created": "2027-01-15T08:00:00.000Z",
        "version": "1.0",
    }
    assert (late["state"], late["due"], late["error"]) == ("open", "2027-01-15T08:00:05.000Z", None)
    assert (done["state"], done["owed"], done["failingSince"]) == ("done", 0, None)


async def test_a_webhook_that_was_given_up_is_tried_again(
    look_at: StartConsole, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    console = await look_at(counting_agent())
    task = await with_webhooks(console, clock)
    with caplog.at_level(logging.INFO, "dragoman.audit"):
        assert await console.retry(task.id, "dead", ANNA) == {}
        assert await console.retry(task.id, "done", ANNA) == {}
    assert console.woken == 1
    stored = await console.store.task(task.id)
    assert stored is not None
    found = {push.id: (push.state, push.tries, push.due_ms) for push in await console.store.pushes(stored.row.number)}
    assert found["dead"] == (PushState.OPEN, 0, WOKEN)
    assert found["done"] == (PushState.DONE, 0, 0)
    assert caplog.messages == [f"event=webhooks-retried task={task.id} webhook=dead count=1 by=anna"]
    shown = await console.webhooks(task.id)
    assert (shown[0]["state"], shown[0]["due"]) == ("open", None)
    with pytest.raises(TaskNotFound):
        await console.retry(task.id, "never there")


async def test_the_state_of_a_task_while_it_works_is_that_of_its_journal(look_at: StartConsole) -> None:
    console = await look_at(asking_agent())
    task = await console.send("first")
    shown = await console.get(task.id)
    assert shown["row"]["state"] == State.INPUT_REQUIRED.value
    assert shown["task"]["artifacts"][0]["parts"] == [{"text": "before "}]
