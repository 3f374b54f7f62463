"""Commands in surroundings that are not as usual: closed streams, odd encodings, a folder that is gone."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.command import DRAGOMAN, clean_environment

from dragoman import Agent, Context, File
from dragoman.testing import served

from .conftest import Typed


def agent() -> Agent:
    agent = Agent("echo", description="Repeats")

    @agent.skill(default=True)
    async def echo(ctx: Context, text: str) -> AsyncIterator[str | File]:
        if text == "ask":
            text = await ctx.ask("What?")
        yield f"{text} …"
        for _ in range({"file": 1, "files": 2}.get(text, 0)):
            yield File(b"x", name="plan.md")
        yield "".join(file.name or "" for file in ctx.files)

    return agent


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served(agent()) as url:
        yield url


@pytest.mark.parametrize(("words", "code"), [(("send", "ask"), 6), (("send", "-"), 2), (("chat",), 0)])
def test_streams_may_be_closed(url: str, tmp_path: Path, words: tuple[str, ...], code: int) -> None:
    command = ["sh", "-c", '"$@" <&- >&-', "sh", *DRAGOMAN, words[0], url, *words[1:]]
    ended = subprocess.run(command, env=clean_environment(tmp_path), stderr=subprocess.PIPE, timeout=30, check=False)
    assert ended.returncode == code
    beginnings = {0: b"", 2: b"Usage: ", 6: b"dragoman: What?\n"}
    assert ended.stderr.startswith(beginnings[code])


def test_a_character_that_the_encoding_lacks_is_a_question_mark(
    typed: Typed, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="latin-1"))
    assert typed("send", url, "é").code == 0
    assert written.getvalue() == b"\xe9 ?\n"


def test_a_full_disk_is_one_sentence(typed: Typed, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        ended = typed("send", url, "hello")
    assert ended == (1, "", "dragoman: No space left on device: the output cannot be written\n")


def test_a_folder_that_is_gone_is_one_sentence(typed: Typed, url: str, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    ended = typed("send", "hello")
    assert ended == (2, "", "dragoman: the current folder does not exist any more: change to another one\n")


def test_the_name_of_a_file_need_not_be_unicode(typed: Typed, url: str, tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"\xff plan.md")
    path.write_text("x")
    assert typed("send", url, "hello", "--file", str(path)) == (0, "hello …? plan.md\n", "")


def test_equal_files_are_listed_each(typed: Typed, url: str) -> None:
    assert typed("send", url, "files").err.splitlines()[:2] == ["file: plan.md (1 byte)"] * 2


def test_a_folder_that_cannot_be_is_asked_for_again(terminal: Callable[..., Any], url: str) -> None:
    command = terminal("send", url, "file")
    for folder in ("~nobody-here/x", "x" * 300, "nowhere"):
        command.until("[y/N/folder] ")
        command.type(f"{folder}\n")
        command.until("is not a folder")
    command.until("[y/N/folder] ")
    command.type(".\n")
    command.until("saved plan.md")
    assert command.ended()[0] == 0


def test_an_answer_need_not_be_unicode(terminal: Callable[..., Any], url: str) -> None:
    command = terminal("send", url, "ask")
    command.until("> ")
    command.type(b"caf\xe9\n")
    command.until("caf\N{REPLACEMENT CHARACTER} …")
    assert command.ended()[0] == 0


def test_ctrl_c_at_a_question_ends_its_line(terminal: Callable[..., Any], url: str) -> None:
    command = terminal("send", url, "ask")
    command.until("> ")
    assert command.interrupt_until("answer with: ").endswith("\n")
    assert command.ended()[0] == 130
