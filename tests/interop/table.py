"""The table of docs/interop.md: who talked to whom over which wire, and how each operation went."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

OURS = "Dragoman's client, their server"
THEIRS = "Their client, Dragoman's server"
DIRECTIONS = (OURS, THEIRS)
ADK_THEIRS = "Their RemoteA2aAgent, Dragoman's server"
ADK_OURS = "Dragoman's RemoteAgent, their to_a2a"
ADK_DIRECTIONS = (ADK_THEIRS, ADK_OURS)
FRAMEWORKS_OURS = "Dragoman's client, the framework's server"
FRAMEWORKS_THEIRS = "The framework's client, Dragoman's server"
FRAMEWORKS_DIRECTIONS = (FRAMEWORKS_OURS, FRAMEWORKS_THEIRS)

PASS, FAIL = "pass", "fail"
ABSENT = "absent"  # not in this version, or the peer has no such thing
PEER = "peer"  # the peer is at fault, and a test shows it

# An operation that several cases try is as good as the worst of them.
WORST_FIRST = (FAIL, PEER, ABSENT, PASS)
SIGNS = {PASS: "✓", FAIL: "**✗**", ABSENT: "none", PEER: "peer"}

OPERATIONS = (
    "card",
    "send",
    "failed",
    "message",
    "stream",
    "ask",
    "get",
    "list",
    "cancel",
    "subscribe",
    "push",
    "extended card",
    "data",
    "file",
)

MEANINGS = {
    "card": "discovery from the base URL",
    "send": "a message; the task comes back completed",
    "failed": "a task that fails, and one that is rejected, with its reason",
    "message": "an answer without a task",
    "stream": "every chunk once, in order, and the task they make",
    "ask": "input-required, and the answer to it in the same task",
    "get": "a task read again, and one that is unknown",
    "list": "tasks listed, by context and page by page",
    "cancel": "a working task canceled; one that has ended is not",
    "subscribe": "a second reader of a running task",
    "push": "push configurations created, read, listed, deleted",
    "extended card": "the card for known callers",
    "data": "JSON there and back: nesting, numbers, null",
    "file": "bytes with a name and a media type",
}

ADK_MEANINGS = {
    "answer": "the answer of the agent comes whole, and is kept once",
    "tokens": "it is shown piece by piece as the model writes it",
    "bare": "no event without anything in it, and nothing repeated",
    "tools": "calls of tools are no part of the answer",
    "pause": "a tool that waits, answered with a function response",
    "words": "the same, answered in plain words",
    "allow": "a tool that has to be allowed, allowed and not",
    "failure": "a failure is an error of the turn, with its reason",
    "secret": "the text of an exception stays secret",
    "saved": "a file that the agent has saved arrives",
    "leave": "a run that is left here ends over there",
    "numbers": "`2` arrives as `2`",
}

FRAMEWORK_CLIENT_MEANINGS = {
    "text": "the answer comes exactly once, without a stream and read again",
    "stream": "it comes exactly once as a stream",
    "talk": "a second message of the same conversation has an answer of its own, once",
    "ask": "a question, and the answer to it in the same task",
    "failure": "a failure, with its reason",
    "file": "bytes with a media type and a name, there and back",
    "data": "JSON there and back",
}
FRAMEWORK_MEANINGS = {
    **FRAMEWORK_CLIENT_MEANINGS,
    "tool": "`as_tool` gives the answer",
    "command": "`dragoman send` prints it",
    "front": "`serve --a2a` in front of the server keeps it, streamed and read again",
}
FRAMEWORK_SERVER_CASES = tuple(FRAMEWORK_MEANINGS)
FRAMEWORK_CLIENT_CASES = tuple(FRAMEWORK_CLIENT_MEANINGS)

COLUMNS = {
    **dict.fromkeys(DIRECTIONS, OPERATIONS),
    **dict.fromkeys(ADK_DIRECTIONS, tuple(ADK_MEANINGS)),
    FRAMEWORKS_OURS: FRAMEWORK_SERVER_CASES,
    FRAMEWORKS_THEIRS: FRAMEWORK_CLIENT_CASES,
}
"""Which operations are tried in a direction."""


@dataclass(frozen=True)
class Cell:
    """How one operation went."""

    direction: str
    peer: str
    wire: str
    operation: str
    result: str
    why: str = ""

    def plain(self) -> dict[str, str]:
        """For another process to read."""
        return asdict(self)


@dataclass(frozen=True)
class Row:
    """A peer over one wire, in one direction."""

    direction: str
    peer: str
    wire: str
    title: str


@dataclass(frozen=True)
class Compared:
    """An MCP server whose tools were called directly and through A2A, with the same result."""

    name: str
    version: str
    transport: str
    tools: int
    calls: int

    @property
    def key(self) -> tuple[str, str]:
        """Which server it is, whatever was found."""
        return self.name, self.transport

    def plain(self) -> dict[str, Any]:
        """For another process to read."""
        return asdict(self)


def not_compared(wanted: Iterable[Compared], found: Iterable[Compared]) -> list[str]:
    """The MCP servers that no test has compared."""
    there = {each.key for each in found}
    return [f"{each.name} over {each.transport}" for each in wanted if each.key not in there]


def in_order(wanted: Iterable[Compared], found: Iterable[Compared]) -> list[Compared]:
    """What was found, in the order of what was wanted."""
    by_key = {each.key: each for each in found}
    return [by_key[each.key] for each in wanted]


def merged(cells: Iterable[Cell]) -> dict[tuple[str, str, str, str], Cell]:
    """One cell for each operation: the worst."""
    found: dict[tuple[str, str, str, str], Cell] = {}
    for cell in cells:
        key = cell.direction, cell.peer, cell.wire, cell.operation
        if key not in found or _badness(cell) < _badness(found[key]):
            found[key] = cell
    return found


def _badness(cell: Cell) -> tuple[Any, ...]:
    return WORST_FIRST.index(cell.result), cell.why


def unfilled(rows: Iterable[Row], cells: Iterable[Cell]) -> list[str]:
    """What no test has tried."""
    found = merged(cells)
    return [
        f"{row.title}, {row.direction}: {operation}"
        for row in rows
        for operation in COLUMNS[row.direction]
        if (row.direction, row.peer, row.wire, operation) not in found
    ]


def page(
    rows: list[Row], cells: Iterable[Cell], versions: list[tuple[str, str]], mcp_servers: Iterable[Compared]
) -> str:
    """The whole page."""
    found = merged(cells)
    notes: list[str] = []
    lines = [
        "# Interoperability",
        "",
        "Dragoman and the other SDKs, each as server and as client. `make interop` installs them, runs the tests",
        "behind every cell of these tables, and writes this page. Nothing here is written by hand.",
        "",
        "| peer | version |",
        "|---|---|",
        *(f"| {name} | {version} |" for name, version in versions),
        "",
    ]
    for direction in DIRECTIONS:
        lines += [f"## {direction}", "", *_grid(direction, rows, found, notes), ""]
    lines += [
        "## Google's ADK",
        "",
        "An ADK agent with a scripted model, served by google-adk's own bridge and called by Dragoman's, and the other",
        "way round.",
        "",
    ]
    for direction in ADK_DIRECTIONS:
        lines += [f"### {direction}", "", *_grid(direction, rows, found, notes), ""]
    lines += [
        "## Other frameworks",
        "",
        "Frameworks with an A2A bridge of their own, with a scripted model.",
        "",
    ]
    for direction in FRAMEWORKS_DIRECTIONS:
        lines += [f"### {direction}", "", *_grid(direction, rows, found, notes), ""]
    lines += [
        "## MCP servers behind A2A",
        "",
        "Every tool of these servers, called by the official MCP client and through an agent made by `Agent.from_mcp`.",
        "The answers are the same part by part, errors and questions included.",
        "",
        "| server | version | transport | tools | calls compared |",
        "|---|---|---|---|---|",
        *(f"| {each.name} | {each.version} | {each.transport} | {each.tools} | {each.calls} |" for each in mcp_servers),
        "",
    ]
    lines += ["## Signs", "", "| | |", "|---|---|"]
    lines += [
        "| ✓ | works |",
        "| none | there is no such thing: the version or the peer does not have it |",
        "| peer | the peer breaks the protocol; a test shows what it does |",
        "| **✗** | does not work |",
        "",
        "## Notes",
        "",
        *(f"{number}. {note}" for number, note in enumerate(notes, 1)),
        "",
        "## Operations",
        "",
        "| | what is tried |",
        "|---|---|",
        *(f"| {operation} | {meaning} |" for operation, meaning in {**MEANINGS, **ADK_MEANINGS}.items()),
        "",
        "With other frameworks:",
        "",
        "| | what is tried |",
        "|---|---|",
        *(f"| {operation} | {meaning} |" for operation, meaning in FRAMEWORK_MEANINGS.items()),
        "",
    ]
    return "\n".join(lines)


def _grid(direction: str, rows: list[Row], found: dict[tuple[str, str, str, str], Cell], notes: list[str]) -> list[str]:
    """The table of one direction. What its cells have to explain is added to the notes."""
    operations = COLUMNS[direction]
    lines = [f"| | {' | '.join(operations)} |", f"|---|{'---|' * len(operations)}"]
    for row in rows:
        if row.direction == direction:
            keys = [(row.direction, row.peer, row.wire, operation) for operation in operations]
            lines.append(f"| {row.title} | {' | '.join(_sign(found.get(key), notes) for key in keys)} |")
    return lines


def _sign(cell: Cell | None, notes: list[str]) -> str:
    if cell is None:
        return "?"
    if not cell.why or cell.result == FAIL:
        return SIGNS[cell.result]
    if cell.why not in notes:
        notes.append(cell.why)
    return f"{SIGNS[cell.result]} <sup>{notes.index(cell.why) + 1}</sup>"
