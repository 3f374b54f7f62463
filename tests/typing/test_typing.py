"""The typing promise: the files beside this one pass both type checkers, and mistakes do not."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.typing, pytest.mark.timeout(120)]

HERE = Path(__file__).parent
EXAMPLES = sorted(path for path in HERE.glob("*.py") if not path.name.startswith("test_"))

# Each line that ends in `# wrong` must be refused, and no other.
MISTAKES = """\
from collections.abc import AsyncIterator

from dragoman import Agent, Client, Context, Server, State, User, sync
from dragoman.errors import TaskFailed
from dragoman.outputs import Ask
from dragoman.testing import served

agent = Agent("wrong")
Agent(description="has no name")  # wrong
Agent("a", closing="half")  # wrong
Agent("a", color="red")  # wrong


@agent.skill
def add_numbers(a: int, b: int) -> int:
    return a + b


@agent.skill(timeout=5)
async def greet(name: str) -> str:
    return name


@agent.skill(timeout="five")  # wrong
async def slow() -> None: ...


agent.skill(3)  # wrong
agent.skill(ids="x")  # wrong
add_numbers("a", 2)  # wrong
add_numbers(1)  # wrong
text: str = add_numbers(1, 2)  # wrong
Server("agent")  # wrong
Server(agent, prot=8080)  # wrong
agent.serve(port="8080")  # wrong
agent.app(limits={"bodies": 1})  # wrong
Agent.from_a2a("http://127.0.0.1", retry=3)  # wrong
User()  # wrong
State.DONE  # wrong
TaskFailed("without its task")  # wrong
Ask()  # wrong


async def mistakes(ctx: Context, client: Client) -> None:
    await greet(1)  # wrong
    days: str = await ctx.ask("Days?", type=int)  # wrong
    name: int = await ctx.ask("Name?")  # wrong
    await ctx.ask()  # wrong
    ctx.ask("Days?")  # wrong
    number: int = ctx.ask("Days?", type=int)  # wrong
    ctx.ask_auth("Log in")  # wrong
    ctx.once("key", print)  # wrong
    ctx.progress("half")  # wrong
    ctx.artifact("text")  # wrong
    await ctx.progress("half", done="1")  # wrong
    await ctx.artifact("text", title="x")  # wrong
    ctx.task_id = "mine"  # wrong
    await client.send("x", task=3)  # wrong
    await client.send("x", wait="no")  # wrong
    await client.send("x", tools="x")  # wrong
    (await client.send("x")).id  # wrong
    await client.call()  # wrong
    await client.get_task()  # wrong
    async for event in client.stream("x"):
        event.txt  # wrong
    async for piece in client.stream("x").text():
        piece.restart  # wrong
    await client.chat().send("x", tools="x")  # wrong
    client.chat().stream("x", wait=False)  # wrong
    with served(agent) as url:
        url + 1  # wrong
    served(agent, prot=1)  # wrong


def more_mistakes(ctx: sync.Context, client: sync.Client) -> None:
    days: str = ctx.ask("Days?", type=int)  # wrong
    ctx.extensions  # wrong
    sync.Client()  # wrong
    sync.Client(agent, retries="many")  # wrong
    sync.Client(agent, reconnect="never")  # wrong
    client.chat().send("x", tools="x")  # wrong
    client.send("x", wait="no")  # wrong
    client.get_task()  # wrong
    client.stream("x", tools="x")  # wrong


async def run(ctx: str) -> AsyncIterator[str]:
    yield ctx


Agent("a", run=run)  # wrong
"""


@pytest.fixture
def mistakes(tmp_path: Path) -> Path:
    path = tmp_path / "mistakes.py"
    path.write_text(MISTAKES, encoding="utf-8")
    return path


def expected(path: Path) -> list[tuple[str, int]]:
    lines = MISTAKES.splitlines()
    return [(path.name, number) for number, line in enumerate(lines, 1) if line.endswith("# wrong")]


def run(*arguments: str | Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *arguments], capture_output=True, text=True, timeout=50, cwd=HERE, check=False
    )
    assert done.returncode == 1, f"it must find the mistakes:\n{done.stdout}{done.stderr}"
    return done.stdout


def test_mypy_accepts_the_examples_and_refuses_the_mistakes(mistakes: Path, tmp_path: Path) -> None:
    # Of our own settings, only what must not differ: a user has none of them.
    settings = tmp_path / "mypy.ini"
    settings.write_text("[mypy]\nstrict = True\n", encoding="utf-8")
    output = run("mypy", "--config-file", settings, "--cache-dir", tmp_path, *EXAMPLES, mistakes)
    found = re.findall(r"^(.+?):(\d+): error:", output, re.MULTILINE)
    assert sorted({(Path(file).name, int(line)) for file, line in found}) == expected(mistakes), output


def test_basedpyright_accepts_the_examples_and_refuses_the_mistakes(mistakes: Path, tmp_path: Path) -> None:
    settings = tmp_path / "pyrightconfig.json"
    files = [str(path) for path in [*EXAMPLES, mistakes]]
    quiet = {"reportUnusedExpression": "none", "reportUnusedVariable": "none", "reportUnknownMemberType": "none"}
    settings.write_text(json.dumps({"include": files, "typeCheckingMode": "strict", **quiet}), encoding="utf-8")
    output = run("basedpyright", "-p", settings, "--pythonpath", sys.executable, "--outputjson")
    found = [problem for problem in json.loads(output)["generalDiagnostics"] if problem["severity"] == "error"]
    lines = {(Path(problem["file"]).name, problem["range"]["start"]["line"] + 1) for problem in found}
    assert sorted(lines) == expected(mistakes), "\n".join(
        f"{each['range']['start']} {each['message']}" for each in found
    )


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_can_be_imported_too(path: Path) -> None:
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=50, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
