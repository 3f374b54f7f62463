"""The line of progress: what is in it, and that it fits."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from dragoman.cli.talk.progress import format_elapsed, format_line, shows_progress
from dragoman.model.message import Progress

BAR = ("#", "-")


def line(progress: Progress | None, room: int = 79) -> str:
    return "".join(format_line("* working 3s", progress, room, BAR))


@pytest.mark.parametrize(
    ("progress", "shown"),
    [
        (None, ""),
        (Progress("packing"), "  packing"),
        (Progress("packing\n  the bags\x1b[2J"), "  packing the bags\\x1b[2J"),
        (Progress("packing", 2, 4), "  packing  ##########----------  2/4"),
        (Progress("", 1, 4), "  #####---------------  1/4"),
        (Progress("packing", 0.5, 1), "  packing  ##########----------  50%"),
        (Progress("packing", 30, 100), "  packing  ######--------------  30%"),
        (Progress("bag (2/4)", 2, 4), "  bag (2/4)  ##########----------"),
        (Progress("packing", 9, 4), "  packing  ####################  9/4"),
        (Progress("packing", -1, 4), "  packing  --------------------  -1/4"),
        (Progress("packing", 7), "  packing  7"),
        (Progress("packing", 7, 0), "  packing  7"),
        (Progress("packing", None, 4), "  packing"),
    ],
)
def test_it_has_the_text_a_bar_and_the_numbers(progress: Progress | None, shown: str) -> None:
    assert line(progress) == f"* working 3s{shown}"


def test_a_progress_line_is_cut_to_the_width_of_the_terminal() -> None:
    progress = Progress("packing all of the bags", 2, 4)
    assert line(progress, 60) == "* working 3s  packing all of the…  ##########----------  2/4"
    assert line(progress, 42) == "* working 3s  ##########----------  2/4"
    assert line(progress, 30) == "* working 3s  packing al…  2/4"
    assert line(progress, 9) == "* working"


numbers = st.floats(0, 9) | st.none()


@given(st.builds(Progress, st.text("ab 日本👩\u200d🚀é", max_size=60), numbers, numbers), st.integers(1, 90))
def test_it_is_never_longer_than_the_row(progress: Progress, room: int) -> None:
    assert cell_len(line(progress, room)) <= room


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.9, "0s"), (59.9, "59s"), (60, "1m 00s"), (125, "2m 05s"), (3600, "1h 00m"), (7380, "2h 03m")],
)
def test_the_time_is_short(seconds: float, text: str) -> None:
    assert format_elapsed(seconds) == text


class Stream(io.StringIO):
    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._is_terminal = terminal

    def isatty(self) -> bool:
        return self._is_terminal


@pytest.mark.parametrize(
    ("stdout", "stderr", "term", "shows"),
    [
        (True, True, "xterm", True),
        (False, True, "xterm", False),  # into a pager, it may be
        (True, False, "xterm", False),
        (True, True, "dumb", False),
    ],
)
def test_it_is_shown_on_terminals_only(
    monkeypatch: pytest.MonkeyPatch, stdout: bool, stderr: bool, term: str, shows: bool
) -> None:
    monkeypatch.setenv("TERM", term)
    with redirect_stdout(Stream(terminal=stdout)), redirect_stderr(Stream(terminal=stderr)):
        assert shows_progress() is shows
