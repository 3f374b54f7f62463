"""The line that shows what an agent is doing: a spinner, its state, the time, and how far it is."""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import TYPE_CHECKING

from dragoman.cli.printing import CLEAR, StyledText, colored, on_terminal, out_live, state_name
from dragoman.telemetry.printable import one_line

if TYPE_CHECKING:
    from dragoman.client.event import Event
    from dragoman.model.message import Progress
    from dragoman.model.state import State

FRAME_SECONDS = 0.1
# An answer that comes at once shows no spinner.
_DELAY_SECONDS = 0.2
_FRAMES, _ASCII_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "-\\|/"
_BAR, _ASCII_BAR = ("━", "─"), ("#", "-")
_BAR_WIDTH = 20
# A longer text fits on no terminal, and the line is drawn ten times a second.
_MAX_TEXT = 2_000


def shows_progress() -> bool:
    """True when stdout and stderr are a terminal that can overwrite a line: a pager would be written over, too."""
    return on_terminal() and on_terminal(err=True) and os.environ.get("TERM") != "dumb"


class ProgressLine:
    """A line on stderr that is overwritten while a task runs, and erased before anything else is written.

    It is drawn at the cursor, or below the cursor's line when that has text.
    """

    def __init__(self) -> None:
        self._has_unicode = (sys.stderr.encoding or "").lower().startswith("utf")
        self._started_at = time.monotonic()
        self._frame = 0
        self._state = "waiting"
        self._progress: Progress | None = None
        self._is_drawn = False
        self._column = 0

    def start(self, state: State | None = None) -> None:
        """Start the time anew, for another message, or for a task in this state."""
        self._started_at, self._progress = time.monotonic(), None
        self._state = "waiting" if state is None else state_name(state)

    def update(self, event: Event) -> None:
        """Take the state and the progress of an event."""
        self._state = state_name(event.state)
        progress = event.progress
        if progress is not None:
            self._progress = progress._replace(text=progress.text[:_MAX_TEXT])

    def draw(self, column: int = 0) -> None:
        """Draw the next frame. `column` is where the cursor is, in the line above."""
        elapsed = time.monotonic() - self._started_at
        if elapsed < _DELAY_SECONDS:
            return
        if self._is_drawn:
            out_live(CLEAR, err=True)
        elif column:
            out_live("\n", err=True)
        if not self._is_drawn:
            self._is_drawn, self._column = True, column
        frames = _FRAMES if self._has_unicode else _ASCII_FRAMES
        self._frame = (self._frame + 1) % len(frames)
        head = f"{frames[self._frame]} {self._state} {format_elapsed(elapsed)}"
        room = shutil.get_terminal_size().columns - 1
        out_live(*format_line(head, self._progress, room, _BAR if self._has_unicode else _ASCII_BAR), err=True)

    def clear(self) -> None:
        """Erase the line, and put the cursor back."""
        if not self._is_drawn:
            return
        out_live(CLEAR, err=True)
        if self._column:
            out_live(StyledText(f"\x1b[A\x1b[{self._column}C"), err=True)
        self._is_drawn = False


def format_line(head: str, progress: Progress | None, room: int, bar: tuple[str, str]) -> list[StyledText]:
    """Format the line in at most `room` columns. The text is cut where it is too long, then the bar left out."""
    from rich.cells import cell_len

    head = _fit(head, room)
    pieces = [colored(head, err=True, dim=True)]
    room -= cell_len(head)
    if progress is None:
        return pieces
    text, measure = one_line(" ".join(progress.text.split())), _format_measure(progress)
    if measure and measure in text:
        measure = ""
    share = _share(progress)
    bar_width = _BAR_WIDTH + 2 if share is not None and room >= _BAR_WIDTH + 2 else 0
    measure_width = len(measure) + 2 if measure and room >= bar_width + len(measure) + 2 else 0
    text_room = room - bar_width - measure_width - 2
    if text and text_room >= 3:
        fitting = _fit(text, text_room)
        pieces.append(colored("  " + (text if fitting == text else f"{_fit(text, text_room - 1)}…"), err=True))
    if share is not None and bar_width:
        filled = round(share * _BAR_WIDTH)
        pieces.append(colored(f"  {bar[0] * filled}", "cyan", err=True))
        pieces.append(colored(bar[1] * (_BAR_WIDTH - filled), err=True, dim=True))
    if measure_width:
        pieces.append(colored(f"  {measure}", err=True))
    return pieces


def _fit(text: str, room: int) -> str:
    """Return as much of the beginning of a text as fits into so many columns."""
    from rich.cells import cell_len

    text = text[: 4 * room]
    while cell_len(text) > room:
        text = text[:-1]
    return text


def format_elapsed(seconds: float) -> str:
    """Format a time: `12s`, `1m 05s`, `2h 03m`."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    if hours:
        return f"{hours}h {minute:02}m"
    return f"{minutes}m {second:02}s" if minutes else f"{second}s"


def _share(progress: Progress) -> float | None:
    """Return how much of the work is done, from 0 to 1; None when the agent does not say."""
    if progress.done is None or progress.total is None or progress.total <= 0:
        return None
    return min(max(progress.done / progress.total, 0.0), 1.0)


def _format_measure(progress: Progress) -> str:
    """Format the numbers: `2/4` for things that can be counted, else `50%`, or `2` when there is no total."""
    if progress.done is None:
        return ""
    share = _share(progress)
    if share is None:
        return f"{progress.done:g}"
    is_count = float(progress.done).is_integer() and float(progress.total or 0).is_integer() and progress.total != 100
    return f"{progress.done:g}/{progress.total:g}" if is_count and progress.total != 1 else f"{share:.0%}"
