"""How answers are printed: text and data on stdout, everything else on stderr.

Every command writes through `out`, which takes out of foreign text what would command a terminal.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from dragoman.model.state import State
from dragoman.telemetry.printable import json_escaped, one_line, replace_controls

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dragoman.dialects.dialect import Result
    from dragoman.model.operation import Operation
    from dragoman.model.part import Part

_COLORS = {
    State.COMPLETED: "green",
    State.FAILED: "red",
    State.REJECTED: "red",
    State.CANCELED: "yellow",
    State.INPUT_REQUIRED: "magenta",
    State.AUTH_REQUIRED: "magenta",
}


class StyledText(str):
    """What this program itself has to say to a terminal, such as a colour; foreign text in it has been cleaned.

    Joined with other text it is no longer one, and is cleaned: pass it to `out` as a piece of its own.
    """


# The line that progress is written over, emptied.
CLEAR = StyledText("\r\x1b[K")


def on_terminal(*, err: bool = False) -> bool:
    """True when somebody looks at stdout, or at stderr."""
    return (sys.stderr if err else sys.stdout).isatty()


def colored(
    text: str, color: str | None = None, *, err: bool = False, bold: bool = False, dim: bool = False
) -> StyledText:
    """A text in a colour, where there is a terminal that wants one."""
    text = visible(text, err=err)
    if not on_terminal(err=err) or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return StyledText(text)
    return StyledText(click.style(text, fg=color, bold=bold or None, dim=dim or None))


def visible(text: str, *, err: bool = False) -> str:
    """A text without what would command a terminal. What goes through a pipe to stdout is the agent's, as it is."""
    return replace_controls(text) if err or on_terminal() else text.encode("utf-8", "replace").decode()


def field(text: str, *, err: bool = False) -> str:
    """A text that stands in a line, such as an id: where it would be cleaned, its controls are spelled out."""
    return one_line(text) if err or on_terminal() else text


def out(*pieces: str, err: bool = False, nl: bool = True) -> None:
    """Write a line. All that is no `Styled` is taken for foreign: see `visible`."""
    text = "".join(piece if isinstance(piece, StyledText) else visible(piece, err=err) for piece in pieces)
    # click would take colours out of what goes into a pipe, and the answer is the agent's.
    click.echo(text, nl=nl, err=err, color=True)


def say(*pieces: str) -> None:
    """A line for people, on stderr."""
    out(*pieces, err=True)


def warn(text: str) -> None:
    """A warning, on stderr."""
    say(f"warning: {text}")


def state_name(state: State) -> str:
    """A state as people write it: `input-required`."""
    return state.name.lower().replace("_", "-")


def styled_state(state: State, *, err: bool = False) -> StyledText:
    """A state in its colour."""
    return colored(state_name(state), _COLORS.get(state, "cyan"), err=err)


# -- answers ---------------------------------------------------------------------------------------------------------


def print_json(value: Any, *, compact: bool = False) -> None:
    """A document on stdout; text that is JSON already is taken as such. Controls in it are escaped, as JSON does."""
    decoded: Any = json.loads(value) if isinstance(value, bytes) else value
    out(json_escaped(json.dumps(decoded, ensure_ascii=False, indent=None if compact else 2)))


def print_result(operation: Operation, result: Result, *, compact: bool = False) -> None:
    """What an operation gave, on stdout, as A2A 1.0 spells it."""
    from dragoman.dialects.v1.dialect import V1_0

    print_json(V1_0.write_result(operation, result), compact=compact)


def print_parts(parts: Sequence[Part]) -> None:
    """An answer on stdout, its parts in their order: texts joined, data as JSON. Files are named on stderr."""
    text = ""
    for part in parts:
        if part.text is not None:
            text += part.text
        elif part.kind == "data":
            print_text(text)
            text = ""
            print_json(part.data)
    print_text(text)
    print_files(parts)


def print_rest(parts: Sequence[Part]) -> None:
    """What an answer has beside its text, which has been printed already."""
    for part in parts:
        if part.kind == "data":
            print_json(part.data)
    print_files(parts)


def print_text(text: str) -> None:
    """A text on stdout, ended with a line break if it has none."""
    if text:
        out(text, nl=not text.endswith("\n"))


def print_files(parts: Sequence[Part]) -> None:
    """The files of an answer, by name, type and size, on stderr."""
    for part in parts:
        if part.kind in ("raw", "url"):
            say(f"file: {one_line(format_file(part))}")


def format_file(part: Part) -> str:
    """A file in one line."""
    facts = [part.filename or "without a name", part.media_type or "of no type"]
    facts.append(f"{len(part.raw)} bytes" if part.raw is not None else f"at {part.url}")
    return ", ".join(facts)


def first_words(text: str, width: int) -> str:
    """The beginning of a text, in one line."""
    line = " ".join(text.split())
    return line if len(line) <= width else f"{line[: width - 1].rstrip()}…"


def utc(at: int) -> str:
    """A time, given in milliseconds since 1970."""
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def print_table(rows: Iterable[tuple[str, ...]], colors: Iterable[str | None] = ()) -> None:
    """Rows in columns, on stdout; the last column is as wide as it is. `colours` are for the second column."""
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
    """The colour of a state."""
    return _COLORS.get(state, "cyan")
