"""Shows a text on a terminal while it arrives: Markdown rendered block by block, or the text as it is."""

from __future__ import annotations

import re
import shutil
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from dragoman.cli.printing import StyledText, is_plain_terminal, on_terminal, out_live, print_plain
from dragoman.telemetry.printable import replace_controls

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# A text without any of these is no Markdown, or looks the same.
_MARKUP = re.compile(r"[*_`#|>\[~\\&<]|^ {0,3}(?:[-+=]|\d{1,9}[.)])", re.MULTILINE)
# The beginning of a line that may become a heading, a list, a rule, …: it is not shown before it is clear which. Nor is
# the block before it finished until then: `** **` is a rule, but `** ** #` below a table is a row of that table.
_UNDECIDED = re.compile(
    r"""(?:(?:^|\n)[ \t]*(?:
        [-=*_#`~>+|:][-=*_#`~>+|: \t]*  # marks, also of a rule such as `* * *`, and the line below the head of a table
        | `{3,}[^`\n]*  # code begins here, unless there is a backtick after it
        | \d{1,9}[.)][ \t]*
    ))?\r?\Z""",
    re.VERBOSE,
)
# A number may become the next item of a list that has numbers.
_NUMBER, _NUMBERED = re.compile(r"\n[ \t]*\d{1,9}\Z"), re.compile(r"^ {0,3}\d{1,9}[.)]", re.MULTILINE)
_STYLES = re.compile(r"\x1b\[[0-9;]*m")
# The unfinished block is painted again at most this often, and for at most a quarter of the time.
_PAINT_SECONDS, _PAINT_SHARE = 0.03, 4
# A block that is longer is shown as it is, and so is what follows it, or what follows so much text: rendering a
# character takes some 20 µs.
_MAX_BLOCK, _MAX_TEXT = 32_000, 100_000
# Of an unfinished line, only so many characters are kept.
_MAX_LINE = 4_000


def renders_markdown(*, raw: bool = False) -> bool:
    """True when stdout is a terminal with styles, and the user has not asked for the text as it is."""
    has_unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    return on_terminal() and has_unicode and not raw and not is_plain_terminal()


def text_printer(*, raw: bool = False) -> Callable[[str], None]:
    """Return a function that prints a whole text on stdout, Markdown rendered where the terminal can."""
    if not renders_markdown(raw=raw):
        return print_plain

    def print_rendered(text: str) -> None:
        display = TextDisplay(renders=True)
        display.add(text)
        display.end()

    return print_rendered


class ScreenLine(NamedTuple):
    """A line of text with its escape sequences, and how many rows of the screen it takes."""

    text: str
    rows: int = 1


class TextDisplay:
    """Writes a text on stdout as it arrives.

    Where it `renders`, each finished block of Markdown is written once; only the last block, which more text can
    change, is painted over.
    """

    def __init__(self, *, renders: bool) -> None:
        self.renders = renders
        self._overflows = False
        self._source = ""
        self._rendered = 0
        self._is_stale = False
        self._lines: list[ScreenLine] = []
        self._columns: int = 0
        self._next_paint = 0.0
        self._last_line = ""

    @property
    def column(self) -> int | None:
        """The column of the cursor, 0 at the beginning of a line; None when it is at the end of a full row."""
        from rich.cells import cell_len

        line = _STYLES.sub("", self._lines[-1].text) if self._lines else self._last_line.expandtabs()
        if not line:
            return 0
        return cell_len(replace_controls(line)) % shutil.get_terminal_size().columns or None

    def add(self, text: str) -> None:
        """Show more of the text."""
        if not self.renders or self._overflows:
            self._write(text)
            return
        self._source += text
        self._is_stale = True
        if time.monotonic() >= self._next_paint:
            self.flush()

    def flush(self) -> None:
        """Paint text that has arrived since the last time."""
        if not self._is_stale:
            return
        start = time.monotonic()
        while True:  # what an agent sends at once may be long
            size = len(self._source)
            self._paint(_decided(self._source[:_MAX_BLOCK]))
            if len(self._source) <= _MAX_BLOCK:
                break
            if len(self._source) == size or self._rendered > _MAX_TEXT:
                self._overflow()
                break
        now = time.monotonic()
        self._next_paint = now + max(_PAINT_SECONDS, _PAINT_SHARE * (now - start))

    def end(self) -> None:
        """Show all of the text and end its last line. What is written next is another text."""
        self.flush()
        if self._source:
            self._paint(self._source)
        if self._lines or self._last_line:
            out_live("\n")
        self._lines, self._source, self._last_line, self._overflows, self._rendered = [], "", "", False, 0

    def _overflow(self) -> None:
        """Show the text so far, and from now on text as it is."""
        end = self._source.rfind("\n", 0, _MAX_BLOCK) + 1 or _MAX_BLOCK
        rest, self._source = self._source[end:], self._source[:end]
        breaks = len(self._source) - len(self._source.rstrip("\n"))
        self._paint(self._source)
        self._last_line = _STYLES.sub("", self._lines[-1].text) if self._lines else ""
        self._lines, self._source, self._overflows = [], "", True
        self._write("\n" * breaks + rest)

    def _write(self, text: str) -> None:
        """Write text as it is."""
        out_live(text)
        before, newline, last = text.rpartition("\n")
        self._last_line = last if newline else self._last_line + before + last
        if len(self._last_line) > _MAX_LINE:
            # Whole rows do not matter; a pipe has none.
            columns = (self.column or shutil.get_terminal_size().columns) if on_terminal() else 1
            self._last_line = " " * columns

    def _paint(self, source: str) -> None:
        """Paint the text, and forget the blocks that are finished. `source` is the text without its undecided end."""
        self._is_stale = False
        size = shutil.get_terminal_size()
        columns, height = size.columns, size.lines
        if self._lines and columns != self._columns:
            # The terminal has wrapped the lines anew: what is where is unclear.
            out_live("\n")
            self._lines = []
        self._columns = columns
        undecided = self._source[len(source) :]
        painted, finished, rest = _layout(replace_controls(source), columns)
        out_live(StyledText(repaint(self._lines, painted, height)))
        self._rendered += len(source) - len(rest)
        self._lines, self._source = painted[finished:], rest + undecided


