"""How each table of a migrated store is written: its columns here, and how the source's rows become those.

- A task's number gets the day of the task before it, so that its events are in the partition of that day.
- Numbers of scopes, users, notes and webhooks stay as they are: the database has none yet, and plug-in tables refer to
  users by them.
- A task that was working when its server stopped, and a draft, belong to a node that is gone: the first node that
  starts takes them over, as a server on the file would have done. One that had not begun has no owner and is taken by
  whoever has room. The order of the tasks of a conversation is that in which they were created.
- Webhooks have no owner: the first node delivers them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from dragoman.engine.ports.rows import TaskTable
from dragoman.stores.migration import Row
from dragoman.stores.postgres.sql.partition import DAY_BITS, MS_PER_DAY
from dragoman.stores.postgres.sql.schema import DRAFT

# The id of the node that had the tasks of the file: it is dead, and has stopped by itself.
FORMER_NODE = 1
_WORKING = 2
_FIRST_EPOCH = 1
# PostgreSQL cannot store this character in a text. JSON is stored in bytes, and spells it in another way.
_NUL, _REPLACEMENT = "\0", "\N{REPLACEMENT CHARACTER}"


class TargetTable(NamedTuple):
    """A table: its columns with their types, how many of them are its key, and how a row of the source is written.

    `opaque` is a column that differs each time it is written.
    """

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    convert: Callable[[Row], Row]
    opaque: str | None = None

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [column.rpartition(" ")[0] for column in self.columns]


def number_of(number: int, created_ms: int) -> int:
    """The number of a task here."""
    return (max(created_ms, 0) // MS_PER_DAY << DAY_BITS) + number


def _time(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)


def _task(row: Row) -> Row:
    number, created_ms, task_id, scope, agent, context_id, origin, state, status_ms, generation, mail, attempts = row
    is_begun = state == _WORKING
    columns = (number_of(number, created_ms), task_id, scope, agent, context_id, origin, state, status_ms, generation)
    owner = FORMER_NODE if is_begun else None
    return (*columns, created_ms, owner, _FIRST_EPOCH, is_begun, attempts, mail, _time(created_ms))


def _draft(row: Row) -> Row:
    number, created_ms, task_id, scope, agent, context_id, origin, attempts = row
    columns = (number_of(number, created_ms), task_id, scope, agent, context_id, origin, DRAFT, created_ms, 1)
    return (*columns, created_ms, FORMER_NODE, _FIRST_EPOCH, True, attempts, 0, _time(created_ms))


def _snapshot(row: Row) -> Row:
    task, created_ms, generation, mail, body = row
    return number_of(task, created_ms), generation, mail, body


def _event(row: Row) -> Row:
    task, created_ms, generation, at_ms, body = row
    return number_of(task, created_ms), generation, body, at_ms


def _note(row: Row) -> Row:
    task, created_ms, note, generation, kind, mail, body = row
    return number_of(task, created_ms), note, note, generation, kind, mail, body


def _repeat(row: Row) -> Row:
    key, task, created_ms, task_id, until_ms, reply = row
    return key, 0 if task is None else number_of(task, created_ms), task_id, until_ms, reply


def _as_it_is(row: Row) -> Row:
    return row


def _user(row: Row) -> Row:
    return (*row[:-1], bool(row[-1]))


_TASK_COLUMNS = (
    "number bigint",
    "id text",
    "scope bigint",
    "agent text",
    "context_id text",
    "origin text",
    "state smallint",
    "status_ms bigint",
    "generation integer",
    "created_ms bigint",
    "owner bigint",
    "epoch integer",
    "begun boolean",
    "attempts integer",
    "mail integer",
    "queued_at timestamptz",
)
_SNAPSHOT_COLUMNS = ("task bigint", "generation integer", "mail integer", "body bytea")


class TargetTables:
    """The tables of one migration. `reseal` seals the secrets of a webhook with the keys of the new servers."""

    def __init__(self, plugin_tables: Iterable[TaskTable], reseal: Callable[[bytes], bytes]) -> None:
        # How many texts have lost a NUL.
        self.replaced = 0
        self._reseal = reseal
        self._tables = {
            "scopes": TargetTable(
                "scopes", ("scope bigint", "agent text", "tenant text", "owner text"), ("scope",), _as_it_is
            ),
            "users": TargetTable(
                "users",
                (
                    "user bigint",
                    "name text",
                    "password text",
                    "created_ms bigint",
                    "epoch bigint",
                    "revoked boolean",
                ),
                ("user",),
                _user,
            ),
            "grants": TargetTable(
                "grants", ("user bigint", "permission text", "until_ms bigint"), ("user", "permission"), _as_it_is
            ),
            "api_keys": TargetTable(
                "api_keys",
                ("digest bytea", "user bigint", "hint text", "created_ms bigint", "until_ms bigint"),
                ("digest",),
                _as_it_is,
            ),
            "tasks": TargetTable("tasks", _TASK_COLUMNS, ("number",), _task),
            "drafts": TargetTable("tasks", _TASK_COLUMNS, ("number",), _draft),
            "draft_snapshots": TargetTable("snapshots", _SNAPSHOT_COLUMNS, ("task",), _snapshot),
            "snapshots": TargetTable("snapshots", _SNAPSHOT_COLUMNS, ("task",), _snapshot),
            "events": TargetTable(
                "events",
                ("task bigint", "generation integer", "body bytea", "at_ms bigint"),
                ("task", "generation"),
                _event,
            ),
            "notes": TargetTable(
                "notes",
                (
                    "task bigint",
                    "key bigint",
                    "note bigint",
                    "generation integer",
                    "kind text",
                    "mail integer",
                    "body bytea",
                ),
                ("task", "key"),
                _note,
            ),
            "contexts": TargetTable(
                "contexts",
                ("scope bigint", "context_id text", "state bytea"),
                ("scope", "context_id"),
                _as_it_is,
            ),
            "repeats": TargetTable(
                "repeats",
                ("key bytea", "task bigint", "task_id text", "until_ms bigint", "reply bytea"),
                ("key",),
                _repeat,
            ),
            "pushes": TargetTable(
                "pushes",
                (
                    "push bigint",
                    "task bigint",
                    "id text",
                    "dialect text",
                    "url text",
                    "secrets bytea",
                    "cursor integer",
                    "created_ms bigint",
                    "tries integer",
                    "failing_ms bigint",
                    "due_ms bigint",
                    "state smallint",
                    "error text",
                ),
                ("task", "id"),
                self._push,
                opaque="secrets",
            ),
            **{table.name: _plugin_table(table) for table in plugin_tables},
        }

    def __getitem__(self, name: str) -> TargetTable:
        return self._tables[name]

    def convert(self, name: str, rows: Iterable[Row], *, again: bool = False) -> Iterator[Row]:
        """Convert rows of the source. With `again`, they were converted and counted before."""
        table = self._tables[name]
        texts = [place for place, column in enumerate(table.columns) if column.endswith(" text")]
        for row in map(table.convert, rows):
            for place in texts:
                if (text := row[place]) is not None and _NUL in text:
                    self.replaced += not again
                    row = (*row[:place], text.replace(_NUL, _REPLACEMENT), *row[place + 1 :])  # noqa: PLW2901
            yield row

    def _push(self, row: Row) -> Row:
        push, task, created_ms, push_id, dialect, url, secrets, *rest = row
        return (push, number_of(task, created_ms), push_id, dialect, url, self._reseal(secrets), *rest)


def _plugin_table(table: TaskTable) -> TargetTable:
    types = {"INTEGER": "bigint", "TEXT": "text"}
    columns = tuple(f"{column.name} {types[column.type]}" for column in table.columns)
    return TargetTable(table.name, columns, (table.columns[0].name,), _as_it_is)
