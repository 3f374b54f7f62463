"""The list of tasks in the console: filters, pages, totals and the search for words."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from unit.console.conftest import StartConsole
from unit.console.looking import ADMIN, ANNA, BERT, NOBODY, Console
from unit.console.test_tasks import asking_agent, counting_agent

from dragoman import Agent
from dragoman.console.tasks import search
from dragoman.console.tasks.row import excerpt, title_of
from dragoman.engine.ports.store import ScopeFilter
from dragoman.model.error import InvalidParams
from dragoman.model.message import Message
from dragoman.model.part import Part
from dragoman.model.state import Role, State
from dragoman.model.task import Task, TaskStatus
from dragoman.testing import Clock


async def filled(look_at: StartConsole, clock: Clock, count: int = 12) -> Console:
    console = await look_at(counting_agent())
    for number in range(count):
        clock.move(1)
        await console.send(f"task {number}", by=(ANNA, BERT, NOBODY)[number % 3], context=f"c{number % 4}")
    return console


async def test_an_administrator_sees_all_tasks_and_a_user_their_own(look_at: StartConsole, clock: Clock) -> None:
    console = await filled(look_at, clock)
    shown = await console.list()
    assert [row["title"] for row in shown["tasks"]] == [f"task {number}" for number in reversed(range(12))]
    assert (shown["total"], shown["next"], shown["examined"]) == (12, None, 12)
    own = await console.list(ANNA)
    assert [row["title"] for row in own["tasks"]] == ["task 9", "task 6", "task 3", "task 0"]
    assert own["total"] == 4
    assert {row["own"] for row in own["tasks"]} == {True}
    assert await console.list(NOBODY) == {"tasks": [], "next": None, "total": 0, "examined": 0}
    assert [row["owner"] for row in shown["tasks"] if row["own"]] == [""] * 4


async def test_pages_follow_each_other_while_tasks_are_added(look_at: StartConsole, clock: Clock) -> None:
    console = await filled(look_at, clock)
    expected = await console.ids()
    found: list[str] = []
    page = await console.list(limit=5)
    found += [row["id"] for row in page["tasks"]]
    clock.move(1)
    await console.send("a new one")
    while page["next"]:
        page = await console.list(limit=5, after=page["next"])
        found += [row["id"] for row in page["tasks"]]
    assert found == expected


async def test_filters_select_by_agent_owner_context_state_and_time(look_at: StartConsole, clock: Clock) -> None:
    console = await filled(look_at, clock)

    async def titles(viewer: Any = ADMIN, **query: str) -> list[int]:
        return [int(row["title"].split()[1]) for row in (await console.list(viewer, **query))["tasks"]]

    assert await titles(owner="bert") == [10, 7, 4, 1]
    assert await titles(owner="") == [11, 8, 5, 2]
    assert await titles(ANNA, owner="bert") == [9, 6, 3, 0]
    assert await titles(agent="counter", context="c1") == [9, 5, 1]
    assert await titles(agent="nobody") == await titles(ANNA, agent="nobody") == []
    assert await titles(state="TASK_STATE_FAILED") == []
    assert len(await titles(state="TASK_STATE_COMPLETED")) == 12
    assert await titles(since="2027-01-15T08:00:10Z", until="2027-01-15T08:00:12Z") == [10, 9]
    assert (await console.list(context="c1"))["total"] is None
    assert (await console.list(state="TASK_STATE_COMPLETED", owner="bert"))["total"] == 4


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("state", "working"),
        ("since", "yesterday"),
        ("until", "0000-99-99"),
        ("limit", "0"),
        ("limit", "201"),
        ("limit", "-1"),
        ("after", "x"),
        ("after", "1.2.3"),
        ("after", "9" * 30 + ".1"),
        ("text", "x" * 201),
    ],
)
async def test_a_filter_that_there_is_not_is_refused(look_at: StartConsole, name: str, value: str) -> None:
    console = await look_at(counting_agent())
    with pytest.raises(InvalidParams) as refused:
        await console.list(ADMIN, **{name: value})
    assert refused.value.field == name


# -- words -------------------------------------------------------------------------------------------------------------


async def test_words_in_messages_artifacts_and_ids_are_found_in_any_case(look_at: StartConsole) -> None:
    agent = Agent("speaker")

    @agent.skill
    async def speak(text: str) -> Any:
        """Answer."""
        yield "The Straße is "
        yield "cl"
        yield "osed"
        yield {"city": 'Ber"lin'}

    console = await look_at(agent)
    task = await console.send("Where is Jürgen?", Part(raw=b"x", filename="Plan-A.pdf"), context="Context-7")
    other = await console.send("nothing")
    for text in (
        "jürgen",
        "JÜRGEN",
        "strasse",
        "closed",
        'ber"LIN',
        "city",
        "plan-a",
        "context-7",
        task.id[:13].upper(),
    ):
        assert task.id in await console.ids(text=text), text
    for text in ("jürgen", "plan-a", "context-7"):
        assert other.id not in await console.ids(text=text), text
    for text in ("TASK_STATE", "messageId", "mediaType", "artifactId", "eA=="):
        assert await console.ids(text=text) == [], text
    assert (await console.list(text="jürgen"))["tasks"][0]["title"] == "Where is Jürgen? Plan-A.pdf"


async def test_a_whole_id_is_found_without_looking_at_others(look_at: StartConsole, clock: Clock) -> None:
    console = await filled(look_at, clock)
    wanted = (await console.ids())[-1]
    found = await console.list(text=f" {wanted} ")
    assert ([row["id"] for row in found["tasks"]], found["examined"], found["next"]) == ([wanted], 1, None)
    assert await console.ids(BERT, text=wanted) == []
    assert await console.ids(text=wanted, state="TASK_STATE_FAILED") == []
    assert await console.ids(text=str(uuid4())) == []


async def test_a_search_for_words_goes_on_where_it_stopped(
    look_at: StartConsole, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MAX_EXAMINED", 4)
    monkeypatch.setattr(search, "_SCAN_PAGE", 2)
    console = await filled(look_at, clock)
    found: list[str] = []
    after, requests = "", 0
    while after is not None:
        page = await console.list(text="task 1", after=after)
        assert page["examined"] <= 4
        assert page["total"] is None
        found += [row["title"] for row in page["tasks"]]
        after, requests = page["next"], requests + 1
    assert found == ["task 11", "task 10", "task 1"]
    assert requests == 3
    first = await console.list(text="task", limit=3)
    assert [row["title"] for row in first["tasks"]] == ["task 11", "task 10", "task 9"]
    second = await console.list(text="task", limit=1, after=first["next"])
    assert [row["title"] for row in second["tasks"]] == ["task 8"]


@pytest.mark.parametrize("text", ["", "task"])
async def test_tasks_are_looked_at_in_turns_and_large_ones_in_a_thread(
    look_at: StartConsole, clock: Clock, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(search, "_SLICE", 5)
    console = await filled(look_at, clock)
    turns = 0

    async def wait_for_turn() -> None:
        nonlocal turns
        turns += 1

    query = search.SearchQuery.parse({"text": text}, ScopeFilter())
    page = await search.find_page(console.store, query, wait_for_turn)
    assert turns == 3
    monkeypatch.setattr(search, "_LARGE_SLICE", 10)
    assert await search.find_page(console.store, query, wait_for_turn) == page
    assert [found.title for found in page.tasks] == [f"task {number}" for number in reversed(range(12))]


async def test_a_page_of_matches_that_ends_with_the_last_task_has_no_next(look_at: StartConsole, clock: Clock) -> None:
    console = await filled(look_at, clock, 3)
    assert (await console.list(text="task", limit=3))["next"] is None
    first = await console.list(text="task", limit=2)
    assert (await console.list(text="task", limit=2, after=first["next"]))["next"] is None


async def test_a_task_that_works_is_found_by_what_was_asked(look_at: StartConsole) -> None:
    agent = Agent("works")
    began, done = asyncio.Event(), asyncio.Event()

    @agent.skill
    async def work(text: str) -> Any:
        """Work until it may end."""
        began.set()
        await done.wait()
        return "done"

    console = await look_at(agent)
    task = await console.send("Dig a   hole", wait=False)
    await began.wait()
    (row,) = (await console.list(state="TASK_STATE_WORKING"))["tasks"]
    assert (row["id"], row["title"]) == (task.id, "Dig a hole")
    assert await console.ids(text="HOLE") == [task.id]
    done.set()


async def test_a_task_moves_to_the_top_when_its_status_changes(look_at: StartConsole, clock: Clock) -> None:
    console = await look_at(asking_agent())
    first = await console.send("one")
    clock.move(1)
    second = await console.send("two")
    assert await console.ids() == [second.id, first.id]
    clock.move(1)
    await console.send("answer", task=first)
    assert await console.ids() == [first.id, second.id]
    assert await console.ids(state="TASK_STATE_INPUT_REQUIRED") == [second.id]
    assert (await console.list(state="TASK_STATE_INPUT_REQUIRED"))["total"] == 1


def test_an_excerpt_is_one_line_of_at_most_its_length() -> None:
    assert excerpt(" a\n b\t", 10) == "a b"
    assert excerpt("0123456789", 10) == "0123456789"
    assert excerpt("0123456789x", 10) == "012345678…"
    assert excerpt(" " * 1000 + "late", 10) == "…"
    assert len(excerpt("x" * 10_000, 200)) == 200


@pytest.mark.parametrize(
    ("data", "title"),
    [
        ({"tool": "plan", "arguments": {"city": "Lisbon", "days": 3}}, 'plan(city="Lisbon", days=3)'),
        ({"tool": "now"}, "now()"),
        ({"tool": 3}, '{"tool":3}'),
        ([1, 2], "[1,2]"),
    ],
)
def test_a_title_says_what_was_called_as_people_write_it(data: Any, title: str) -> None:
    message = Message("m", Role.USER, (Part(data=data),))
    task = Task("t", "c", TaskStatus(State.COMPLETED), history=(message,))
    assert title_of(task) == title
