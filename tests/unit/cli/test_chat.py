"""`dragoman chat`: lines in, answers out, one conversation."""

from __future__ import annotations

import asyncio
import io
import json
import re
import stat
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from support.command import SOURCE
from support.terminal import Terminal

from dragoman import Agent, Context, Failed, File
from dragoman.cli.main import main
from dragoman.testing import served

from .conftest import Run


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    gate = threading.Event()
    yield gate
    gate.set()


@pytest.fixture
def url(gate: threading.Event) -> Iterator[str]:
    agent = Agent("waiter", description="Brings things")

    @agent.skill
    async def order(ctx: Context, text: str) -> AsyncIterator[str | File]:
        for file in ctx.files:
            yield f"[{file.filename}: {(file.raw or b'').decode()}] "
        if text == "fail":
            raise Failed("the kitchen is closed")
        if text == "list":
            yield File(b"eggs", name="../list.txt")
        if text == "slow":
            yield "soon "
            await asyncio.to_thread(gate.wait, 30)
        if text == "drink":
            text = await ctx.ask("Which drink?")
        number = ctx.state["number"] = ctx.state.get("number", 0) + 1
        yield f"{number}: {text}".replace("\n", "|").replace("\t", "~")

    with served(agent) as url:
        yield url
        gate.set()


def send_line(screen: Terminal, line: str, *answers: str) -> None:
    """Type a line at the prompt, and wait until the answers are on the screen, one after the other."""
    screen.until("> ")
    screen.type(f"{line}\n")
    for answer in answers:
        screen.until(answer)


def test_lines_from_a_pipe_are_one_conversation(url: str, run: Run):
    done = run("chat", url, typed="bread\n\ndrink\ntea\n/quit\nnever\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "1: bread\n2: tea\n", "Which drink?\n")


def test_a_failed_task_is_reported_and_the_conversation_goes_on(url: str, run: Run):
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


def test_an_agent_that_is_not_there_ends_the_chat_before_the_first_line(run: Run):
    done = run("chat", "http://127.0.0.1:1", typed="hello\n")
    assert (done.returncode, done.stdout) == (3, "")


def test_commands_work_from_a_pipe_too(url: str, run: Run, tmp_path: Path):
    (tmp_path / "my list.txt").write_text("eggs")
    lines = [
        "bread",
        "/file 'my list.txt' what's this?",
        "/new",
        "wine",
        "drink",
        "/cancel",
        "//new",
        "/usr/bin",
        "/HELP",
    ]
    done = run("chat", url, typed="\n".join(lines))
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        "1: bread",
        "[my list.txt: eggs] 2: what's this?",
        "1: wine",
        "2: /new",
        "3: /usr/bin",
    ]
    question, canceled, first, *_ = done.stderr.splitlines()
    assert (question, canceled) == ("Which drink?", "canceled")
    assert first.split() == ["/help", "Show", "this", "list."]


def test_the_files_of_an_answer_are_saved_on_demand(url: str, run: Run, tmp_path: Path):
    done = run("chat", url, typed="list\n/save 'my files'\n/save\nbread\n/save\n")
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert [line for line in lines if "saved" in line] == [
        "saved my files/list.txt (4 bytes)",
        "saved list.txt (4 bytes)",
    ]
    assert lines[-1] == "dragoman: there is nothing to save: the last answer has no files"
    assert ((tmp_path / "my files" / "list.txt").read_text(), (tmp_path / "list.txt").read_text()) == ("eggs", "eggs")


