"""A task's journal in the console: events with times, sizes and runs, and the notes beside them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
from unit.console.conftest import StartConsole
from unit.console.looking import ANNA, Console
from unit.console.test_tasks import asking_agent

from dragoman import Agent, Context
from dragoman.console.tasks.journal import MAX_EVENT_BYTES, describe_event, run_starts
from dragoman.engine.ports.store import Note
from dragoman.model.json import decode_event
from dragoman.stores.sqlite.store import SqliteStore
from dragoman.testing import Clock


def slow_agent(clock: Clock) -> Agent:
    """An agent that takes a second of its clock for each word."""
    agent = Agent("slow")

    @agent.skill
    async def speak(text: str) -> Any:
        """Say it slowly."""
        for word in text.split():
            yield f"{word} "
            await asyncio.sleep(0)
            clock.move(1)

    return agent


async def test_events_have_the_time_of_their_commit(look_at: StartConsole, clock: Clock) -> None:
    console = await look_at(asking_agent())
    waiting = await console.send("first")
    clock.move(90)
    await console.send("the blue one", task=waiting)
    journal = await console.journal(waiting.id)
    events = journal["events"]
    assert [event["generation"] for event in events] == list(range(1, journal["newest"] + 1))
    assert [event["kind"] for event in events][:3] == ["task", "status", "artifact"]
    assert [event["state"] for event in events if event["state"]] == [
        "TASK_STATE_SUBMITTED",
        "TASK_STATE_WORKING",
        "TASK_STATE_INPUT_REQUIRED",
        "TASK_STATE_WORKING",
        "TASK_STATE_COMPLETED",
    ]
    times = [event["at"] for event in events]
    pause = waiting.generation or 0
    assert set(times[:pause]) == {"2027-01-15T08:00:00.000Z"}
    assert set(times[pause:]) == {"2027-01-15T08:01:30.000Z"}
    assert not journal["more"]


async def test_an_event_is_sent_as_it_is_stored_with_its_size_and_text(look_at: StartConsole) -> None:
    console = await look_at(asking_agent())
    task = await console.send("first  of\nall")
    stored = await console.store.task(task.id)
    assert stored is not None
    records = await console.store.records(stored.row.number, 0, 100)
    events = (await console.journal(task.id))["events"]
    assert [(event["event"], event["size"]) for event in events] == [
        (msgspec.json.decode(record.body), len(record.body)) for record in records
    ]
    assert [event["text"] for event in events] == ["first of all", "", "before", "Which one?"]


async def test_a_large_event_is_not_sent_but_the_beginning_of_its_text_is(look_at: StartConsole) -> None:
    agent = Agent("large")

    @agent.skill
    async def speak(text: str) -> Any:
        """Say much."""
        return "é " * MAX_EVENT_BYTES

    console = await look_at(agent)
    task = await console.send("go")
    (large,) = [event for event in (await console.journal(task.id))["events"] if event["event"] is None]
    assert large["size"] > MAX_EVENT_BYTES
    assert large["text"] == f"{'é ' * 99}é…"
    assert len(large["text"]) == 200


async def test_a_journal_is_read_page_by_page(look_at: StartConsole, clock: Clock) -> None:
    console = await look_at(slow_agent(clock))
    task = await console.send(" ".join(map(str, range(40))))
    whole = (await console.journal(task.id))["events"]
    after, pages = 0, []
    while True:
        page = await console.journal(task.id, after=after, limit=7)
        pages += page["events"]
        if not page["more"]:
            break
        after = page["events"][-1]["generation"]
    assert pages == whole
    assert (await console.journal(task.id, after=len(whole)))["events"] == []


async def test_a_page_of_large_events_ends_early(look_at: StartConsole) -> None:
    agent = Agent("large")

    @agent.skill
    async def speak(text: str) -> Any:
        """Say much, in pieces."""
        for _ in range(12):
            yield {"much": "x" * 900_000}

    console = await look_at(agent)
    task = await console.send("go")
    page = await console.journal(task.id)
    assert page["more"]
    assert 4 <= len(page["events"]) <= 8
    seen = [event["generation"] for event in page["events"]]
    while page["more"]:
        page = await console.journal(task.id, after=seen[-1])
        seen += [event["generation"] for event in page["events"]]
    assert seen == list(range(1, page["newest"] + 1))


# -- runs and notes ----------------------------------------------------------------------------------------------------


async def test_an_answer_begins_another_run(look_at: StartConsole) -> None:
    console = await look_at(asking_agent())
    waiting = await console.send("first")
    await console.send("the blue one", task=waiting)
    journal = await console.journal(waiting.id)
    pause = waiting.generation or 0
    runs = [event["run"] for event in journal["events"]]
    assert runs == [1] * pause + [2] * (journal["newest"] - pause)
    notes = {note["kind"]: note for note in journal["notes"]}
    assert (notes["ask"]["text"], notes["ask"]["generation"]) == ("Which one?", pause)
    assert (notes["answer"]["text"], notes["answer"]["generation"]) == ("the blue one", pause + 1)


def test_runs_begin_with_answers_and_after_attempts() -> None:
    assert run_starts([]) == [1]
    notes = [Note(1, "request", b""), Note(1, "attempt", b"1"), Note(5, "attempt", b"0"), Note(5, "attempt", b"1")]
    assert run_starts(notes) == [1, 6]
    assert run_starts([*notes, Note(9, "ask", b""), Note(10, "answer", b""), Note(12, "attempt", b"2")]) == [
        1,
        6,
        10,
        13,
    ]


async def test_a_run_that_a_stop_interrupted_goes_on_as_another(tmp_path: Path, clock: Clock) -> None:
    began = asyncio.Event()

    def make() -> Agent:
        agent = Agent("restarts")

        @agent.skill(restart=True)
        async def work(text: str) -> Any:
            """Work until it is stopped, and then to the end."""
            yield "some "
            if began.is_set():
                yield "more"
                return
            began.set()
            await asyncio.Event().wait()

        return agent

    first = Console(make(), SqliteStore(tmp_path / "tasks.db", clock), clock)
    await first.connection.open()
    task = await first.send("go", wait=False)
    await asyncio.wait_for(began.wait(), 10)
    await first.connection.close()
    clock.move(60)
    second = Console(make(), SqliteStore(tmp_path / "tasks.db", clock), clock)
    await second.connection.open()
    async with asyncio.timeout(10):
        while second.service.running:  # noqa: ASYNC110
            await asyncio.sleep(0)
    journal = await second.journal(task.id)
    runs = [(event["run"], event["at"]) for event in journal["events"]]
    assert runs[0] == (1, "2027-01-15T08:00:00.000Z")
    assert runs[-1] == (2, "2027-01-15T08:01:00.000Z")
    assert sorted(runs) == runs
    await second.connection.close()


async def test_notes_tell_nothing_internal(look_at: StartConsole) -> None:
    agent = Agent("once")

    @agent.skill
    async def pay(text: str, ctx: Context) -> Any:
        """Pay once."""
        await ctx.once("pay", lambda: {"receipt": "S3CR3T"})
        return "paid"

    console = await look_at(agent)
    task = await console.send("go", by=ANNA, trace={"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"})
    notes = (await console.journal(task.id, ANNA))["notes"]
    assert "S3CR3T" not in str(notes)
    assert {note["kind"]: note["text"] for note in notes}["once"] == "pay"
    assert {note["kind"]: note["text"] for note in notes}["request"] == ""
    assert all(note["at"] is None and note["size"] > 0 for note in notes)


async def test_later_notes_of_the_last_event_are_read_with_the_next_page(look_at: StartConsole) -> None:
    console = await look_at(asking_agent())
    waiting = await console.send("first")
    pause = waiting.generation or 0
    page = await console.journal(waiting.id, after=pause)
    assert page["events"] == []
    assert [note["kind"] for note in page["notes"]] == ["ask"]


def test_a_record_of_every_kind_can_be_described() -> None:
    message = b'{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"data":{"a":1}},{"url":"https://x/y"}]}}'
    assert decode_event(message).message is not None
    assert describe_event(message) == ("message", None, '{"a":1} https://x/y')
