"""`dragoman send`, `call` and `watch`: what a pipe gets, what a terminal shows, and how they end."""

from __future__ import annotations

import asyncio
import json
import shlex
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman import Agent, Context, Failed, File, Rejected
from dragoman.outputs import Ask, Done, Replace
from dragoman.testing import served

from .conftest import Run


class Gate:
    """Where a task waits until the test lets it go on."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()

    async def passed(self) -> None:
        self.reached.set()
        await asyncio.to_thread(self.open.wait, 30)


def helper(gate: Gate) -> Agent:
    agent = Agent("helper", description="Helps")

    @agent.skill
    async def plan(ctx: Context, city: str) -> AsyncIterator[str]:
        """Plan a trip to a city."""
        days = await ctx.ask("How many days?", type=int)
        for day in range(1, days + 1):
            yield f"Day {day} in {city}. "

    @agent.skill
    def add(a: int, b: int) -> int:
        return a + b

    @agent.skill
    def split(text: str) -> dict[str, list[str]]:
        return {"words": text.split()}

    @agent.skill
    def export(text: str) -> Iterator[Any]:
        yield {"rows": 3}
        yield Done(text, File(b"log", name="export.txt"))

    @agent.skill
    def fail(why: str) -> str:
        raise Failed(why)

    @agent.skill
    def refuse() -> str:
        raise Rejected("not on Sundays")

    @agent.skill
    async def slow(ctx: Context) -> AsyncIterator[str]:
        yield "one "
        await ctx.progress("half way", done=1, total=2)
        await gate.passed()
        yield "two"

    _add_more(agent)
    return agent


def _add_more(agent: Agent) -> None:
    @agent.skill
    async def permit(ctx: Context) -> str:
        await ctx.ask_auth("Sign in at the bank", url=lambda handle: "https://bank.example/login")
        return "paid"

    @agent.skill
    async def read(ctx: Context) -> str:
        return ", ".join(f"{file.name} {file.media_type} {len(file.bytes)}" for file in ctx.files)


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open.set()


@pytest.fixture
def url(gate: Gate) -> Iterator[str]:
    with served(helper(gate)) as url:
        yield url
        gate.open.set()  # nothing that still waits may hold the server up


def echo() -> Agent:
    async def answer(ctx: Context) -> AsyncIterator[Any]:
        for word in ctx.text.split(" "):
            yield f"{word} "

    return Agent("echo", description="Echoes", run=answer)


def drafting(gate: Gate) -> Agent:
    async def answer(ctx: Context) -> AsyncIterator[Any]:
        yield "a first draft"
        await gate.passed()
        yield Replace("the final text")

    return Agent("writer", description="Writes", run=answer)


def asking_after_text() -> Agent:
    async def answer(ctx: Context) -> AsyncIterator[Any]:
        if ctx.resume is None:
            yield "Tea or coffee. "
            yield Ask("Which?")
        else:
            yield f"Here is your {ctx.resume.text}."

    return Agent("waiter", description="Waits", run=answer)


# -- in a pipe -------------------------------------------------------------------------------------------------------


def test_a_replaced_answer_is_announced_on_stderr(run: Run, gate: Gate):
    gate.open.set()
    with served(drafting(gate)) as url:
        done = run("send", url, "write")
        assert done.stdout == "a first draft\nthe final text\n"
        assert done.stderr == "[the answer begins again]\n"
        only = run("send", url, "write", "--json")
    assert json.loads(only.stdout)["task"]["artifacts"][0]["parts"][0]["text"] == "the final text"


def test_an_open_question_is_printed_with_the_command_that_answers_it(url: str, run: Run):
    asked = run("send", url, "Lisbon")
    assert (asked.returncode, asked.stdout) == (6, "")
    question, line = asked.stderr.splitlines()
    assert question == "dragoman: How many days?"
    typed = shlex.split(line.removeprefix("answer with: dragoman "))
    assert typed[:3] == ["send", url, "--task"]
    answered = run(*(word if word != "…" else "2" for word in typed))
    assert (answered.returncode, answered.stdout) == (0, "Day 1 in Lisbon. Day 2 in Lisbon. \n")


def test_text_before_a_question_is_printed_too(run: Run):
    with served(asking_after_text()) as url:
        done = run("send", url, "hello")
    assert (done.returncode, done.stdout) == (6, "Tea or coffee. \n")
    assert done.stderr.startswith("dragoman: Which?\n")


def test_an_authorization_that_is_missing_is_a_question_too(url: str, run: Run):
    done = run("send", url, "--tool", "permit")
    assert (done.returncode, done.stdout) == (6, "")
    shown = f"dragoman: Sign in at the bank\nhttps://bank.example/login\nthen continue with: dragoman watch {url} "
    assert done.stderr.startswith(shown)


def test_a_closing_message_follows_the_answer_on_stderr(url: str, run: Run):
    done = run("call", url, "export", "text=Exported \x1b[2J")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"rows": 3})
    assert done.stderr.startswith("Exported \ufffd[2J\nfile: export.txt (3 bytes)\nsave with: ")


@pytest.mark.parametrize(("arguments", "says"), [(["fail", "why=no luck"], "no luck"), (["refuse"], "not on Sundays")])
def test_a_task_that_fails_or_is_rejected_says_why_on_stderr(url: str, run: Run, arguments: list[str], says: str):
    done = run("call", url, *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"dragoman: {says}\n")


def test_with_json_the_answer_is_the_task_as_1_0_spells_it(url: str, run: Run):
    done = run("send", url, "--tool", "add", "--arguments", '{"a": 3, "b": 4}', "--json", "--protocol", "0.3")
    task = json.loads(done.stdout)["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert task["artifacts"][0]["parts"][0]["text"] == "7"
    failed = run("call", url, "fail", "why=x", "--json")
    assert failed.returncode == 1
    assert json.loads(failed.stdout)["task"]["status"]["state"] == "TASK_STATE_FAILED"
    asked = run("send", url, "Lisbon", "--json")
    assert asked.returncode == 6
    assert json.loads(asked.stdout)["task"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"


def test_files_and_data_go_along(url: str, run: Run, tmp_path: Path):
    (tmp_path / "a.txt").write_text("abc")
    (tmp_path / "b.bin").write_bytes(b"\0\1")
    done = run("send", url, "--tool", "read", "--file", "a.txt", "--file", "b.bin")
    assert done.stdout == "a.txt text/plain 3, b.bin application/octet-stream 2\n"
    done = run("send", url, "--data", '{"tool": "add", "arguments": {"a": 1, "b": 1}}')
    assert done.stdout == "2\n"


def test_no_wait_prints_the_task_id_for_watch_get_and_cancel(url: str, run: Run, gate: Gate):
    started = run("send", url, "--tool", "slow", "--no-wait")
    assert started.returncode == 0
    task = started.stdout.strip()
    assert gate.reached.wait(30)
    got = run("get", url, task)
    assert (got.returncode, got.stdout) == (0, "one \n")
    assert f"task     {task}\n" in got.stderr
    assert "state    working\n" in got.stderr
    gate.open.set()
    assert run("watch", url, task).stdout == "one two\n"
    ended = run("watch", url, task)
    assert (ended.returncode, ended.stdout) == (0, "one two\n")
    late = run("cancel", url, task)
    assert (late.returncode, late.stdout) == (4, "")


def test_a_canceled_task_ends_its_watcher_with_1(url: str, run: Run, gate: Gate):
    task = run("send", url, "--tool", "slow", "--no-wait").stdout.strip()
    assert gate.reached.wait(30)
    canceled = run("cancel", url, task)
    assert (canceled.returncode, canceled.stdout, canceled.stderr) == (0, "", f"{task} canceled\n")
    watched = run("watch", url, task)
    assert (watched.returncode, watched.stdout, watched.stderr) == (1, "", "dragoman: the task was canceled\n")
    assert json.loads(run("get", url, task, "--json").stdout)["status"]["state"] == "TASK_STATE_CANCELED"


def test_a_webhook_is_asked_for(url: str, run: Run):
    done = run("send", url, "hi", "--push", "http://127.0.0.1:9/hook")
    assert done.returncode == 4
    assert "--push-allow 127.0.0.1" in done.stderr


def test_time_that_is_up_ends_the_command_and_not_the_task(url: str, run: Run, gate: Gate):
    done = run("send", url, "--tool", "slow", "--timeout", "1.5")
    assert (done.returncode, done.stdout) == (3, "one \n")
    line, problem = done.stderr.splitlines()
    assert line.startswith(f"follow the task with: dragoman watch {url} ")
    assert problem == f"dragoman: {url} was not done within 1.5 s"
    gate.open.set()
    assert run(*shlex.split(line.partition("dragoman ")[2])).stdout == "one two\n"


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        (["send", "URL"], "Nothing to send: add TEXT, - for stdin, --tool, --data or --file."),
        (
            ["send", "URL", "x", "--arguments", "{}"],
            "--arguments needs --tool. To send data without a skill, use --data.",
        ),
        (["send", "URL", "--tool", "add", "--arguments", "{a}"], "dragoman: --arguments is not JSON: "),
        (["send", "URL", "--tool", "add", "--arguments", "[]"], "dragoman: --arguments: must be a JSON object"),
        (["send", "URL", "--data", "{"], "dragoman: --data is not JSON: "),
        (
            ["call", "URL", "add", "3"],
            "dragoman: `3` is not an argument: write name=text, or name:=JSON as in count:=3",
        ),
        (["call", "URL", "add", "a:=x"], "dragoman: `a:=x` is not JSON: "),
        (["send", "URL", "x", "--protocol", "7"], "dragoman: protocol '7' is not spoken here"),
    ],
)
def test_a_usage_error_is_printed_before_any_agent_is_called(run: Run, typed: list[str], says: str):
    done = run(*(word.replace("URL", "http://127.0.0.1:1") for word in typed))
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_value_may_have_signs_of_equality(url: str, run: Run):
    assert json.loads(run("call", url, "split", "text=a=b c:=d").stdout) == {"words": ["a=b", "c:=d"]}


# -- on a terminal ---------------------------------------------------------------------------------------------------


def test_a_question_is_asked_on_the_terminal_and_the_task_goes_on(url: str, terminal: Any):
    screen = terminal("send", url, "Lisbon")
    screen.until("How many days?")
    screen.until("> ")
    screen.type("many\n")
    screen.until("How many days?")
    screen.until("> ")
    screen.type("1\n")
    code, rest = screen.ended()
    assert code == 0
    assert "Day 1 in Lisbon. \n" in rest


def test_the_question_is_asked_while_the_answer_goes_into_a_pipe(url: str, terminal: Any):
    screen = terminal("send", url, "Porto", piped=True)
    screen.until("> ")
    screen.type("1\n")
    assert screen.process.stdout.read() == b"Day 1 in Porto. \n"
    assert screen.ended()[0] == 0


def test_end_of_input_at_a_question_leaves_it_open(url: str, terminal: Any):
    screen = terminal("send", url, "Lisbon")
    screen.until("> ")
    screen.type("\x04")
    code, rest = screen.ended()
    assert code == 6
    assert f"answer with: dragoman send {url} --task " in rest


def test_text_appears_as_it_arrives_and_ctrl_c_leaves_the_task_running(url: str, terminal: Any, run: Run, gate: Gate):
    screen = terminal("send", url, "--tool", "slow")
    screen.until("one ")
    assert gate.reached.wait(30)
    screen.interrupt()
    screen.until("the task is still running; follow it with: ")
    code, rest = screen.ended()
    assert code == 130
    assert "Traceback" not in rest
    gate.open.set()
    assert run(*shlex.split(rest)[1:]).stdout == "one two\n"


def test_ctrl_c_ends_a_watcher_and_not_the_task(url: str, terminal: Any, run: Run, gate: Gate):
    task = run("send", url, "--tool", "slow", "--no-wait").stdout.strip()
    assert gate.reached.wait(30)
    screen = terminal("watch", url, task)
    screen.until("one ")
    screen.interrupt()
    code, rest = screen.ended()
    assert (code, rest.strip()) == (130, f"the task is still running; follow it with: dragoman watch {url} {task[:8]}")


def test_a_watcher_answers_the_question_of_the_task_it_watches(url: str, terminal: Any, run: Run):
    task = json.loads(run("send", url, "Faro", "--json").stdout)["task"]["id"]
    assert run("watch", url, task).returncode == 6
    screen = terminal("watch", url, task)
    screen.until("How many days?")
    screen.type("1\n")
    code, rest = screen.ended()
    assert code == 0
    assert "Day 1 in Faro. " in rest


def test_a_text_that_is_replaced_begins_a_new_line_after_a_note(terminal: Any, gate: Gate):
    with served(drafting(gate)) as url:
        screen = terminal("send", url, "write", NO_COLOR="1")
        screen.until("a first draft")
        gate.open.set()
        note = "[the answer begins again]"
        assert screen.ended() == (0, f'\n{note}\nthe final text\ncontinue with: dragoman send {url} --continue "…"\n')


def test_text_before_a_question_is_not_printed_again(terminal: Any):
    with served(asking_after_text()) as url:
        screen = terminal("send", url, "hello", NO_COLOR="1")
        screen.until("Tea or coffee. ")
        screen.until("Which?")
        screen.type("tea\n")
        code, rest = screen.ended()
    assert code == 0
    assert "Here is your tea.\n" in rest
    assert "coffee" not in rest


@pytest.mark.parametrize(("environ", "colored"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
def test_there_are_colors_on_a_terminal_that_wants_them(
    url: str, terminal: Any, environ: dict[str, str], colored: bool
):
    _, shown = terminal("card", url, **environ).ended()
    assert ("\x1b[" in shown) is colored
    assert "helper" in shown
