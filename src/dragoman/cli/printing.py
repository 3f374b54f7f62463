"""Output of commands: text and data on stdout, everything else on stderr.

Every command writes through `out`, which makes foreign text safe for a terminal.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

import click

from dragoman.model.message import join_paragraphs
from dragoman.model.state import State
from dragoman.model.task import closing_parts
from dragoman.telemetry.printable import format_bytes, json_escaped, one_line, replace_controls

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    from dragoman.dialects.dialect import Result
    from dragoman.model.message import Message
    from dragoman.model.operation import Operation
    from dragoman.model.part import Part
    from dragoman.model.task import Task

_COLORS = {
    State.COMPLETED: "green",
    State.FAILED: "red",
    State.REJECTED: "red",
    State.CANCELED: "yellow",
    State.INPUT_REQUIRED: "magenta",
    State.AUTH_REQUIRED: "magenta",
}


class StyledText(str):
    """Text with escape sequences of this program, such as colors; foreign text in it is already safe.

    Joined with other text it becomes a plain string and loses its colors: pass it to `out` as a separate piece.
    """


# Clears the current line, for progress that is overwritten.
CLEAR = StyledText("\r\x1b[K")


def is_plain_terminal() -> bool:
    """True when the user wants no colors, or the terminal has none."""
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"


def on_terminal(*, err: bool = False) -> bool:
    """True when stdout, or stderr, is a terminal."""
    return (sys.stderr if err else sys.stdout).isatty()


def colored(
    text: str, color: str | None = None, *, err: bool = False, bold: bool = False, dim: bool = False
) -> StyledText:
    """Return a text in a color, if the output is a terminal that wants colors."""
    text = safe_text(text, err=err)
    if not on_terminal(err=err) or is_plain_terminal():
        return StyledText(text)
    return StyledText(click.style(text, fg=color, bold=bold or None, dim=dim or None))


def safe_text(text: str, *, err: bool = False) -> str:
    """Replace control characters, for a terminal or stderr. Text for a pipe on stdout stays as the agent sent it."""
    return replace_controls(text) if err or on_terminal() else text.encode("utf-8", "replace").decode()


def field(text: str, *, err: bool = False) -> str:
    """Return a text for use within a line, such as an id: for a terminal or stderr, control characters are escaped."""
    return one_line(text) if err or on_terminal() else text


class LiveOutput(Protocol):
    """Output that is being written piece by piece, and may have a line that is not ended."""

    def end_line(self) -> None:
        """End the line, so that something else can be written."""
        ...


_live: list[LiveOutput] = []


@contextmanager
def interrupting(live: LiveOutput) -> Generator[None]:
    """Within the block, everything that is written with `out` first ends the line of `live`."""
    _live.append(live)
    try:
        yield
    finally:
        _live.remove(live)


def out(*pieces: str, err: bool = False, nl: bool = True) -> None:
    """Write a line. Every piece that is no `StyledText` is treated as foreign, and its control characters replaced."""
    if _live:
        live = _live.pop()  # it writes too
        try:
            live.end_line()
        finally:
            _live.append(live)
    out_live(*pieces, err=err, nl=nl)


def out_live(*pieces: str, err: bool = False, nl: bool = False) -> None:
    """Write a piece of live output: as `out`, but its line goes on."""
    text = "".join(piece if isinstance(piece, StyledText) else safe_text(piece, err=err) for piece in pieces)
    # Without `color`, click would remove escape sequences from an agent's answer in a pipe.
    click.echo(text, nl=nl, err=err, color=True)


def say(*pieces: str) -> None:
    """Write a line to stderr."""
    out(*pieces, err=True)


def warn(text: str) -> None:
    """Write a warning to stderr."""
    say(f"warning: {text}")


def state_name(state: State) -> str:
    """Format a state: `input-required`."""
    return state.name.lower().replace("_", "-")


def styled_state(state: State, *, err: bool = False) -> StyledText:
    """Format a state in its color."""
    return colored(state_name(state), _COLORS.get(state, "cyan"), err=err)


# -- answers ---------------------------------------------------------------------------------------------------------


def print_json(value: Any, *, compact: bool = False) -> None:
    """Print a value, or JSON bytes, as JSON on stdout. Control characters are escaped."""
    decoded: Any = json.loads(value) if isinstance(value, bytes) else value
    out(json_escaped(json.dumps(decoded, ensure_ascii=False, indent=None if compact else 2)))


def print_result(operation: Operation, result: Result, *, compact: bool = False) -> None:
    """Print the result of an operation on stdout as A2A 1.0 JSON."""
    from dragoman.dialects.v1.dialect import V1_0

    print_json(V1_0.write_result(operation, result), compact=compact)


def print_answer(
    answer: Task | Message, print_text: Callable[[str], None] | None = None, *, once: bool = False
) -> None:
    """Print the text and the data of an answer on stdout in order, data as JSON. Files are for `print_files`.

    The texts of artifacts are joined as they were streamed, those of messages are paragraphs. The closing message of a
    task with artifacts is printed on stderr. With `once`, an artifact that begins with data is printed as that data:
    text beside it is the same for people, as MCP tools send it.
    """
    texts = list[str]()
    artifacts = getattr(answer, "artifacts", ())
    join = "".join if artifacts else join_paragraphs
    print_text = print_text or print_plain
    parts = [part for each in artifacts or (answer,) for part in (_without_repeats(each.parts) if once else each.parts)]
    for part in parts:
        if part.text is not None:
            texts.append(part.text)
        elif part.kind == "data":
            print_text(join(texts))
            texts.clear()
            print_json(part.data)
    print_text(join(texts))
    print_closing(answer)


def _without_repeats(parts: Sequence[Part]) -> Sequence[Part]:
    return [part for part in parts if part.text is None] if parts and parts[0].kind == "data" else parts


def print_closing(answer: Task | Message) -> None:
    """Print the closing message of a task with artifacts on stderr, unless it only repeats the answer.

    Its files are among those of the answer.
    """
    texts = [
        json_escaped(json.dumps(part.data, ensure_ascii=False)) if part.kind == "data" else part.text or ""
        for part in closing_parts(answer)
    ]
    if any(texts):
        say(join_paragraphs(texts))


def print_data(parts: Sequence[Part]) -> None:
    """Print the data of an answer whose text has been printed already."""
    for part in parts:
        if part.kind == "data":
            print_json(part.data)


def print_plain(text: str) -> None:
    """Print a text on stdout, with a line break at its end."""
    if text:
        out(text, nl=not text.endswith("\n"))


def print_files(files: Sequence[Part]) -> None:
    """List files on stderr, with their sizes."""
    for part in files:
        say("file: ", one_line(format_file(part)))


def format_file(part: Part) -> str:
    """Describe a file in one line: `plan.md (1.2 kB)`."""
    name = part.name or ", ".join(filter(None, ("without a name", part.media_type)))
    return f"{name} ({format_bytes(len(part.raw))})" if part.raw is not None else f"{name}, at {part.url}"


def shorten(text: str, width: int) -> str:
    """Return a text as one line of at most `width` characters."""
    line = " ".join(text.split())
    return line if len(line) <= width else f"{line[: width - 1].rstrip()}…"


def utc(at: int) -> str:
    """Format a time in milliseconds since 1970."""
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def print_table(rows: Iterable[tuple[str, ...]], colors: Iterable[str | None] = ()) -> None:
    """Print rows in columns on stdout; the last column is not padded. `colors` are for the second column."""
    table = [tuple(map(one_line, row)) for row in rows]
    widths = (
        [max((len(row[column]) for row in table), default=0) for column in range(len(table[0]) - 1)] if table else []
    )
    cell_colors = [*colors, *([None] * len(table))]
    for row, color in zip(table, cell_colors, strict=False):
        cells = [f"{cell.ljust(width)}  " for cell, width in zip(row, widths, strict=False)]
        cells.append(row[-1])
        while len(cells) > 1 and not cells[-1].strip():
            cells.pop()
        cells[-1] = cells[-1].rstrip()
        out(*(colored(cell, color) if at == 1 and color is not None else cell for at, cell in enumerate(cells)))


def state_color(state: State) -> str:
    """Return the color of a state."""
    return _COLORS.get(state, "cyan")
