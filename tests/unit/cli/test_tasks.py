"""`dragoman tasks`: a table for people, a list for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from dragoman import Agent, Context, Failed
from dragoman.cli.main import group
from dragoman.testing import served

from .conftest import Run


def worker() -> Agent:
    agent = Agent("worker", description="Works")

    @agent.skill
    async def work(ctx: Context, text: str) -> str:
        if "ask" in text:
            return await ctx.ask("Which?")
        if "fail" in text:
            raise Failed("no")
        return text

    return agent


@pytest.fixture
def url() -> Iterator[str]:
    with served(worker()) as url:
        yield url


def rows(done: Any) -> list[list[str]]:
    assert done.returncode == 0, done.stderr
    return [line.split(maxsplit=4) for line in done.stdout.splitlines()]


def test_without_tasks_it_says_so(url: str, run: Run):
    done = run("tasks", url)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "no tasks\n")


def test_tasks_are_a_table_with_the_newest_first(url: str, run: Run):
    run("send", url, "please fail")
    run("send", url, "ask me")
    run("send", url, "a long story " * 10)
    run("call", url, "work", "text=x")
    called, story, asking, failed = rows(run("tasks", url))
    assert (called[1], called[4]) == ("completed", "work")
    assert (story[1], story[4]) == ("completed", "a long story a long story a long story a long story a long…")
    assert (asking[1], asking[4]) == ("input-required", "ask me")
    assert (failed[1], failed[4]) == ("failed", "please fail")
    assert rows(run("tasks", url, "--state", "failed")) == [failed]
    assert rows(run("tasks", url, "--since", "2099-01-01T00:00:00Z")) == []
    assert len(rows(run("tasks", url, "--since", "1h"))) == 4
    fewer = run("tasks", url, "--limit", "2")
    assert rows(fewer) == [called, story]
    assert fewer.stderr == "there are more: use --limit 4\n"


def test_tasks_of_one_conversation(url: str, run: Run):
    context = json.loads(run("send", url, "one", "--json").stdout)["task"]["contextId"]
    run("send", url, "two", "--context", context)
    run("send", url, "elsewhere")
    assert [row[4] for row in rows(run("tasks", url, "--context", context))] == ["two", "one"]


def test_with_json_they_are_listed_as_1_0_spells_it(url: str, run: Run):
    run("send", url, "one")
    listed = json.loads(run("tasks", url, "--json").stdout)
    assert [task["status"]["state"] for task in listed["tasks"]] == ["TASK_STATE_COMPLETED"]
    assert listed["nextPageToken"] == ""


def test_a_state_that_does_not_exist_is_an_error(url: str, run: Run):
    done = run("tasks", url, "--state", "sleeping")
    assert done.returncode == 2
    assert done.stderr.startswith("dragoman: there is no state 'sleeping'; there are: ")


def test_a_malformed_time_is_an_error(url: str, run: Run):
    done = run("tasks", url, "--since", "yesterday")
    assert done.returncode == 2
    assert done.stderr.startswith("dragoman: --since yesterday: write an age, as in 2h, 30m or 7d, or a time")


def test_the_help_shows_how_to_ask_for_the_last_two_hours():
    shown = CliRunner().invoke(group, ["tasks", "--help"]).output
    assert "--since TIME Only tasks that changed since this time: 2h for the last two hours" in " ".join(shown.split())
