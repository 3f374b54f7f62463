"""How answers are printed: text and data on stdout, everything else on stderr."""

from __future__ import annotations

import json
import os
import re
import sys
from typing import TYPE_CHECKING, Any

import click

from dragoman.model.state import State

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dragoman.model.part import Part

# What moves the cursor, colours the screen or turns the direction of a line is the terminal's business, not an agent's.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_COLOURS = {
    State.COMPLETED: "green",
    State.FAILED: "red",
    State.REJECTED: "red",
    State.CANCELED: "yellow",
    State.INPUT_REQUIRED: "magenta",
    State.AUTH_REQUIRED: "magenta",
}


def on_terminal(*, err: bool = False) -> bool:
    """True when somebody looks at stdout, or at stderr."""
    return (sys.stderr if err else sys.stdout).isatty()


def coloured(text: str, colour: str | None = None, *, err: bool = False, bold: bool = False, dim: bool = False) -> str:
    """A text in a colour, where there is a terminal that wants one."""
    if not on_terminal(err=err) or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return click.style(text, fg=colour, bold=bold or None, dim=dim or None)


def visible(text: str, *, err: bool = False) -> str:
    """A text of somebody else's: on a terminal without what would command it, in a pipe as it is."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n")) if on_terminal(err=err) else text


def say(text: str = "") -> None:
    """A line for people, on stderr."""
    click.echo(text, err=True)


def state_name(state: State) -> str:
    """A state as people write it: `input-required`."""
    return state.name.lower().replace("_", "-")


def state_shown(state: State, *, err: bool = False) -> str:
    """A state in its colour."""
    return coloured(state_name(state), _COLOURS.get(state, "cyan"), err=err)


# -- answers ---------------------------------------------------------------------------------------------------------


def print_json(value: Any, *, one_line: bool = False) -> None:
    """A document on stdout; text that is JSON already is taken as such."""
    decoded: Any = json.loads(value) if isinstance(value, bytes) else value
    text = json.dumps(decoded, ensure_ascii=False, indent=None if one_line else 2)
    # JSON may hold half a character, which no terminal and no file in UTF-8 takes.
    click.echo(text.encode("utf-8", "replace").decode())


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
        # click would take colours out of what goes into a pipe, and the answer is the agent's.
        click.echo(visible(text), nl=not text.endswith("\n"), color=True)


def print_files(parts: Sequence[Part]) -> None:
    """The files of an answer, by name, type and size, on stderr."""
    for part in parts:
        if part.kind in ("raw", "url"):
            say(f"file: {visible(file_line(part), err=True)}")


def file_line(part: Part) -> str:
    """A file in one line."""
    about = [part.filename or "without a name", part.media_type or "of no type"]
    about.append(f"{len(part.raw)} bytes" if part.raw is not None else f"at {part.url}")
    return ", ".join(about)


def first_words(text: str, width: int) -> str:
    """The beginning of a text, in one line."""
    line = " ".join(text.split())
    return line if len(line) <= width else f"{line[: width - 1].rstrip()}…"


def print_table(rows: Iterable[tuple[str, ...]], colours: Iterable[str | None] = ()) -> None:
    """Rows in columns, on stdout; the last column is as wide as it is. `colours` are for the second column."""
    table = list(rows)
    widths = (
        [max((len(row[column]) for row in table), default=0) for column in range(len(table[0]) - 1)] if table else []
    )
    tints = [*colours, *([None] * len(table))]
    for row, tint in zip(table, tints, strict=False):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        if tint is not None:
            cells[1] = coloured(cells[1], tint)
        click.echo(visible_row([*cells, row[-1]]))


def visible_row(cells: Sequence[str]) -> str:
    """The cells of a row, two spaces apart."""
    return "  ".join(cells).rstrip()


def state_colour(state: State) -> str:
    """The colour of a state."""
    return _COLOURS.get(state, "cyan")