def test_markdown_is_rendered_or_not_as_the_user_likes(url: str, terminal: Any):
    screen = terminal("chat", url)
    for command, answer in (
        ("", "loud\x1b[0m"),
        ("rendering is off", "1: **loud**"),
        ("rendering is on", "loud\x1b[0m"),
    ):
        screen.until("> ")
        if command:
            screen.type("/raw\n")
            screen.until(f"{command}\n")
            screen.until("> ")
        screen.type("/new\n")
        screen.until("started a new conversation\n")
        send_line(screen, "**loud**", "**loud**\n", answer)


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("/fiel x.txt", "there is no command /fiel: did you mean /file? To send it as text, start with //."),
        ("/xyz", "there is no command /xyz: /help lists the commands. To send it as text, start with //."),
        ("/file nowhere.txt", "nowhere.txt cannot be read: No such file or directory"),
        ("/file", "/file needs a path: /file report.pdf What does it say?"),
        ("/file 'a", "/file: a quote is not closed"),
        ("/save a b", "/save takes one folder: put quotes around 'a b'"),
        ("/cancel", "there is nothing to cancel: no task is waiting for an answer"),
    ],
)
def test_a_wrong_command_sends_nothing_and_ends_a_pipe_with_2(
    url: str, line: str, answer: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{line}\nbread\n"))
    with pytest.raises(SystemExit) as ended:
        main(["chat", url])
    assert ended.value.code == 2
    assert capsys.readouterr() == ("", f"dragoman: {answer}\n")


def test_a_conversation_is_taken_up_again_with_its_open_question(url: str, run: Run):
    first = run("chat", url, "--json", typed="bread\ndrink\n")
    context = json.loads(first.stdout.splitlines()[0])["task"]["contextId"]
    again = run("chat", url, "--context", context, typed="tea\n")
    assert (again.returncode, again.stdout, again.stderr) == (0, "2: tea\n", "Which drink?\n")


def test_the_last_conversation_needs_no_id(url: str, run: Run):
    none = run("chat", url, "--context", "last", typed="bread\n")
    assert (none.returncode, none.stdout) == (2, "")
    assert f"there is no conversation with {url} yet: omit --context" in none.stderr
    run("send", url, "bread")
    assert run("chat", url, "--context", "last", typed="wine\n").stdout == "2: wine\n"


def test_a_conversation_goes_on_with_an_agent_that_lists_no_tasks(url: str, run: Run):
    first = run("chat", url, "--json", typed="bread\n")
    context = json.loads(first.stdout)["task"]["contextId"]
    again = run("chat", url, "--context", context, "--protocol", "0.3", typed="wine\n")
    assert (again.returncode, again.stdout, again.stderr) == (0, "2: wine\n", "")


def test_a_terminal_shows_where_a_conversation_was_and_how_to_come_back(url: str, terminal: Any):
    screen = terminal("chat", url, NO_COLOR="1")
    screen.until("waiter: Brings things")
    send_line(screen, "bread", "1: bread\n")
    screen.until("> ")
    screen.type("\x04")
    code, rest = screen.ended()
    assert code == 0
    come_back = re.search(r"continue with: dragoman (chat .*)\n", rest)
    assert come_back is not None
    screen = terminal(*come_back[1].split(), NO_COLOR="1")
    screen.until("> bread\n1: bread\n")
    send_line(screen, "drink", "Which drink?\n")
    screen.until("? ")
    screen.type("tea\n")
    screen.until("2: tea\n")
    send_line(screen, "/new", "started a new conversation\n")
    send_line(screen, "/quit")
    code, rest = screen.ended()
    assert (code, "come back" in rest) == (0, False)


def test_several_lines_are_one_message_and_the_arrow_keys_bring_back_that_of_an_earlier_chat(
    url: str, terminal: Any, tmp_path: Path
):
    screen = terminal("chat", url)
    send_line(screen, "two \\", "... ")
    screen.type("lines\n")
    screen.until("1: two |lines\n")
    screen.until("> ")
    screen.type("\x1b[200~def f():\n\treturn 1\n\x1b[201~")  # what a terminal sends for pasted text
    screen.until("return 1")
    screen.type("\n")
    screen.until("2: def f():|~return 1\n")
    send_line(screen, " a secret", "3:  a secret\n")
    screen.until("> ")
    screen.type("\x04")
    screen.ended()
    kept = tmp_path / ".local" / "state" / "dragoman" / "chat_history"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert [json.loads(line) for line in kept.read_text().splitlines()] == ["two \nlines", "def f():\n\treturn 1"]

    screen = terminal("chat", url)
    send_line(screen, "\x1b[A\x1b[A", "1: two |lines\n")


def test_tab_completes_commands_and_paths(url: str, terminal: Any, tmp_path: Path):
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "my list.txt").write_text("eggs")
    screen = terminal("chat", url)
    send_line(screen, "/fi\tpa\tmy\t buy", "[my list.txt: eggs] 1: buy\n")


