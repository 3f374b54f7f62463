"""The tables of plug-ins in PostgreSQL: extra rows that are written and deleted with their tasks."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from dragoman.engine.ports.rows import ExtraRow, TaskTable, Value
from dragoman.stores.postgres.sql.schema import LOCK_SPACE, MIGRATION_LOCK

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dragoman.net.postgres import PostgresConnection

_TYPES = {"INTEGER": "bigint", "TEXT": "text"}


class TableStatements(NamedTuple):
    """The statements of one table. `put` and `columns` are a part of the statement of a commit."""

    create: tuple[str, ...]
    put: str
    columns: tuple[str, ...]
    read: str
    replace: str
    last: str
    delete: str


def _quoted(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""'))


@cache
def table_statements(table: TaskTable) -> TableStatements:
    """Build the statements of a table."""
    # Names of tables and columns come from the code of a plug-in, never from a caller.
    name, key = _quoted(table.name), _quoted(table.columns[0].name)
    columns = [_quoted(column.name) for column in table.columns]
    owner = _quoted(table.owner)
    definitions = [f"{key} bigint PRIMARY KEY"]
    definitions += [
        f"{_quoted(column.name)} {_TYPES[column.type]}{' NOT NULL' * column.required}" for column in table.columns[1:]
    ]
    # An owner who is a user of this database is stored by the key in `users`.
    user = f'coalesce((SELECT u."user" FROM users u WHERE u.name = i.task_owner), i.{owner})'
    values = ", ".join(user if column == owner else f"i.{column}" for column in columns)
    changes = ", ".join(f"{column} = excluded.{column}" for column in columns[1:] if column != owner)
    replaced = ", ".join(f"{column} = ${number}" for number, column in enumerate(columns[1:], 2))
    column_list = ", ".join(columns)
    version = f"${len(columns) + 1}::{'bigint' if _type_of(table, table.version) == 'INTEGER' else 'text'}"
    return TableStatements(
        create=(
            f"CREATE TABLE IF NOT EXISTS {name} ({', '.join(definitions)})",
            *(
                f"CREATE INDEX IF NOT EXISTS {_quoted(index)} ON {name} ({_quoted(column)})"
                for index, column in table.indexes
            ),
        ),
        put=f"{_quoted('rows of ' + table.name)} AS (INSERT INTO {name} ({column_list}) SELECT {values} FROM {{input}} "
        f"WHERE {{done}} ON CONFLICT ({key}) DO UPDATE SET {changes})",
        columns=(
            "task bigint",
            "task_owner text",
            *(f"{_quoted(column.name)} {_TYPES[column.type]}" for column in table.columns),
        ),
        read=f"SELECT {column_list} FROM {name} WHERE {key} = $1",
        replace=f"UPDATE {name} SET {replaced} WHERE {key} = $1 AND {_quoted(table.version)} = {version} RETURNING 1",
        last=f"SELECT max({key}) FROM {name}",
        delete=f"DELETE FROM {name} WHERE {key} = ANY($1::bigint[])",
    )


def _type_of(table: TaskTable, name: str) -> str:
    return table.columns[table.position(name)].type


async def create_tables(connection: PostgresConnection, tables: Iterable[TaskTable]) -> None:
    """Create missing tables and indexes."""
    statements = [statement for table in tables for statement in table_statements(table).create]
    if not statements:
        return
    async with connection.transaction():
        # IF NOT EXISTS is no protection from another server that creates them in the same moment.
        await connection.execute(f"SELECT pg_advisory_xact_lock({LOCK_SPACE}, {MIGRATION_LOCK})")
        for statement in statements:
            await connection.execute(statement)


async def delete_rows(connection: PostgresConnection, tables: Sequence[TaskTable], task_ids: Sequence[str]) -> None:
    """Delete the rows of tasks."""
    for table in tables:
        keys = [key for task_id in task_ids if (key := table.key_of(task_id)) is not None]
        if keys:
            await connection.execute(table_statements(table).delete, keys)


async def read_row(connection: PostgresConnection, table: TaskTable, key: int) -> ExtraRow | None:
    """The row with this key."""
    values = await connection.fetchrow(table_statements(table).read, key)
    return None if values is None else ExtraRow(table, tuple(values))


async def replace_row(connection: PostgresConnection, row: ExtraRow, version: Value) -> bool:
    """Replace a row if it still has that version; return whether it had."""
    return await connection.fetchval(table_statements(row.table).replace, *row.values, version) is not None


async def last_key(connection: PostgresConnection, table: TaskTable) -> int:
    """The largest key; 0 when there is none."""
    return await connection.fetchval(table_statements(table).last) or 0
