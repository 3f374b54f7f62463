"""`dragoman chat`: lines in, answers out, one conversation."""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from dragoman import Agent, Context, Failed
from dragoman.testing import served

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    gate = threading.Event()
    yield gate
    gate.set()


@pytest.fixture
def url(gate: threading.Event) -> Iterator[str]:
    agent = Agent("waiter", description="Brings things")

    @agent.skill
    async def order(ctx: Context, text: str) -> AsyncIterator[str]:
        if text == "fail":
            raise Failed("the kitchen is closed")
        if text == "slow":
            yield "soon "
            await asyncio.to_thread(gate.wait, 30)
        if text == "drink":
            text = await ctx.ask("Which drink?")
        number = ctx.state["number"] = ctx.state.get("number", 0) + 1
        yield f"{number}: {text}"

    with served(agent) as url:
        yield url
        gate.set()


def test_lines_from_a_pipe_are_one_conversation(url: str, run: Run):
    done = run("chat", url, typed="bread\n\ndrink\ntea\n/quit\nnever\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "1: bread\n2: tea\n", "Which drink?\n")


def test_a_task_that_fails_is_told_and_the_conversation_goes_on(url: str, run: Run):
    done = run("chat", url, typed="fail\nbread\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "1: bread\n", "failed: the kitchen is closed\n")


def test_a_question_that_is_left_open_at_the_end_is_6(url: str, run: Run):
    done = run("chat", url, typed="drink\n")
    assert (done.returncode, done.stdout) == (6, "")
    assert f"answer with: dragoman send {url} --task " in done.stderr


def test_with_json_each_answer_is_a_line(url: str, run: Run):
    done = run("chat", url, "--json", typed="bread\nwine\n")
    first, second = map(json.loads, done.stdout.splitlines())
    assert first["task"]["contextId"] == second["task"]["contextId"]
    assert first["task"]["id"] != second["task"]["id"]


def test_nobody_there_is_told_before_the_first_line(run: Run):
    done = run("chat", "http://127.0.0.1:1", typed="hello\n")
    assert (done.returncode, done.stdout) == (3, "")


def test_a_terminal_has_a_prompt_a_history_and_ends_with_ctrl_d(url: str, terminal: Any):
    screen = terminal("chat", url, NO_COLOR="1")
    screen.until("waiter: Brings things")
    screen.until("> ")
    screen.type("bread\n")
    screen.until("1: bread\n")
    screen.until("> ")
    screen.type("\x1b[A\n")  # the arrow that goes back
    screen.until("2: bread\n")
    screen.until("> ")
    screen.type("drink\n")
    screen.until("Which drink?")
    screen.until("? ")
    screen.type("tea\n")
    screen.until("3: tea\n")
    screen.until("> ")
    screen.type("\x04")
    assert screen.ended()[0] == 0


def test_ctrl_c_leaves_the_task_running_and_the_conversation_goes_on(url: str, terminal: Any):
    screen = terminal("chat", url, NO_COLOR="1")
    screen.until("> ")
    screen.type("slow\n")
    screen.until("soon ")
    screen.interrupt()
    screen.until(f"the task goes on: dragoman watch {url} ")
    screen.until("> ")
    screen.type("bread\n")
    screen.until("1: bread\n")
    screen.until("> ")
    code, rest = screen.interrupted()
    assert code == 130
    assert "Traceback" not in rest


def test_an_error_is_told_and_the_conversation_goes_on(terminal: Any):
    down = threading.Event()
    agent = Agent("echo", description="Echoes")

    @agent.skill
    def say(text: str) -> str:
        return text

    app = agent.app(store="memory:", drain=1)

    async def failing(scope: Any, receive: Any, send: Any) -> None:
        if down.is_set() and scope["type"] == "http":
            down.clear()
            body = b'{"jsonrpc":"2.0","id":"1","error":{"code":-32602,"message":"too early"}}'
            await send(
                {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]}
            )
            await send({"type": "http.response.body", "body": body})
            return
        await app(scope, receive, send)

    with served(failing) as url:
        screen = terminal("chat", url, NO_COLOR="1")
        screen.until("> ")
        down.set()
        screen.type("one\n")
        screen.until("dragoman: too early\n")
        screen.until("> ")
        screen.type("two\n")
        screen.until("two\n")
        screen.until("two\n")
        screen.until("> ")
        screen.type("/quit\n")
        assert screen.ended()[0] == 0
