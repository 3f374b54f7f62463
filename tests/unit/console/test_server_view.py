"""The view of the server: what it does now, how fast it was, what its store holds, and what went wrong."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from unit.console.console_client import TOKEN, Browser, console_of

from dragoman import Agent
from dragoman.server.build import build
from dragoman.server.config.loader import load_settings
from dragoman.stores.sqlite.store import SqliteStore
from dragoman.telemetry.audit import Audit
from dragoman.telemetry.metrics.catalog import METRICS
from dragoman.telemetry.recent_errors import MAX_ERRORS, MAX_MESSAGE, RecentErrors
from dragoman.testing import Clock

logger = logging.getLogger("dragoman.test")


def make_agent(name: str = "desk") -> Agent:
    agent = Agent(name)
    agent.held = asyncio.Event()  # pyright: ignore[reportAttributeAccessIssue]

    @agent.skill(default=True)
    async def answer(text: str) -> str:
        if text == "fail":
            raise RuntimeError("password=hunter2hunter2")
        if text == "hold":
            await agent.held.wait()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        return text

    return agent


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def console(clock: Clock) -> AsyncIterator[Browser]:
    async with console_of([make_agent()], clock) as browser:
        yield browser


async def look(browser: Browser) -> dict[str, Any]:
    status, view = await browser.get("server")
    assert status == 200
    return view


async def advance(clock: Clock, seconds: int) -> None:
    for _ in range(seconds // 5):
        await clock.advance(5)


# -- who may look ------------------------------------------------------------------------------------------------------


async def test_only_administrators_see_the_server() -> None:
    async with console_of([make_agent()], opened=False) as browser:
        status, answer = await browser.get("server")
    assert (status, answer["reason"]) == (401, "UNAUTHENTICATED")


# -- rates -------------------------------------------------------------------------------------------------------------


async def test_measuring_begins_with_the_first_look(console: Browser) -> None:
    await console.say("hello")
    assert not METRICS.on
    view = await look(console)
    assert METRICS.on
    assert (view["series"], view["methods"], view["limits"]) == ([], [], [])
    assert view["measuredSince"] == "2027-01-15T08:00:00.000Z"


async def test_calls_are_counted_in_buckets_of_five_seconds(console: Browser, clock: Clock) -> None:
    await look(console)
    for text in ("one", "two", "fail"):
        await console.say(text)
    await console.call("GetTask", {"id": "nobody's"})
    await advance(clock, 10)
    view = await look(console)
    first, second = view["series"]
    assert first["at"] == "2027-01-15T08:00:05.000Z"
    assert (first["requests"], first["errors"], first["runs"]) == (4, 1, 3)
    assert first["commits"] == 0  # a store in memory has none
    assert 0 < first["p50"] <= first["p95"] < 5
    assert (second["requests"], second["p50"], second["p95"]) == (0, None, None)
    methods = {each["method"]: each for each in view["methods"]}
    assert (methods["SendMessage"]["count"], methods["SendMessage"]["errors"]) == (3, 0)
    assert (methods["GetTask"]["agent"], methods["GetTask"]["errors"]) == ("desk", 1)
    assert view["methods"][0]["method"] == "SendMessage"


async def test_the_series_goes_back_ten_minutes(console: Browser, clock: Clock) -> None:
    await look(console)
    await console.say("first")
    await advance(clock, 600)
    view = await look(console)
    assert len(view["series"]) == 120
    assert view["series"][0]["requests"] == 1
    await advance(clock, 5)
    view = await look(console)
    assert len(view["series"]) == 120
    assert view["methods"] == []


async def test_measuring_ends_a_quarter_of_an_hour_after_the_last_look(console: Browser, clock: Clock) -> None:
    before = clock.pending
    await look(console)
    await advance(clock, 15 * 60)
    assert METRICS.on
    await advance(clock, 5)
    assert not METRICS.on
    assert clock.pending <= before
    view = await look(console)
    assert (view["series"], METRICS.on) == ([], True)
    assert view["measuredSince"] > "2027-01-15T08:15"


async def test_a_look_after_a_gap_begins_anew(console: Browser, clock: Clock) -> None:
    await look(console)
    clock._now += 60_000_000  # pyright: ignore[reportPrivateUsage] - the machine was asleep, and no timer was called
    view = await look(console)
    assert view["measuredSince"] == "2027-01-15T08:01:00.000Z"
    assert METRICS.on


async def test_measuring_ends_with_the_server(clock: Clock) -> None:
    async with console_of([make_agent()], clock) as browser:
        await look(browser)
        assert METRICS.on
    assert not METRICS.on


async def test_metrics_that_others_want_stay_on(console: Browser, clock: Clock) -> None:
    METRICS.begin()
    try:
        await console.say("before anybody has looked")
        await look(console)
        await advance(clock, 5)
        assert (await look(console))["series"][0]["requests"] == 0
        await console.app.stop()
        assert METRICS.on
    finally:
        METRICS.end()
    assert not METRICS.on


async def test_two_servers_in_one_process_count_their_own_agents(clock: Clock) -> None:
    async with console_of([make_agent("one")], clock) as one, console_of([make_agent("two")], clock) as two:
        await look(one)
        await look(two)
        await one.say("hello")
        await advance(clock, 5)
        assert [(await look(each))["series"][0]["requests"] for each in (one, two)] == [1, 0]
        await one.app.stop()
        assert METRICS.on
    assert not METRICS.on


async def test_limits_that_were_hit_are_counted(clock: Clock) -> None:
    async with console_of([make_agent()], clock, limits={"parts": 1}) as browser:
        await look(browser)
        parts = [{"text": "a"}, {"text": "b"}]
        await browser.call("SendMessage", {"message": {"messageId": "m", "role": "ROLE_USER", "parts": parts}})
        await advance(clock, 5)
        assert (await look(browser))["limits"] == [{"limit": "parts", "count": 1}]


# -- what it does now --------------------------------------------------------------------------------------------------


async def test_the_node_and_what_runs_are_shown(clock: Clock) -> None:
    agent = make_agent()
    async with console_of([agent], clock) as browser:
        await clock.advance(60)
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hold"}]}
        sent = await browser.call("SendMessage", {"message": message, "configuration": {"returnImmediately": True}})
        task = sent["result"]["task"]
        view = await look(browser)
        assert (view["node"]["pid"], view["node"]["uptime"]) == (os.getpid(), 60)
        assert view["node"]["name"] == f"{socket.gethostname()}:8080"
        (node,) = view["nodes"]
        assert (node["state"], node["agents"], node["running"], node["pid"]) == ("alive", ["desk"], 1, os.getpid())
        assert view["waiting"] is None
        (run,) = view["running"]
        assert (run["id"], run["agent"], run["contextId"]) == (task["id"], "desk", task["contextId"])
        assert run["since"] == "2027-01-15T08:01:00.000Z"
        assert view["runningTotal"] == 1
        assert view["threads"]["size"] > 0
        assert view["webhooks"] == {"owed": 0, "late": 0}
        assert view["store"] == {
            "kind": "memory",
            "location": "the memory of this process",
            "bytes": None,
            "tasks": {"TASK_STATE_WORKING": 1},
            "error": None,
        }
        agent.held.set()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


async def test_a_file_is_shown_with_its_size_and_its_tasks(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    async with console_of([make_agent()], store=f"sqlite:///{path}") as browser:
        await browser.say("hello")
        await look(browser)
        store = (await look(browser))["store"]
    assert (store["kind"], store["location"]) == ("sqlite", f"the file {path}")
    assert store["bytes"] >= 4096
    assert store["tasks"] == {"TASK_STATE_COMPLETED": 1}


async def test_the_nodes_of_a_shared_store_are_listed_without_its_password(postgres_url: str) -> None:
    settings: dict[str, Any] = {"store": postgres_url, "secret": "long enough to be a secret"}
    async with (
        console_of([make_agent()], node="one", **settings) as one,
        console_of([make_agent()], node="two", **settings),
    ):
        await one.say("hello")
        view = await look(one)
    assert sorted(node["name"] for node in view["nodes"]) == ["one", "two"]
    assert {node["state"] for node in view["nodes"]} == {"alive"}
    assert view["waiting"] == 0
    assert all("keys" not in node for node in view["nodes"])
    store = view["store"]
    assert (store["kind"], store["error"]) == ("postgresql", None)
    assert store["location"].startswith("the database ")
    assert "://" not in store["location"]
    assert store["bytes"] > 100_000
    assert store["tasks"] == {"TASK_STATE_COMPLETED": 1}


# -- errors ------------------------------------------------------------------------------------------------------------


async def test_the_error_of_a_failed_task_is_found_by_the_reference_that_its_caller_got(console: Browser) -> None:
    task = (await console.say("fail"))["result"]["task"]
    text = task["status"]["message"]["parts"][0]["text"]
    (error,) = (await look(console))["errors"]
    assert text == f"execution failed: Internal error, reference {error['reference']}"
    assert (error["agent"], error["task"], error["level"]) == ("desk", task["id"], "error")
    assert ": RuntimeError in test_server_view.py:" in error["message"]
    assert "hunter2" not in str(error)
    assert "Traceback" not in str(error)


async def test_the_newest_errors_come_first_and_only_so_many(console: Browser) -> None:
    for number in range(MAX_ERRORS + 5):
        logger.warning("problem %d", number)
    logger.info("no problem")
    errors = (await look(console))["errors"]
    assert len(errors) == MAX_ERRORS
    assert errors[0]["message"] == f"problem {MAX_ERRORS + 4}"
    assert (errors[0]["logger"], errors[0]["reference"]) == ("dragoman.test", None)


async def test_refused_callers_are_not_among_the_recent_errors(console: Browser) -> None:
    logger.error("a real problem")
    for _ in range(MAX_ERRORS):
        Audit().record_denial(scheme="console", reason="wrong-token")
    assert [error["message"] for error in (await look(console))["errors"]] == ["a real problem"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("two\nlines\x1b[31m", r"two\nlines\x1b[31m"),
        ("GET https://me:secret@host/path", "GET https://…@host/path"),
        ("Authorization: Bearer abcdefghij", "Authorization: …"),
        ("api_key=abcdefghij&x=1", "api_key=…&x=1"),
        ("the token is short", "the token is short"),
        ("x" * 10_000, "x" * MAX_MESSAGE + "…"),
    ],
)
def test_a_message_is_one_short_line_without_secrets(text: str, shown: str) -> None:
    errors = RecentErrors()
    errors.install()
    try:
        logger.error("%s", text)
    finally:
        errors.remove()
    assert [error.message for error in errors.newest_first()] == [shown]


async def test_a_server_leaves_out_the_errors_of_agents_of_another_one() -> None:
    async with console_of([make_agent("one")]) as one, console_of([make_agent("two")]) as two:
        await one.say("fail")
        assert [len((await look(each))["errors"]) for each in (one, two)] == [1, 0]


async def test_errors_are_kept_while_the_server_runs() -> None:
    handlers = list(logging.getLogger("dragoman").handlers)
    async with console_of([make_agent()]):
        assert len(logging.getLogger("dragoman").handlers) == len(handlers) + 1
    assert logging.getLogger("dragoman").handlers == handlers


async def test_without_a_console_nothing_is_kept() -> None:
    handlers = list(logging.getLogger("dragoman").handlers)
    async with console_of([make_agent()], console="off", opened=False):
        assert logging.getLogger("dragoman").handlers == handlers


def test_a_program_that_has_not_set_up_logging_still_prints_its_warnings(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    one, two = RecentErrors(), RecentErrors()
    one.install()
    two.install()
    try:
        logger.warning("mind the gap")
    finally:
        one.remove()
        two.remove()
    assert capsys.readouterr().err == "mind the gap\n"


async def test_a_store_that_a_program_has_brought_along_is_not_the_one_of_the_settings(tmp_path: Path) -> None:
    settings = load_settings({"drain": 0}, environ={}, config=None, cwd=tmp_path)
    app = build([make_agent()], replace(settings, console_token=TOKEN), store=SqliteStore(tmp_path / "own.db"))
    await app.start()
    try:
        browser = Browser(app)
        await browser.open_console()
        store = (await look(browser))["store"]
    finally:
        await app.stop()
    assert (store["kind"], store["location"], store["bytes"]) == ("custom", "a store of the program's own", None)


# -- cards and calls over the API --------------------------------------------------------------------------------------


async def test_anybody_sees_the_problems_of_a_card() -> None:
    bad = Agent("bad", card={"version": 3})
    async with console_of([make_agent(), bad], opened=False) as browser:
        assert await browser.get("cards/desk") == (200, {"problems": []})
        status, answer = await browser.get("cards/bad")
        assert status == 200
        assert {each["path"] for each in answer["problems"]} == {"version", "skills"}
        assert answer["problems"][0].keys() == {"level", "path", "rule", "message"}
        assert (await browser.get("cards/nobody"))[0] == 404


async def test_anybody_sees_a_call_in_every_version() -> None:
    async with console_of([make_agent(), make_agent("other")], opened=False) as browser:
        body = {"agent": "other", "operation": "GetTask", "params": {"id": "t"}}
        status, answer = await browser.post("calls", body)
        assert status == 200
        calls = {(each["version"], each["binding"]): each for each in answer["calls"]}
        assert len(calls) == 13
        assert calls["1.0", "HTTP+JSON"]["url"] == "http://127.0.0.1/agents/other/tasks/t"
        assert calls["1.0", "GRPC"]["served"] is False
        status, answer = await browser.post("calls", {**body, "params": {}})
        assert (status, answer["reason"]) == (400, "INVALID_PARAMS")
        assert "id is required" in answer["error"]
