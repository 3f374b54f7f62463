"""Task ids that need not be typed whole, the last one, and `send --continue`."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman import Agent, Context
from dragoman.cli.remote.recent import RecentTasks
from dragoman.cli.remote.task_id import match_beginning
from dragoman.model.error import ConfigError
from dragoman.outputs import Reply
from dragoman.testing import served

from .conftest import Typed


def diary() -> Agent:
    agent = Agent("diary", description="Remembers")

    @agent.skill(default=True)
    async def note(ctx: Context) -> AsyncIterator[str]:
        before = ctx.state.get("text", "nothing")
        ctx.state["text"] = ctx.text
        yield f"{before}, then {ctx.text}"

    @agent.skill
    async def ask(ctx: Context) -> AsyncIterator[str]:
        yield f"you are {await ctx.ask('Who are you?')}"

    @agent.skill(replies=True)
    def wave() -> Reply:
        return Reply("hello")

    return agent


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with served(diary()) as url:
        yield url


@pytest.fixture
def url(server: str, typed: Typed, monkeypatch: pytest.MonkeyPatch) -> str:
    """The agent, which is also the default; nothing is remembered yet."""
    monkeypatch.setenv("DRAGOMAN_AGENT", server)
    return server


def begin(typed: Typed, text: str = "a") -> str:
    task: str = json.loads(typed("send", text, "--json").out)["task"]["id"]
    return task


def forget(folder: Path) -> None:
    (folder / "state" / "dragoman" / "recent.json").unlink()


# -- ids -------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("url")
@pytest.mark.parametrize("is_remembered", [True, False])
def test_a_task_is_found_by_a_unique_beginning_of_its_id(typed: Typed, tmp_path: Path, is_remembered: bool):
    task = begin(typed)
    if not is_remembered:
        forget(tmp_path)  # then the agent lists it
    for verb in ("get", "watch"):
        assert typed(verb, task[:12]) == typed(verb, task), verb
    assert typed("cancel", task[:12]).code == 4, "it has ended"


@pytest.mark.usefixtures("url")
def test_last_is_the_task_that_was_sent_to_last_else_the_newest_that_the_agent_lists(typed: Typed, tmp_path: Path):
    begin(typed, "first")
    second = begin(typed, "second")
    assert typed("get", "last").err.startswith(f"task     {second}\n")
    assert typed("watch", "last").out == "nothing, then second\n"
    forget(tmp_path)
    assert typed("get", "last").err.startswith(f"task     {second}\n")


def test_there_may_be_no_last_task(typed: Typed):
    with served(diary()) as url:
        done = typed("get", url, "last")
    assert done == (2, "", f"dragoman: there is no last task at {url}: start one with `dragoman send`\n")


def test_a_task_at_another_address_is_not_the_last_one_here(url: str, typed: Typed):
    here = begin(typed)
    with served(diary()) as other:
        assert typed("send", other, "there").code == 0
        assert typed("get", other, here[:12]).code == 4
    assert typed("get", "last").err.startswith(f"task     {here}\n")


def test_a_beginning_of_several_ids_is_refused_with_all_of_them(url: str, typed: Typed):
    ids = [f"4d1e0{number}00-94cd-4f26-8d5b-6a0c9e1f2d74" for number in range(2)]
    for each in ids:
        RecentTasks().add(url, each, "c")
    assert typed("cancel", "4d1e0") == (
        2,
        "",
        f"dragoman: `4d1e0` matches 2 task ids; add more characters:\n  {ids[1]}\n  {ids[0]}\n",
    )


@pytest.mark.parametrize("word", ["abc", "nothing-like-this", "4d1e0000-94cd-4f26-8d5b-6a0c9e1f2d74"])
@pytest.mark.usefixtures("url")
def test_an_id_that_matches_no_task_is_sent_to_the_agent(typed: Typed, word: str):
    begin(typed)
    assert typed("get", word) == (4, "", "dragoman: Task not found. `dragoman tasks` lists your tasks\n")


def test_a_whole_id_is_never_taken_for_the_beginning_of_another(url: str, typed: Typed, tmp_path: Path):
    """Ids that are no UUIDs: a caller of A2A 0.1 chooses them."""
    for task in ("trip-1", "trip-10"):
        message = {"role": "user", "parts": [{"type": "text", "text": task}]}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tasks/send", "params": {"id": task, "message": message}}
        request = urllib.request.Request(f"{url}/", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as response:
            assert response.status == 200
    RecentTasks().add(url, "trip-10", "")
    assert typed("get", "trip-1").err.startswith("task     trip-1\n")
    forget(tmp_path)
    assert typed("get", "trip-1").err.startswith("task     trip-1\n")
    assert typed("get", "trip").code == 2, "several"


@pytest.mark.usefixtures("url")
def test_an_agent_that_lists_no_tasks_is_asked_for_the_id_as_it_is(typed: Typed, tmp_path: Path):
    task = begin(typed)
    assert typed("get", task[:12], "--protocol", "0.3").code == 0
    forget(tmp_path)
    assert typed("get", task[:12], "--protocol", "0.3") == (
        4,
        "",
        "dragoman: Task not found. `dragoman tasks` lists your tasks\n",
    )
    assert typed("get", "last", "--protocol", "0.3").code == 2


@pytest.mark.usefixtures("url")
@pytest.mark.parametrize("named", ["last", "prefix"])
def test_a_question_is_answered_by_last_or_a_beginning(typed: Typed, named: str):
    asked = typed("send", "--tool", "ask")
    assert asked.code == 6
    task = asked.err.split("--task ")[1].split()[0]
    assert typed("send", "--task", "last" if named == "last" else task[:12], "Ada").out == "you are Ada\n"


# -- the conversation ------------------------------------------------------------------------------------------------


def test_continue_goes_on_after_an_answer_without_a_task(url: str, typed: Typed):
    done = typed("send", "--tool", "wave", "--json")
    context = json.loads(done.out)["message"]["contextId"]
    assert RecentTasks().at(url)[0][:2] == ("", context)
    again = typed("send", "--continue", "two", "--json")
    assert json.loads(again.out)["task"]["contextId"] == context


def test_continue_goes_on_when_the_agent_has_forgotten_the_task(url: str, typed: Typed):
    RecentTasks().add(url, "00000000-94cd-4f26-8d5b-6a0c9e1f2d74", "an-old-context")
    done = typed("send", "--continue", "two", "--json")
    assert json.loads(done.out)["task"]["contextId"] == "an-old-context"


def test_continue_without_a_conversation_is_refused(url: str, typed: Typed):
    assert typed("send", "--continue", "x") == (
        2,
        "",
        f"dragoman: there is no conversation with {url} to continue: omit --continue to start one\n",
    )


@pytest.mark.parametrize("option", ["--task", "--context"])
@pytest.mark.usefixtures("url")
def test_continue_and_another_conversation_are_refused(typed: Typed, option: str):
    done = typed("send", "--continue", option, "x", "y")
    assert done.code == 2
    assert "--continue cannot be combined with --task or --context." in done.err


def test_a_terminal_shows_how_to_come_back(url: str, terminal: Any):
    screen = terminal("send", "one", DRAGOMAN_AGENT=url)
    screen.until("nothing, then one\n")
    assert screen.ended() == (0, '\x1b[2mcontinue with: dragoman send --continue "…"\x1b[0m\n')
    screen = terminal("send", url, "two", "--no-wait", NO_COLOR="1")
    screen.until("follow with: dragoman watch ")
    assert screen.ended() == (0, f"{url} last\n")


def test_a_terminal_shows_nothing_that_would_not_work(url: str, terminal: Any):
    screen = terminal("send", "one", DRAGOMAN_AGENT=url, XDG_STATE_HOME="/dev/null", HOME="/dev/null")
    screen.until("nothing, then one\n")
    assert screen.ended() == (0, "")


def test_at_most_ten_matching_ids_are_listed():
    with pytest.raises(ConfigError) as raised:
        match_beginning("task", [f"task-{number}" for number in range(300)])
    first, *ids, last = str(raised.value).splitlines()
    assert (first, len(ids), last) == ("`task` matches 300 task ids; add more characters:", 10, "  …")
