"""The tables of plug-ins: extra rows that are written and deleted with their tasks."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from functools import cache
from typing import NamedTuple

from dragoman.engine.ports.rows import ExtraRow, TaskTable, Value


class _Statements(NamedTuple):
    create: tuple[str, ...]
    put: str
    read: str
    replace: str
    last: str
    delete: str


@cache
def _statements(table: TaskTable) -> _Statements:
    # Names of tables and columns come from the code of a plug-in, never from a caller.
    name, key = table.name, table.columns[0].name
    columns = [column.name for column in table.columns]
    definitions = [f"{key} INTEGER PRIMARY KEY"]
    definitions += [f"{column.name} {column.type}{' NOT NULL' * column.required}" for column in table.columns[1:]]
    # An owner who is a user of this file is stored by the key in `users`.
    user = "coalesce((SELECT user FROM users WHERE name = ?), ?)"
    values = ", ".join(user if column == table.owner else "?" for column in columns)
    changes = ", ".join(f"{column} = excluded.{column}" for column in columns[1:] if column != table.owner)
    column_list = ", ".join(columns)
    return _Statements(
        create=(
            f"CREATE TABLE IF NOT EXISTS {name} ({', '.join(definitions)})",
            *(f"CREATE INDEX IF NOT EXISTS {index} ON {name} ({column})" for index, column in table.indexes),
        ),
        put=f"INSERT INTO {name} ({column_list}) VALUES ({values}) ON CONFLICT ({key}) DO UPDATE SET {changes}",  # noqa: S608
        read=f"SELECT {column_list} FROM {name} WHERE {key} = ?",  # noqa: S608
        replace=f"UPDATE {name} SET {', '.join(f'{column} = ?' for column in columns[1:])} "  # noqa: S608
        f"WHERE {key} = ? AND {table.version} = ?",
        last=f"SELECT max({key}) FROM {name}",  # noqa: S608
        delete=f"DELETE FROM {name} WHERE {key} = ?",  # noqa: S608
    )


def create_tables(connection: sqlite3.Connection, tables: Iterable[TaskTable]) -> None:
    """Create missing tables and indexes."""
    for table in tables:
        for statement in _statements(table).create:
            connection.execute(statement)


def write_rows(connection: sqlite3.Connection, rows: Iterable[tuple[ExtraRow, str]]) -> None:
    """Insert or change rows, each with the owner of its task."""
    for (table, values), owner in rows:
        position = table.position(table.owner)
        connection.execute(_statements(table).put, (*values[:position], owner, *values[position:]))


def delete_rows(connection: sqlite3.Connection, tables: Sequence[TaskTable], task_ids: Sequence[str]) -> None:
    """Delete the rows of tasks."""
    for table in tables:
        keys = [(key,) for task_id in task_ids if (key := table.key_of(task_id)) is not None]
        connection.executemany(_statements(table).delete, keys)


def replace_row(connection: sqlite3.Connection, row: ExtraRow, version: Value) -> bool:
    """Replace a row if it still has that version; return whether it had."""
    key, *values = row.values
    return connection.execute(_statements(row.table).replace, (*values, key, version)).rowcount == 1


def read_row(connection: sqlite3.Connection, table: TaskTable, key: int) -> ExtraRow | None:
    """The row with this key."""
    values = connection.execute(_statements(table).read, (key,)).fetchone()
    return None if values is None else ExtraRow(table, tuple(values))


def last_key(connection: sqlite3.Connection, table: TaskTable) -> int:
    """The largest key; 0 when there is none."""
    return int(connection.execute(_statements(table).last).fetchone()[0] or 0)
