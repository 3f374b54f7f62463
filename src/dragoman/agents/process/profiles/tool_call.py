"""What a program does with a tool, told in a line."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from dragoman.agents.process.profiles.json_object import Found, text_in

LONGEST = 200
# What says most about a call, as the tools of these programs name their arguments; the first that is there is told.
_TELLING = (
    "command",
    "cmd",
    "file_path",
    "filePath",
    "absolute_path",
    "path",
    "pattern",
    "globPattern",
    "query",
    "url",
    "description",
    "prompt",
)


def in_line(text: str) -> str:
    """A text as one short line without control characters."""
    # No more than could be shown is looked at: a text may be a whole file.
    printable = "".join(sign if sign.isprintable() else " " for sign in text[: LONGEST * 4])
    line = " ".join(printable.split())
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


def told(tool: str, arguments: Any, before: str = "") -> str:
    """A call of a tool: its name and what it works on. `before` says how it went."""
    about = arguments if isinstance(arguments, str) else _telling(arguments)
    return in_line(": ".join(filter(None, (before, in_line(tool) or "a tool", about))))


def _telling(arguments: Any) -> str:
    if not isinstance(arguments, dict) or not arguments:
        return ""
    given = cast("Found", arguments)
    try:
        return text_in(given, *_TELLING) or msgspec.json.encode(given).decode()
    except RecursionError:
        return ""