def test_ctrl_c_cancels_the_answer_and_at_the_prompt_clears_the_line(url: str, terminal: Any, run: Run):
    screen = terminal("chat", url, NO_COLOR="1")
    send_line(screen, "slow", "soon ")
    screen.interrupt()
    screen.until("canceled\n")
    screen.until("> ")
    assert "canceled" in run("tasks", url).stdout
    screen.type("never sent")
    screen.until("never sent")
    screen.interrupt_until("press Ctrl-C again to quit\n")
    send_line(screen, "bread", "1: bread\n")
    screen.until("> ")
    screen.interrupt_until("press Ctrl-C again to quit\n")
    screen.until("> ")
    code, rest = screen.interrupted()
    assert (code, "Traceback" in rest) == (130, False)
    assert f"continue with: dragoman chat {url} --context " in rest


def test_the_prompt_of_a_typed_question_says_what_is_wanted(terminal: Any):
    agent = Agent("host", description="Seats guests")

    @agent.skill
    async def seat(ctx: Context, text: str) -> str:
        guests = await ctx.ask("How many guests?", type=int)
        smoke = await ctx.ask("Do they smoke?", type=bool)
        place = await ctx.ask("Where?", type=Literal["in\x1b[31mside", "garden"])
        drink = await ctx.ask("Which drink?", choices=["tea", "wine"])
        return f"{guests} {smoke} {place} {drink}"

    with served(agent) as url:
        screen = terminal("chat", url, NO_COLOR="1")
        send_line(screen, "a table", "How many guests?\n", "whole number? ")
        screen.type("4\n")
        screen.until("Do they smoke?\n")
        screen.until("yes/no? ")
        screen.type("no\n")
        screen.until("Where?\n")
        screen.until("garden/in\\x1b[31mside? ")
        screen.type("garden\n")
        screen.until("Which drink? (tea, wine)\n")
        assert screen.until("? ").endswith("\x1b[?2004h")
        screen.type("tea\n")
        screen.until("4 False garden tea\n")


def test_a_second_ctrl_c_after_the_one_that_canceled_leaves(url: str, terminal: Any):
    screen = terminal("chat", url, NO_COLOR="1")
    send_line(screen, "slow", "soon ")
    screen.interrupt()
    screen.until("canceled\n")
    screen.until("> ")
    code, rest = screen.interrupted()
    assert code == 130
    assert f"continue with: dragoman chat {url} --context " in rest


def test_a_second_ctrl_c_leaves_while_the_agent_does_not_answer_the_first(terminal: Any):
    asked = threading.Event()
    agent = Agent("mule", description="Does not stop")

    @agent.skill
    async def go(text: str) -> AsyncIterator[str]:
        yield "going "
        await asyncio.Event().wait()

    app = agent.app(store="memory:", drain=0)

    async def stubborn(scope: Any, receive: Any, send: Any) -> None:
        if scope.get("path", "").endswith(":cancel"):
            asked.set()
            while (await receive())["type"] != "http.disconnect":
                pass
            return
        await app(scope, receive, send)

    with served(stubborn) as url:
        screen = terminal("chat", url, "--transport", "rest", NO_COLOR="1")
        send_line(screen, "on", "going ")
        screen.interrupt()
        assert asked.wait(20)
        code, rest = screen.interrupted()
    assert code == 130
    assert f"the task is still running; follow it with: dragoman watch {url} " in rest
    assert f"continue with: dragoman chat {url} --context last\n" in rest


def test_a_running_answer_is_taken_up_with_its_conversation(url: str, run: Run, terminal: Any, gate: threading.Event):
    run("send", url, "--no-wait", "slow")
    screen = terminal("chat", url, "--context", "last", NO_COLOR="1")
    screen.until("> slow\n")
    screen.until("soon ")
    gate.set()
    screen.until("1: slow\n")
    screen.until("> ")


def test_a_python_without_readline_chats_all_the_same(url: str, terminal: Any, tmp_path: Path):
    (tmp_path / "readline.py").write_text("raise ImportError")
    screen = terminal("chat", url, NO_COLOR="1", PYTHONPATH=f"{tmp_path}:{SOURCE}")
    send_line(screen, "a\\", "... ")
    screen.type("b\n")
    screen.until("1: a|b\n")
    screen.until("> ")
    screen.interrupt_until("press Ctrl-C again to quit\n")
    screen.until("> ")
    screen.type("\x04")
    assert screen.ended()[0] == 0


def test_an_error_is_printed_and_the_conversation_goes_on(terminal: Any):
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
        send_line(screen, "two", "two\n", "two\n")
        send_line(screen, "/quit")
        assert screen.ended()[0] == 0