def _decided(source: str) -> str:
    """Return a text without an end whose meaning, or that of the block before it, depends on what follows."""
    decided = _UNDECIDED.sub("", source)
    return _NUMBER.sub("", decided) if _NUMBERED.search(decided) else decided


def _layout(source: str, columns: int) -> tuple[list[ScreenLine], int, str]:
    """Lay out a text in lines. Returns also how many of them are final, and the source of the others."""
    lines = source.split("\n")
    painted: list[ScreenLine] = []
    start = finished = 0
    for start, end, block in _split(source, lines, columns):
        if painted:
            blank = next((count for count, line in enumerate(reversed(lines[:start])) if line.strip()), 0)
            painted += [ScreenLine("")] * max(blank, 1)
        finished = len(painted)
        painted += block if block is not None else _plain_lines(lines[start:end], columns)
    return painted, finished, "\n".join(lines[start:])


def _split(source: str, lines: list[str], columns: int) -> list[tuple[int, int, list[ScreenLine] | None]]:
    """Split a text into blocks: their first line, the one after their last, and how they look unless they are plain."""
    if not _MARKUP.search(source):
        return [(*span, None) for span in _paragraphs(lines)]
    from dragoman.cli.talk import markdown

    blocks: list[tuple[int, int, list[ScreenLine] | None]] = []
    for block in markdown.split_blocks(source):
        end = block.end
        while end > block.start + 1 and not lines[end - 1].strip():
            end -= 1
        rendered = None
        if not markdown.is_plain(block, lines[block.start : end]):
            try:
                rendered = [ScreenLine(line) for line in markdown.render(block, columns)] or None
            except Exception:  # noqa: BLE001 - whatever an agent writes, it is shown
                rendered = None
        blocks.append((block.start, end, rendered))
    return blocks


def _paragraphs(lines: list[str]) -> list[tuple[int, int]]:
    """Return where lines that are not blank begin and end."""
    spans: list[tuple[int, int]] = []
    for number, line in enumerate(lines):
        if not line.strip():
            continue
        if spans and spans[-1][1] == number:
            spans[-1] = (spans[-1][0], number + 1)
        else:
            spans.append((number, number + 1))
    return spans


def _plain_lines(lines: Sequence[str], columns: int) -> list[ScreenLine]:
    from rich.cells import cell_len

    expanded = [line.expandtabs() for line in lines]
    return [ScreenLine(line, max(1, -(-cell_len(line) // columns))) for line in expanded]


def repaint(before: list[ScreenLine], after: list[ScreenLine], height: int) -> str:
    """Return what to write to turn some lines on the screen into others. The cursor is at the end of the last line.

    Lines that are above the top of the screen stay as they are.
    """
    if not before:
        return _joined(after)
    same = 0
    for old, new in zip(before, after, strict=False):
        if old != new:
            break
        same += 1
    # The cursor ends up where the last line does, so that line has to be written.
    same = min(same, max(len(after) - 1, 0)) if len(after) < len(before) else same
    if same == len(before):
        return "".join([f"\n{line.text}" for line in after[same:]])
    if same == len(before) - 1 < len(after) and after[same].text.startswith(before[same].text):
        return after[same].text[len(before[same].text) :] + "".join([f"\n{line.text}" for line in after[same + 1 :]])
    rows = sum([line.rows for line in before[same:]])
    # Not in the first row: tmux keeps the whole screen in its history when that is erased from there.
    while rows >= height and same < len(before) - 1:
        rows -= before[same].rows
        same += 1
    if rows >= height:  # one line fills the screen
        return f"\n{_joined(after[same:])}"
    erase = f"\x1b[{rows - 1}A\r\x1b[J" if rows > 1 else "\r\x1b[K"
    return f"{erase}{_joined(after[same:])}"


def _joined(lines: Sequence[ScreenLine]) -> str:
    return "\n".join([line.text for line in lines])
