"""The log has one line for each task that has ended or paused."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import pty
import re
import sys
from typing import Any

import pytest

from dragoman import Agent, Client, Context, State, User
from dragoman.engine.execute.run_log import MAX_LINES
from dragoman.outputs import Reply
from dragoman.server.listen.request_log import RequestLog
from dragoman.sync import Client as SyncClient
from dragoman.telemetry.logs import configure
from dragoman.testing import Clock, served

LINE = re.compile(r"[0-9a-f-]{8}  (\S+) +(\S+) +(\d+ ms|\d+\.\d s)  +(\d+ B|[\d.]+ kB)(?:  (\S+))?")


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "dragoman.task")
    return caplog


def agent_of_all_ends() -> Agent:
    agent = Agent("ends")

    @agent.skill
    async def act(ctx: Context, text: str) -> Any:  # pyright: ignore[reportUnusedFunction]
        if text == "ask":
            return await ctx.ask("What?")
        if text == "fail":
            raise RuntimeError
        return text * 1000

    @agent.skill(replies=True)
    async def answer() -> Reply:  # pyright: ignore[reportUnusedFunction]
        return Reply("hello")

    return agent


def columns(text: str) -> tuple[str, ...]:
    found = LINE.fullmatch(text)
    assert found, text
    return found.groups()


async def test_every_end_and_every_pause_has_a_line(lines: pytest.LogCaptureFixture, until: Any) -> None:
    async with Client(agent_of_all_ends()) as client:
        await client.send("hello")
        asked = await client.send("ask")
        await client.send("answer", task=asked)
        left = await client.send("ask")
        await until(lambda: len(lines.records) == 4)  # its run is over
        await client.cancel_task(left.id)
        await client.send("fail")
        await client.send(tool="answer")
    records = [record for record in lines.records if record.name == "dragoman.task"]
    assert [columns(record.getMessage())[:2] for record in records] == [
        ("act", "completed"),
        ("act", "input-required"),
        ("act", "completed"),
        ("act", "input-required"),
        ("ends", "canceled"),
        ("act", "failed"),
        ("answer", "replied"),
    ]
    fields = vars(records[1])
    assert (fields["task"], fields["agent"], fields["state"]) == (asked.id, "ends", "input-required")
    assert vars(records[0])["bytes"] > 5000
    assert vars(records[0])["seconds"] >= 0


async def test_a_task_that_is_cut_off_has_no_line(lines: pytest.LogCaptureFixture) -> None:
    agent = Agent("endless")

    @agent.skill
    async def wait() -> None:  # pyright: ignore[reportUnusedFunction]
        await asyncio.Event().wait()

    async with Client(agent) as client:
        stream = client.stream(tool="wait")
        async for event in stream:
            if event.state is State.WORKING:
                break
    assert [record for record in lines.records if record.name == "dragoman.task"] == []


def test_the_line_names_the_user_or_the_address(lines: pytest.LogCaptureFixture) -> None:
    with served(agent_of_all_ends()) as url, SyncClient(url) as client:
        client.send("hello")

    async def ada(_: Any) -> User:
        return User("ada")

    with served(agent_of_all_ends(), auth=ada) as url, SyncClient(url) as client:
        client.send("hello")
    first, second = (record for record in lines.records if record.name == "dragoman.task")
    assert (columns(first.getMessage())[-1], vars(first)["address"]) == ("127.0.0.1", "127.0.0.1")
    assert (columns(second.getMessage())[-1], vars(second)["user"]) == ("ada", "ada")


async def test_a_busy_server_counts_what_it_does_not_list(
    start: Any, clock: Clock, lines: pytest.LogCaptureFixture
) -> None:
    engine = await start(agent_of_all_ends())
    for _ in range(MAX_LINES + 20):
        await engine.send("hello")
    await engine.idle()
    assert len(lines.records) == MAX_LINES
    await clock.advance(1)
    assert len(lines.records) == MAX_LINES + 1
    assert lines.records[-1].getMessage() == "…         ends          completed       20 more tasks"
    assert vars(lines.records[-1])["tasks"] == 20


def test_a_terminal_gets_short_lines_and_a_pipe_whole_ones(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    log = logging.getLogger("dragoman.task")
    configure("text", "info")
    log.info("%s", "1a2b3c4d  plan", extra={"state": "completed"})
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} INFO    dragoman\.task: 1a2b3c4d  plan\n", capsys.readouterr().err
    )
    ours, theirs = pty.openpty()
    try:
        with open(theirs, "w", closefd=False) as terminal:
            monkeypatch.setattr(sys, "stderr", terminal)
            configure("text", "info")
            log.info("%s", "1a2b3c4d  plan", extra={"state": "completed"})
            log.info("%s", "5e6f7081  plan \x1b[2J", extra={"state": "failed"})
            logging.getLogger("dragoman.mcp").warning("it has ended")
            logging.getLogger("other").info("news")
        shown = b""
        while shown.count(b"\n") < 4:  # a terminal may pass on each line by itself
            shown += os.read(ours, 10_000)
        written = shown.decode()
    finally:
        os.close(ours)
        os.close(theirs)
    dim = r"\x1b\[2m\d\d:\d\d:\d\d\x1b\[0m  "
    first, failed, warning, other = written.splitlines()
    assert re.fullmatch(dim + "1a2b3c4d  plan", first)
    assert re.fullmatch(dim + r"\x1b\[31m5e6f7081  plan \\x1b\[2J\x1b\[0m", failed)
    assert re.fullmatch(dim + "warning: it has ended", warning)
    assert re.fullmatch(dim + "other: news", other)


def test_quiet_logs_nothing_below_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    configure("text", "debug", quiet=True)
    logging.getLogger("dragoman.task").info("a task")
    logging.getLogger("dragoman.engine").warning("a warning")
    assert capsys.readouterr().err.endswith("WARNING dragoman.engine: a warning\n")
    configure("json", "error", quiet=True)
    logging.getLogger("dragoman.engine").warning("a warning")
    logging.getLogger("dragoman.engine").error("an error")
    assert json.loads(capsys.readouterr().err)["message"] == "an error"


def test_every_request_is_logged_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    with served(RequestLog(agent_of_all_ends().app(store="memory:"))) as url:
        caplog.set_level(logging.DEBUG, "dragoman.http")
        with SyncClient(url) as client:
            client.card()
    record = next(record for record in caplog.records if record.name == "dragoman.http")
    assert re.fullmatch(r"GET /\.well-known/agent-card\.json  200  \d+\.\d ms", record.getMessage())
    assert (vars(record)["method"], vars(record)["status"]) == ("GET", 200)
