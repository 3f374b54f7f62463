"""Stores that are filled before a server opens them: with tasks whose times are known, and with a million of them."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from dragoman.clock import timestamp
from dragoman.engine.ports.store import Note
from dragoman.stores.sqlite.store import SqliteStore

MILLION = 1_000_000
STEP_MS = 10
# In every hundred tasks, one failed and one was canceled. Numbers are those of the store.
COMPLETED, FAILED, CANCELED = 3, 4, 5

# Built while nobody reads: each is made at once when all tasks are there.
_INDEXES = ("tasks_newest", "tasks_by_state", "tasks_by_context", "tasks_unfinished", "tasks_ended")
_NUMBERS = "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?)"
_ID = "printf('%08x-0000-4000-8000-%012x', n * 2654435761 % 4294967296, n)"
_CONTEXT = "printf('context-%06d', n / 10)"
_STATE = f"CASE n % 100 WHEN 7 THEN {FAILED} WHEN 8 THEN {CANCELED} ELSE {COMPLETED} END"
_BODY = (
    """printf('{"id":"%s","contextId":"%s","status":{"state":"%s"},"""
    """"artifacts":[{"artifactId":"result","parts":[{"text":"Answer %d"}]}],"""
    """"history":[{"messageId":"m-%d","role":"ROLE_USER","parts":[{"text":"Question %d"}]}]}',"""
    f""" {_ID}, {_CONTEXT}, CASE n % 100 WHEN 7 THEN 'TASK_STATE_FAILED' WHEN 8 THEN 'TASK_STATE_CANCELED'"""
    """ ELSE 'TASK_STATE_COMPLETED' END, n, n, n)"""
)


class TimedEvent(NamedTuple):
    """An event of a journal: when it was stored, and what it says."""

    at_ms: int
    body: dict[str, Any]


def create_store(path: Path) -> sqlite3.Connection:
    """Create an empty store, as a server does, and open its file."""

    async def create() -> None:
        store = SqliteStore(path)
        await store.open()
        await store.close()

    asyncio.run(create())
    return sqlite3.connect(path, isolation_level=None)


def fill_million(path: Path, tasks: int = MILLION) -> None:
    """Create a store with very many ended tasks of one agent, the last ended just now.

    Like tasks that were compacted, they have no events but a snapshot: that is what lists and searches read.
    """
    now = time.time_ns() // 1_000_000
    with create_store(path) as file:
        file.executescript("PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY; PRAGMA cache_size = -200000")
        definitions = [
            file.execute("SELECT sql FROM sqlite_master WHERE name = ?", [name]).fetchone()[0] for name in _INDEXES
        ]
        file.execute("BEGIN")
        for name in _INDEXES:
            file.execute(f"DROP INDEX {name}")
        file.execute("INSERT INTO scopes VALUES (1, 'studio', '', '')")
        columns = f"n, {_ID}, 1, {_CONTEXT}, '1.0', {_STATE}, ? + n * {STEP_MS}, 4, ? + n * {STEP_MS}, 0"
        first = now - tasks * STEP_MS
        file.execute(f"INSERT INTO tasks {_NUMBERS} SELECT {columns} FROM numbers", (tasks, first, first))
        file.execute(f"INSERT INTO snapshots {_NUMBERS} SELECT n, 4, CAST({_BODY} AS BLOB), 0 FROM numbers", (tasks,))
        for definition in definitions:
            file.execute(definition)
        for scope in (1, 0):  # 0 counts the ended tasks of all
            file.execute("INSERT INTO state_counts SELECT ?, state, count(*) FROM tasks GROUP BY state", [scope])
        file.execute("COMMIT")
    file.close()


def task_of(number: int) -> str:
    """The id of one of the million, counted from the oldest."""
    return f"{number * 2654435761 % 4294967296:08x}-0000-4000-8000-{number:012x}"


def add_task(
    path: Path, task_id: str, snapshot: dict[str, Any], events: Sequence[TimedEvent], notes: Sequence[Note] = ()
) -> str:
    """Create a store with one ended task of `studio`, whose events were stored at their times, and return its URL."""
    last = events[-1].at_ms
    with create_store(path) as file:
        file.execute("BEGIN")
        file.execute("INSERT INTO scopes VALUES (1, 'studio', '', '')")
        row = (1, task_id, 1, snapshot["contextId"], "1.0", COMPLETED, last, len(events), events[0].at_ms)
        file.execute("INSERT INTO tasks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0)", row)
        file.execute("INSERT INTO snapshots VALUES (1, ?, ?, 0)", (len(events), msgspec.json.encode(snapshot)))
        file.executemany(
            "INSERT INTO events VALUES (1, ?, ?, ?)",
            [(number, msgspec.json.encode(event.body), event.at_ms) for number, event in enumerate(events, start=1)],
        )
        file.executemany(
            "INSERT INTO notes (task, generation, kind, body) VALUES (1, ?, ?, ?)",
            [(note.generation, note.kind, note.body) for note in notes],
        )
        for scope in (1, 0):
            file.execute("INSERT INTO state_counts VALUES (?, ?, 1)", (scope, COMPLETED))
        file.execute("COMMIT")
    file.close()
    return f"sqlite:///{path}"


def status_event(at_ms: int, task_id: str, state: str, text: str | None = None) -> TimedEvent:
    """A change of state, with what the agent says."""
    message = {"messageId": f"s-{at_ms}", "role": "ROLE_AGENT", "parts": [{"text": text}]}
    status = {"state": f"TASK_STATE_{state}", "timestamp": timestamp(at_ms), **({"message": message} if text else {})}
    return TimedEvent(at_ms, {"statusUpdate": {"taskId": task_id, "contextId": "c", "status": status}})


def chunk_event(at_ms: int, task_id: str, text: str, *, append: bool = True) -> TimedEvent:
    """A piece of the artifact `answer`."""
    artifact = {"artifactId": "answer", "parts": [{"text": text}]}
    update = {"taskId": task_id, "contextId": "c", "artifact": artifact, "append": append}
    return TimedEvent(at_ms, {"artifactUpdate": update})


def task_json(task_id: str, state: str, at_ms: int, text: str, **members: Any) -> dict[str, Any]:
    """A task with the message that it began with."""
    message = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": text}], "contextId": "c", "taskId": task_id}
    status = {"state": f"TASK_STATE_{state}", "timestamp": timestamp(at_ms)}
    return {"id": task_id, "contextId": "c", "status": status, **members, "history": [message]}
