"""A page of a task's journal: its events with their times, sizes and runs, and the notes beside them."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

import msgspec

from dragoman.clock import timestamp
from dragoman.console.tasks.row import excerpt, text_of
from dragoman.engine.execute.threads import in_thread
from dragoman.engine.journal.replay import OpenQuestion
from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.model.json import UNREADABLE, decode_event, decode_message
from dragoman.model.task import Task

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from dragoman.engine.ports.store import JournalRecord, Note, Store, StoredTask
    from dragoman.model.message import Message

MAX_EVENTS = 500
MAX_EVENT_BYTES = 16_384
"""Events above this size are not sent: their size and the beginning of their text are."""
MAX_EXCERPT = 200
_MAX_NOTES = 500
# Bytes that are read for a page, and those of events that are sent with it, about.
_READ_BYTES, _SENT_BYTES = 4_000_000, 2_000_000
# A page with more bytes is decoded in a thread.
_LARGE_BYTES = 500_000


async def journal_page(
    store: Store, stored: StoredTask, after: int, limit: int, wait_for_turn: Callable[[], Awaitable[None]]
) -> dict[str, Any]:
    """Return the events after a generation, and the notes from that generation on.

    Notes have no numbers of their own, and more of them may follow an event that was read already. `wait_for_turn`
    waits for a turn to do CPU-bound work.
    """
    number, newest = stored.row.number, stored.row.generation
    entries = await store.journal(number, after, limit, _READ_BYTES)
    notes = await store.notes(number)
    await wait_for_turn()
    if sum(len(entry.body) for entry in entries) > _LARGE_BYTES:
        events = await in_thread(_events_json, entries, run_starts(notes))
    else:
        events = _events_json(entries, run_starts(notes))
    last = entries[len(events) - 1].generation if events else newest
    # While it is written, a journal may be longer than the row that was read before it.
    newest = max(newest, last)
    more = last < newest
    visible = [note for note in notes if after <= note.generation and (note.generation <= last or not more)]
    return {
        "events": events,
        "notes": [_note_json(note) for note in visible[:_MAX_NOTES]],
        "newest": newest,
        "more": more,
    }


def _events_json(entries: Sequence[JournalRecord], starts: Sequence[int]) -> list[dict[str, Any]]:
    """Describe the records of a page, up to the bytes that are sent with it."""
    events: list[dict[str, Any]] = []
    sent = 0
    for entry in entries:
        events.append(_event_json(entry, bisect_right(starts, entry.generation)))
        sent += min(len(entry.body), MAX_EVENT_BYTES)
        if sent > _SENT_BYTES:
            break
    return events


def run_starts(notes: Sequence[Note]) -> list[int]:
    """Return the generations with which runs of a task begin, in order.

    An answer is stored with the first record of the run that it starts. A repetition is noted after the last record of
    the run before; one of a task that had only been created is its first run.
    """
    starts = {1}
    for note in notes:
        if note.kind in ("answer", "resumed"):
            starts.add(note.generation)
        elif note.kind == "attempt" and note.generation > 1:
            starts.add(note.generation + 1)
    return sorted(starts)


def _event_json(entry: JournalRecord, run: int) -> dict[str, Any]:
    kind, state, text = describe_event(entry.body)
    return {
        "generation": entry.generation,
        "at": None if entry.at_ms is None else timestamp(entry.at_ms),
        "size": len(entry.body),
        "kind": kind,
        "state": state,
        "text": excerpt(text, MAX_EXCERPT),
        "event": msgspec.Raw(entry.body) if len(entry.body) <= MAX_EVENT_BYTES else None,
        "run": run,
    }


def describe_event(body: bytes) -> tuple[str, str | None, str]:
    """Return the kind of an event, the state that it sets, and its text."""
    event = decode_event(body).payload
    if isinstance(event, StatusUpdate):
        return "status", event.status.state.value, _message_text(event.status.message)
    if isinstance(event, ArtifactUpdate):
        return "artifact", None, text_of(event.artifact.parts)
    if isinstance(event, Task):
        return "task", event.status.state.value, _message_text(event.history[0] if event.history else None)
    return "message", None, _message_text(event)


def _message_text(message: Message | None) -> str:
    return "" if message is None else text_of(message.parts)


def _note_json(note: Note) -> dict[str, Any]:
    return {
        "generation": note.generation,
        "kind": note.kind,
        "size": len(note.body),
        "at": None,
        "text": excerpt(_note_text(note), MAX_EXCERPT),
    }


def _note_text(note: Note) -> str:
    """Return what a note says, without what is internal: who called, and the results of `ctx.once`."""
    try:
        if note.kind in ("message", "answer"):
            return _message_text(decode_message(note.body))
        if note.kind == "ask":
            return msgspec.json.decode(note.body, type=OpenQuestion).question
        if note.kind == "once":
            return str(msgspec.json.decode(note.body)["key"])
    except (*UNREADABLE, KeyError, TypeError):
        return ""
    return note.body.decode(errors="replace") if note.kind in ("begun", "attempt") else ""
