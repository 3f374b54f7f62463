"""Records the first run of the README in two real terminals, and writes it as an animated SVG.

`make picture` runs it. The agent and the commands are those of the README; nothing in the picture is typed by hand.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path
from typing import NamedTuple

from pyte.screens import Char
from terminal import Terminal

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs/pictures/first-run.svg"

COLUMNS = 88
# Of the screen. A cell is as wide as most fonts for terminals are at this size; `textLength` makes it so for all.
CELL, LINE, SIZE, MARGIN, TITLE = 8.4, 19, 14, 16, 30
# The longest pause of the picture, and how long a person takes for a key, in seconds.
PAUSE, KEY = 1.2, 0.06
COLORS = {
    "default": "#d6deeb",
    "black": "#637777",
    "red": "#ef5350",
    "green": "#22da6e",
    "brown": "#c5e478",
    "blue": "#82aaff",
    "magenta": "#c792ea",
    "cyan": "#21c7a8",
    "white": "#ffffff",
    "brightblack": "#7f8c98",
}


class Span(NamedTuple):
    """A piece of a line in one style: where it begins, and when it comes and goes."""

    window: int
    row: int
    column: int
    text: str
    color: str
    bold: bool


class Window(Terminal):
    """A terminal with a title, whose screen is recorded."""

    def __init__(self, title: str, rows: int, folder: Path, environment: dict[str, str]) -> None:
        super().__init__(folder, environment, columns=COLUMNS, rows=rows)
        self.title = title

    def spans(self, window: int) -> Iterator[Span]:
        """Yield what is on the screen, piece by piece."""
        for row in range(self.rows):
            line = self.screen.buffer[row]
            start = 0
            while start < COLUMNS:
                end = start + 1
                while end < COLUMNS and _style(line[end]) == _style(line[start]):
                    end += 1
                text = "".join(line[column].data for column in range(start, end))
                indent = len(text) - len(text.lstrip())
                if text.strip():
                    yield Span(window, row, start + indent, text.strip(), *_style(line[start]))
                start = end


def _style(char: Char) -> tuple[str, bool]:
    return COLORS.get(char.fg, COLORS["default"]), char.bold


class Recording:
    """What was on the screens of several terminals, and when."""

    def __init__(self, *terminals: Window) -> None:
        self.terminals = terminals
        self.now = 0.0
        self._visible: dict[Span, float] = {}
        self.spans: list[tuple[Span, float, float | None]] = []

    def wait(self, until: Callable[[], bool], seconds: float = 30) -> None:
        """Record until something is on a screen. Raises TimeoutError."""
        end = time.monotonic() + seconds
        before = time.monotonic()
        while not until():
            if time.monotonic() > end:
                raise TimeoutError("\n".join(terminal.text for terminal in self.terminals))
            if sum(terminal.read(0.01) for terminal in self.terminals):  # not `any`: all of them
                self._advance(time.monotonic() - before)
                before = time.monotonic()

    def pause(self, seconds: float) -> None:
        """Record for some time."""
        self._advance(0)
        end = time.monotonic() + seconds
        before = time.monotonic()
        while (rest := end - time.monotonic()) > 0:
            if sum(terminal.read(min(rest, 0.01)) for terminal in self.terminals):
                self._advance(time.monotonic() - before)
                before = time.monotonic()
        self._advance(time.monotonic() - before)

    def type(self, terminal: Window, text: str) -> None:
        """Type a line as a person does."""
        for key in text:
            terminal.press(key)
            self.pause(KEY)
        terminal.press("\n")

    def _advance(self, seconds: float) -> None:
        self.now += min(seconds, PAUSE)
        current = {span for index, terminal in enumerate(self.terminals) for span in terminal.spans(index)}
        for span in [span for span in self._visible if span not in current]:
            self.spans.append((span, self._visible.pop(span), self.now))
        for span in current:
            self._visible.setdefault(span, self.now)

    def finish(self) -> None:
        """Keep what is on the screens now."""
        self._advance(0)
        self.spans += [(span, start, None) for span, start in self._visible.items()]
        self.spans.sort(key=lambda each: (each[1], each[0]))

    def svg(self) -> str:
        """Return the recording as an SVG that plays once. Without animations it shows the end."""
        width = round(COLUMNS * CELL + 2 * MARGIN)
        heights = [TITLE + terminal.rows * LINE + MARGIN for terminal in self.terminals]
        tops = [sum(heights[:index]) + 12 * index for index in range(len(heights))]
        height = tops[-1] + heights[-1]
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">',
            "<title>An agent is served in one terminal, and called in another</title>",
            "<style>",
            "text{font:" + f"{SIZE}px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;"
            "white-space:pre}",
            ".b{font-weight:bold}.o{opacity:0}",
            "@keyframes i{to{opacity:1}}@keyframes v{from,to{opacity:1}}",
            "@media(prefers-reduced-motion:reduce){.k{opacity:1;animation:none!important}"
            ".g{opacity:0;animation:none!important}}",
            "</style>",
        ]
        for terminal, top, tall in zip(self.terminals, tops, heights, strict=True):
            lines.append(f'<rect y="{top}" width="{width}" height="{tall}" rx="8" fill="#011627"/>')
            lines += [f'<circle cx="{18 + 16 * index}" cy="{top + 15}" r="5" fill="#445"/>' for index in range(3)]
            lines.append(
                f'<text x="{width // 2}" y="{top + 20}" text-anchor="middle" fill="#7f8c98">{escape(terminal.title)}'
                "</text>"
            )
        lines += [_text(*each, top=tops[each[0].window]) for each in self.spans]
        return "\n".join([*lines, "</svg>", ""])


def _text(span: Span, start: float, end: float | None, *, top: int) -> str:
    x, y = MARGIN + span.column * CELL, top + TITLE + (span.row + 1) * LINE - 4
    # What goes again is seen while its animation lasts.
    animation = f"i 1ms {start:.2f}s forwards" if end is None else f"v {end - start:.2f}s {start:.2f}s"
    kind = ("o k" if end is None else "o g") + (" b" if span.bold else "")
    return (
        f'<text class="{kind}" x="{x:.1f}" y="{y}" fill="{span.color}" textLength="{len(span.text) * CELL:.1f}" '
        f'style="animation:{animation}">{escape(span.text)}</text>'
    )


def _readme_agent() -> str:
    found = re.search(r'^```python title="trip.py"\n(.*?)^```$', (ROOT / "README.md").read_text(), re.M | re.S)
    assert found is not None
    return found[1]


def record() -> str:
    """Serve the README's agent and call it. Returns the SVG."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "trip.py").write_text(_readme_agent())
        kept = {key: os.environ[key] for key in ("HOME", "LANG", "USER") if key in os.environ}
        environment = kept | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PS1": r"\[\e[32m\]$\[\e[0m\] ",
            "TERM": "xterm-256color",
            "XDG_STATE_HOME": name,
        }
        server = Window("one terminal", 11, folder, environment)
        caller = Window("another", 7, folder, environment)
        try:
            recording = Recording(server, caller)
            recording.wait(lambda: "$" in server.text and "$" in caller.text)
            recording.type(server, "dragoman serve trip.py")
            recording.wait(lambda: "dragoman send" in server.text)
            recording.pause(1)
            recording.type(caller, "dragoman send Lisbon")
            recording.wait(lambda: "How many days?" in caller.text)
            recording.pause(1)
            recording.type(caller, "3")
            recording.wait(lambda: caller.text.count("$") == 2)
            recording.pause(0.5)
            recording.finish()
        finally:
            for terminal in (caller, server):
                terminal.close()
    return recording.svg()


if __name__ == "__main__":
    PICTURE.write_text(record(), encoding="utf-8")
