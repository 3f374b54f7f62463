"""One line of the list of tasks: its columns, a title, and the words that a search looks through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from dragoman.clock import timestamp
from dragoman.model.json import decode_event, decode_task, encode
from dragoman.model.state import Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dragoman.console.access import Viewer
    from dragoman.engine.ports.store import Store, StoredTask, TaskRow
    from dragoman.model.part import Part
    from dragoman.model.task import Task

MAX_TITLE = 120
"""How many characters a title has at most."""


def excerpt(text: str, length: int) -> str:
    """Return the beginning of a text on one line, with an ellipsis if more follows."""
    # White space may be most of a text: what is cut off first is more than enough to fill the line otherwise.
    line = " ".join(text[: 8 * length].split())
    is_whole = len(text) <= 8 * length and len(line) <= length
    return line if is_whole else f"{line[: length - 1].rstrip()}…"


def text_of(parts: Iterable[Part]) -> str:
    """Return parts as a line of text: texts, names or addresses of files, and data as a call of a skill or JSON."""
    return " ".join(
        part.text or part.filename or part.url or (_text_of_data(part.data) if part.kind == "data" else "")
        for part in parts
    )


def _text_of_data(data: Any) -> str:
    members = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    tool, arguments = members.get("tool"), members.get("arguments", {})
    if not isinstance(tool, str) or not isinstance(arguments, dict):
        return encode(data).decode()
    values = (f"{name}={encode(value).decode()}" for name, value in cast("dict[str, Any]", arguments).items())
    return f"{tool}({', '.join(values)})"


def _words_of(parts: Iterable[Part]) -> Iterator[str]:
    for part in parts:
        yield part.text or ""
        yield part.filename or ""
        yield part.url or ""
        if part.kind == "data":
            yield from _words_of_data(part.data)


def _words_of_data(data: Any) -> Iterator[str]:
    """Return the texts and numbers in JSON, and the names of its members."""
    values = [data]
    while values:
        value = values.pop()
        if isinstance(value, dict):
            members = cast("dict[str, Any]", value)
            yield from members
            values += members.values()
        elif isinstance(value, list):
            values += cast("list[Any]", value)
        elif value is not None:
            yield str(value)


def title_of(task: Task | None) -> str:
    """Return the first words of the caller's first message; empty when there are none."""
    if task is None:
        return ""
    first = next((message for message in task.history if message.role is Role.USER), None)
    return "" if first is None else excerpt(text_of(first.parts), MAX_TITLE)


def words_of(task: Task) -> Iterator[str]:
    """Return all texts of a task: of its messages, its artifacts and its status."""
    for message in task.history:
        yield from _words_of(message.parts)
    for artifact in task.artifacts:
        yield artifact.name or ""
        yield artifact.description or ""
        # A streamed text may be in several parts, and a word in two of them.
        yield artifact.text
        yield from _words_of(artifact.parts)
    if task.status.message is not None:
        yield from _words_of(task.status.message.parts)


async def stored_body(store: Store, stored: StoredTask) -> bytes | None:
    """Return the canonical bytes that tell most of a task: its snapshot, or its first record while there is none."""
    if stored.snapshot is not None:
        return stored.snapshot
    records = await store.records(stored.row.number, 0, 1)
    return records[0].body if records else None


def read_body(stored: StoredTask, body: bytes | None) -> Task | None:
    """Decode what `stored_body` has returned; None when there was nothing."""
    if body is None:
        return None
    return decode_task(body) if stored.snapshot is not None else decode_event(body).task


def row_json(row: TaskRow, title: str, viewer: Viewer) -> dict[str, Any]:
    """Return a task as a line of the list; `own` is True when the viewer is its owner to the agent."""
    scope = row.scope
    return {
        "id": row.id,
        "agent": scope.agent,
        "tenant": scope.tenant,
        "owner": scope.owner,
        "contextId": row.context_id,
        "state": row.state.value,
        "created": timestamp(row.created_ms),
        "updated": timestamp(row.status_ms),
        "generation": row.generation,
        "title": title,
        "own": scope.owner == (viewer.user.id if viewer.user is not None else ""),
    }
