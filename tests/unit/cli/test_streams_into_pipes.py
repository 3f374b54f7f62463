"""`dragoman send` into a pipe: text as it arrives, also of a task that fails, and a reader that goes away."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.command import DRAGOMAN, clean_environment

from dragoman import Agent, Context, Failed
from dragoman.testing import served

from .conftest import PATIENCE, Run


class Writer:
    """An agent that writes a line, waits until the test has read it, and goes on."""

    def __init__(self) -> None:
        self.agent = Agent("writer")
        self.was_read = threading.Event()
        self.agent.skill(default=True)(self.write)
        self.agent.skill(self.fail)
        self.agent.skill(self.mix)
        self.agent.skill(self.echo)

    def write(self, text: str) -> Iterator[str]:
        yield f"one {text}\nand"
        assert self.was_read.wait(PATIENCE)
        yield " two\n"
        for number in range(2_000):
            yield f"{number} {'x' * 100}\n"

    def fail(self) -> Iterator[str]:
        yield "half of it"
        raise Failed("the rest is lost")

    def mix(self) -> Iterator[object]:
        yield "first "
        yield {"n": 1}
        yield "then"

    async def echo(self, ctx: Context, a: int = 0, b: int = 0) -> str:
        return f"{a + b}"


@pytest.fixture
def writer() -> Writer:
    return Writer()


@pytest.fixture
def url(writer: Writer) -> Iterator[str]:
    with served(writer.agent) as url:
        yield url
        writer.was_read.set()


def started(folder: Path, *words: str) -> subprocess.Popen[bytes]:
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([*DRAGOMAN, *words], cwd=folder, env=clean_environment(folder), **streams)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "options", [[], ["--raw"], ["--protocol", "0.3"], ["--protocol", "0.3", "--transport", "rest"]]
)
def test_a_pipe_gets_text_as_it_arrives(url: str, writer: Writer, tmp_path: Path, options: list[str]) -> None:
    with started(tmp_path, "send", url, "Faro", *options) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"one Faro\n"  # the agent waits until this has come
        assert process.stdout.read(3) == b"and"
        writer.was_read.set()
        assert process.stdout.readline() == b" two\n"
        assert process.stdout.read().endswith(b"1999 " + b"x" * 100 + b"\n")
        assert process.wait(PATIENCE) == 0


def test_a_reader_that_goes_away_ends_it_quietly(url: str, writer: Writer, tmp_path: Path) -> None:
    with started(tmp_path, "send", url, "Faro") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        writer.was_read.set()
        assert process.stderr.read() == b""
        assert process.wait(PATIENCE) == 1


def test_a_reader_that_reads_nothing_ends_it_quietly(url: str, tmp_path: Path) -> None:
    with started(tmp_path, "card", url) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(PATIENCE) == 1


def test_the_text_of_a_task_that_fails_has_been_printed(url: str, run: Run) -> None:
    done = run("send", url, "--tool", "fail")
    assert (done.returncode, done.stdout, done.stderr) == (1, "half of it\n", "dragoman: the rest is lost\n")


def test_data_follows_the_text(url: str, run: Run) -> None:
    done = run("send", url, "--tool", "mix")
    assert (done.returncode, done.stdout) == (0, 'first then\n{\n  "n": 1\n}\n')


def test_data_for_a_skill_is_its_arguments(url: str, run: Run) -> None:
    assert run("send", url, "--tool", "echo", "--data", '{"a": 3, "b": 4}').stdout == "7\n"
    done = run("send", url, "--tool", "echo", "--data", "[3]")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "dragoman: --data: with --tool it is the arguments of the skill, which are a JSON object, as in '{\"a\": 3}'\n"
    )
    both = run("send", url, "--tool", "echo", "--data", "{}", "--arguments", "{}")
    assert both.returncode == 2
    assert "not both" in both.stderr
