"""An answer on a terminal while it arrives: progress, Markdown, files."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.terminal import screen_of

from dragoman import Agent, Context, File
from dragoman.testing import served

from .conftest import Run

TITLE = "# A *plan*\n"


class Steps:
    """Where the agent waits, one step after the other."""

    def __init__(self) -> None:
        self._semaphore = threading.Semaphore(0)

    def go_on(self, steps: int = 1) -> None:
        self._semaphore.release(steps)

    async def wait(self) -> None:
        await asyncio.to_thread(self._semaphore.acquire, timeout=30)


def planner(steps: Steps) -> Agent:
    agent = Agent("planner", description="Plans")

    @agent.skill(default=True)
    async def plan(ctx: Context, text: str) -> AsyncIterator[str | File]:
        await ctx.progress("packing", done=1, total=4)
        await steps.wait()
        yield TITLE
        yield "\nwith **one"
        await ctx.progress("writing\x1b[2J", done=30, total=100)
        await steps.wait()
        yield " word**"
        yield File(b"x" * 1500, name="../plan.md")
        await steps.wait()
        yield "Done."

    @agent.skill
    def paint() -> list[File]:
        link = File(url="https://example.org/c.pdf", name="c.pdf")
        return [File(b"\x89PNG", name="dot.png"), File(b"", name=".bashrc"), link]

    return agent


@pytest.fixture
def steps() -> Steps:
    return Steps()


@pytest.fixture
def url(steps: Steps) -> Iterator[str]:
    with served(planner(steps)) as url:
        yield url
        steps.go_on(100)


# -- progress and Markdown ---------------------------------------------------------------------------------------------


def test_a_bar_is_drawn_and_erased_and_markdown_is_rendered(url: str, steps: Steps, terminal: Any) -> None:
    shown = terminal("send", url, "Lisbon")
    first = shown.until("1/4")
    assert "working" in first
    assert "packing" in first
    assert "━━━━━" in first
    steps.go_on()
    below = shown.until("30%")
    # It is below the text, in which nothing is lost.
    assert screen_of(f"{first}1/4{below}").splitlines()[:3] == ["A plan", "", "with **one"]
    assert "writing\\x1b[2J" in below
    steps.go_on()
    listed = shown.until("file: ../plan.md (1.5 kB)\n")
    steps.go_on()
    question = shown.until("save plan.md here? [y/N/folder] ")
    everything = f"{first}1/4{below}30%{listed}file: ../plan.md (1.5 kB)\n{question}"
    assert screen_of(everything) == "A plan\n\nwith one word\nfile: ../plan.md (1.5 kB)\nDone.\n"
    shown.type("\n")
    code, rest = shown.ended()
    assert code == 0
    assert "saved" not in rest


@pytest.mark.parametrize(
    ("options", "environ", "spins", "renders"),
    [
        (["--raw"], {}, True, False),
        ([], {"NO_COLOR": "1"}, True, False),
        ([], {"TERM": "dumb"}, False, False),
    ],
)
def test_markdown_is_shown_as_it_is_where_that_is_wanted(
    url: str,
    steps: Steps,
    terminal: Any,
    options: list[str],
    environ: dict[str, str],
    spins: bool,
    renders: bool,
) -> None:
    shown = terminal("send", url, "Lisbon", *options, **environ)
    before = shown.until("1/4") if spins else ""
    steps.go_on(3)
    before += shown.until("save plan.md here?")
    assert ("working" in before) is spins
    assert "# A *plan*\n\nwith **one" in before
    assert "\x1b[1m" not in before
    shown.type("n\n")
    assert shown.ended()[0] == 0


def test_a_pipe_gets_the_text_and_no_progress_and_needs_no_rich(url: str, steps: Steps, run: Run) -> None:
    steps.go_on(3)
    done = run("send", url, "Lisbon", PYTHONPROFILEIMPORTTIME="1")
    assert done.stdout == f"{TITLE}\nwith **one word**Done.\n"
    texts = [line for line in done.stderr.splitlines() if not line.startswith("import time:")]
    assert texts[0] == "file: ../plan.md (1.5 kB)"
    assert texts[1].startswith(f"save with: dragoman get {url} ")
    assert len(texts) == 2
    assert "rich" not in done.stderr.replace(texts[1], "")
    assert "markdown_it" not in done.stderr


def test_with_json_nothing_is_drawn(url: str, steps: Steps, terminal: Any) -> None:
    steps.go_on(3)
    code, shown = terminal("send", url, "Lisbon", "--json").ended()
    assert code == 0
    assert shown.startswith("{\n")
    assert shown.endswith("}\n")


# -- files -------------------------------------------------------------------------------------------------------------


def test_files_are_saved_where_the_user_says(url: str, terminal: Any, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "dot.png").write_bytes(b"mine")
    shown = terminal("call", url, "paint")
    assert "file: dot.png (4 bytes)\nfile: .bashrc (0 bytes)\nfile: c.pdf, at https://example.org/c.pdf\n" in (
        shown.until("save 2 files here? [y/N/folder] ")
    )
    shown.type("nowhere\n")
    shown.until("nowhere is not a folder: type y to save here, or Enter to skip\n")
    shown.type("out\n")
    code, rest = shown.ended()
    assert code == 0
    assert "saved out/dot-1.png (4 bytes)\nsaved out/bashrc (0 bytes)\n" in rest
    assert (tmp_path / "out" / "dot.png").read_bytes() == b"mine"
    assert (tmp_path / "out" / "dot-1.png").read_bytes() == b"\x89PNG"


def test_yes_saves_in_this_folder_and_nothing_is_saved_without_it(url: str, terminal: Any, tmp_path: Path) -> None:
    for answer, names in (("\x04", []), ("Y\n", ["bashrc", "dot.png"])):
        shown = terminal("send", url, "--tool", "paint")
        shown.until("[y/N/folder] ")
        shown.type(answer)
        assert shown.ended()[0] == 0
        assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == names


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_save_saves_files_without_a_question(url: str, run: Run, tmp_path: Path, options: list[str]) -> None:
    done = run("send", url, "--tool", "paint", "--save", "new/out", *options)
    assert done.returncode == 0
    assert done.stderr == (
        "saved new/out/dot.png (4 bytes)\nsaved new/out/bashrc (0 bytes)\n"
        "not saved: c.pdf, at https://example.org/c.pdf\n"
    )
    assert sorted(path.name for path in (tmp_path / "new" / "out").iterdir()) == ["bashrc", "dot.png"]


def test_the_hint_saves_the_files_later(url: str, run: Run, tmp_path: Path) -> None:
    hint = run("call", url, "paint").stderr.splitlines()[-1].removeprefix("save with: dragoman ").split()
    done = run(*hint)
    assert done.returncode == 0
    assert done.stderr.endswith(
        "saved dot.png (4 bytes)\nsaved bashrc (0 bytes)\nnot saved: c.pdf, at https://example.org/c.pdf\n"
    )
    assert (tmp_path / "dot.png").read_bytes() == b"\x89PNG"
    shown = run(*hint[:-2])
    assert shown.stderr.endswith(f"c.pdf, at https://example.org/c.pdf\nsave with: dragoman {' '.join(hint)}\n")


def test_a_file_in_the_place_of_the_folder_is_an_error_before_anything_is_sent(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run("send", "127.0.0.1:1", "hello", "--save", "file")
    assert done.returncode == 2
    assert "'--save': Directory 'file' is a file." in done.stderr
