"""The database that a migration writes into: empty at first, not to be served before it is complete."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager

from dragoman.engine.ports.rows import TaskTable
from dragoman.model.error import ConfigError, DragomanError
from dragoman.model.state import State
from dragoman.net.postgres import (
    PostgresConnection,
    PostgresUnreachable,
    connect,
    is_conflict,
    is_forbidden,
    parse_address,
)
from dragoman.stores.migration import CONTENTS, CopiedRows, Difference, MigrationPosition, Row, StoreCounts
from dragoman.stores.postgres.admin.session import is_database_error
from dragoman.stores.postgres.sql.migration.tables import FORMER_NODE, TargetTable, TargetTables
from dragoman.stores.postgres.sql.partition import DAY_BITS, attach_days, detach_day
from dragoman.stores.postgres.sql.schema import (
    ALL_SCOPES,
    DAYS_LOCK,
    DRAFT,
    ENDED,
    LISTED,
    LOCK_SPACE,
    MOVING,
    VERSION,
    check_version,
    migrate,
    no_rights_error,
)
from dragoman.stores.postgres.sql.session import PLANS
from dragoman.stores.postgres.sql.tables import create_tables
from dragoman.stores.state_numbers import STATES

# What is lost of the last commits in a crash of the server is copied again, with the position.
_SETTINGS = {**PLANS, "application_name": "dragoman migrate", "synchronous_commit": "off"}
# A node that was not seen for so many leases has crashed, and there is no other to find out.
_GONE_LEASES = 3.0

# For statements that are no look-ups.
_READ_WHOLE_TABLES = "SET LOCAL enable_seqscan = on"
_MIGRATE_LOCK = 64
# How long it waits for an earlier one that was killed, and then for any other lock: that one waits no longer.
_LOCK_SECONDS, _WAIT_SECONDS = 15, 10
_CREATE_POSITION = """
CREATE TABLE IF NOT EXISTS moved_stores (
    fingerprint text PRIMARY KEY, source text NOT NULL, at_table text NOT NULL, at_row bigint NOT NULL,
    began timestamptz NOT NULL DEFAULT clock_timestamp(), ended timestamptz
)
"""
_CONTENTS = """
SELECT (SELECT count(*) FROM tasks), (SELECT count(*) FROM users), (SELECT count(*) FROM repeats),
    (SELECT count(*) FROM contexts)
"""
_ALIVE = f"""
SELECT name FROM nodes
WHERE NOT dead AND seen > clock_timestamp() - make_interval(secs => {_GONE_LEASES} * lease) ORDER BY name
"""
_FIND_POSITION = """
SELECT at_table, at_row, ended IS NOT NULL FROM moved_stores
WHERE fingerprint = $1 OR (source = $2 AND ended IS NOT NULL) ORDER BY fingerprint = $1 DESC LIMIT 1
"""
_ENTER_NODE = """
INSERT INTO nodes (id, name, agents, version, lease, keys, dead, stopped, tables)
VALUES ($1, $2, (SELECT coalesce(array_agg(DISTINCT agent), '{}') FROM scopes), '', 1, '{}', true, true, $3)
ON CONFLICT (id) DO UPDATE SET agents = excluded.agents
"""
_COUNT_STATES = f"""
INSERT INTO state_counts (scope, state, node, tasks) SELECT scope, state, 0, count(*) FROM (
    SELECT scope, state FROM tasks WHERE {LISTED} UNION ALL SELECT {ALL_SCOPES}, state FROM tasks WHERE {ENDED}
) t GROUP BY scope, state
"""
# A run that had begun has the turn of its conversation, and so has a draft.
_GIVE_TURNS = f"""
INSERT INTO contexts AS c (scope, context_id, running)
SELECT DISTINCT ON (scope, context_id) scope, context_id, number FROM tasks WHERE owner = {FORMER_NODE}
ORDER BY scope, context_id, number ON CONFLICT (scope, context_id) DO UPDATE SET running = excluded.running
"""
_SET_HOME = """
INSERT INTO contexts AS c (scope, context_id, home) SELECT i.*, $3 FROM unnest($1::bigint[], $2::text[]) AS i
ON CONFLICT (scope, context_id) DO UPDATE SET home = excluded.home
"""
# The next number is above all there are.
_SET_NUMBERS = """
UPDATE dragoman_meta SET value = greatest(value, (SELECT max(number) FROM tasks)) WHERE key = 'numbers'
"""
_SEQUENCES = {"scopes": "scope", "users": "user", "notes": "note", "pushes": "push"}


class PostgresTarget:
    """Writes the contents of another store into a database that has none. Nobody serves it until that is complete."""

    def __init__(self, connection: PostgresConnection, name: str, tables: TargetTables) -> None:
        self._connection = connection
        self._name = name
        self._tables = tables

    @classmethod
    @asynccontextmanager
    async def opened(cls, url: str, tables: TargetTables) -> AsyncGenerator[PostgresTarget]:
        """Connect, and keep others out.

        Raises:
            ConfigError: the database cannot be used, or another migration into it is running.
            DragomanError: it cannot be reached, or fails on the way.
        """
        address = parse_address(url)
        try:
            connection = await connect(url, _SETTINGS)
        except PostgresUnreachable as error:
            raise DragomanError(str(error)) from None
        try:
            await _lock(connection, address.text)
            yield cls(connection, address.text, tables)
            await connection.close()
        except DragomanError:
            raise
        except Exception as error:
            if not is_database_error(error):
                raise
            if is_forbidden(error):
                raise no_rights_error(address.text, error) from None
            raise DragomanError(
                f"PostgreSQL at {address.text}: {address.clean(str(error))}; to go on, run the same command again"
            ) from None
        finally:
            connection.terminate()

    async def find_position(self, fingerprint: str, first: str, moved: str | None = None) -> MigrationPosition:
        """Find how far the migration of this file has come. Nothing is written.

        `first` is the first table. `moved` is the path of a file that is marked as moved: the mark has changed its
        fingerprint.

        Raises:
            ConfigError: the database is not empty, has servers, or another migration into it is unfinished.
        """
        if not await check_version(self._connection, self._name, moving=True):
            return MigrationPosition(first, 0, begun=False)
        if await self._connection.fetchval("SELECT to_regclass('moved_stores') IS NOT NULL"):
            row = await self._connection.fetchrow(_FIND_POSITION, fingerprint, moved)
            if row is not None:
                table, rows, is_complete = row
                return MigrationPosition(table, rows, complete=is_complete)
            other = await self._connection.fetchval("SELECT source FROM moved_stores WHERE ended IS NULL")
            if other is not None:
                raise ConfigError(
                    f"{self._name} has an unfinished migration of {other}, or of the same file, which was changed "
                    "since: create an empty database, and migrate into that"
                )
        await self._refuse_servers()
        tasks, users, *others = await self._connection.fetchrow(_CONTENTS)
        if tasks or users or any(others):
            raise ConfigError(f"{self._name} is not empty (tasks: {tasks}, users: {users}): create an empty database")
        return MigrationPosition(first, 0, begun=False)

    async def begin(self, fingerprint: str, source: str, position: MigrationPosition) -> None:
        """Create the tables of this version. From here to `finish` the database is incomplete: servers refuse it.

        Raises:
            ConfigError: it has servers, or its tables cannot be created.
        """
        await migrate(self._connection, self._name, moving=True)
        async with self._connection.transaction():
            await self._connection.execute(_CREATE_POSITION)
            await self._connection.execute(f"INSERT INTO dragoman_meta VALUES ('{MOVING}', 1) ON CONFLICT DO NOTHING")
            await self._connection.execute(
                "INSERT INTO moved_stores (fingerprint, source, at_table, at_row) VALUES ($1, $2, $3, $4) "
                "ON CONFLICT DO NOTHING",
                fingerprint,
                source,
                position.table,
                position.rows,
            )
        await self._refuse_servers()  # one may have started before the mark was there

    async def _refuse_servers(self) -> None:
        names = [name for (name,) in await self._connection.fetch(_ALIVE)]
        if names:
            raise ConfigError(f"{self._name} has servers: stop them first: {', '.join(names)}")

    async def prepare(self, plugin_tables: Iterable[TaskTable], days: Iterable[int]) -> None:
        """Make the tables of plug-ins and the partitions of days, where they are missing."""
        await create_tables(self._connection, plugin_tables)
        # An empty database may have been used before, and some day half dropped.
        for (day,) in await self._connection.fetch("SELECT day FROM days WHERE dropped"):
            await detach_day(self._connection, day)
            await self._connection.execute("DELETE FROM days WHERE day = $1", day)
        await self._connection.execute(f"UPDATE days SET checked = day::bigint << {DAY_BITS}, cleared = 0")
        await attach_days(self._connection, days)

    async def write(self, copied: CopiedRows, fingerprint: str) -> None:
        """Write rows, and the position after them, in one transaction."""
        table = self._tables[copied.table]
        async with self._connection.transaction():
            await self._connection.copy_records_to_table(
                table.name, records=self._tables.convert(copied.table, copied.rows), columns=table.names
            )
            await self._connection.execute(
                "UPDATE moved_stores SET at_table = $2, at_row = $3 WHERE fingerprint = $1",
                fingerprint,
                copied.table,
                copied.end,
            )

    async def compare(self, copied: CopiedRows) -> Difference | None:
        """Compare rows with those that are stored, value by value; None when all are equal."""
        table = self._tables[copied.table]
        rows = list(self._tables.convert(copied.table, copied.rows, again=True))
        arrays = [list(column) for column in zip(*rows, strict=True)]
        count, key = await self._connection.fetchrow(_comparison(table), *arrays)
        return Difference(copied.table, count, key) if count else None

    async def stored_secrets(self, rows: Sequence[Row]) -> list[bytes | None]:
        """The secrets of webhooks as they are stored, in the order of these rows of the source."""
        keys = [row[:3] for row in self._tables.convert("pushes", rows, again=True)]
        found = await self._connection.fetch(
            "SELECT p.secrets FROM unnest($1::bigint[], $2::text[]) WITH ORDINALITY AS i (task, id, place) "
            "LEFT JOIN pushes p ON p.task = i.task AND p.id = i.id ORDER BY i.place",
            [task for _, task, _ in keys],
            [push_id for _, _, push_id in keys],
        )
        return [secrets for (secrets,) in found]

    async def complete(self, source: str, node: str | None, contexts: Iterable[tuple[int, str]]) -> None:
        """Write what follows from the rows: counters, turns, and the next numbers. May be repeated.

        `node` has the sessions of these conversations, each with the number of its scope.
        """
        homes = list(contexts)
        async with self._connection.transaction():
            await self._connection.execute(_READ_WHOLE_TABLES)
            await self._connection.execute(_ENTER_NODE, FORMER_NODE, source, VERSION)
            await self._connection.execute("DELETE FROM state_counts")
            await self._connection.execute(_COUNT_STATES)
            await self._connection.execute(_GIVE_TURNS)
            await self._connection.execute(_SET_NUMBERS)
            for table, column in _SEQUENCES.items():
                await self._connection.execute(
                    f"SELECT setval(pg_get_serial_sequence('{table}', '{column}'), "
                    f'max("{column}")) FROM "{table}" HAVING max("{column}") IS NOT NULL'
                )
            if homes:
                await self._connection.execute(
                    _SET_HOME, [scope for scope, _ in homes], [context_id for _, context_id in homes], node
                )

    async def finish(self, fingerprint: str) -> None:
        """Make the database one that servers use, with statistics for the planner. From here on it is complete."""
        await self._refuse_servers()
        names = {self._tables[name].name for name in CONTENTS} | {"state_counts"}
        await self._connection.execute(f"ANALYZE {', '.join(map(_quoted, sorted(names)))}")
        async with self._connection.transaction():
            await self._connection.execute("SET LOCAL synchronous_commit = on")
            await self._connection.execute(f"DELETE FROM dragoman_meta WHERE key = '{MOVING}'")
            await self._connection.execute(
                "UPDATE moved_stores SET ended = clock_timestamp() WHERE fingerprint = $1", fingerprint
            )

    async def counts(self, plugin_tables: Iterable[TaskTable]) -> StoreCounts:
        """Count everything as the source does."""
        async with self._connection.transaction():
            await self._connection.execute(_READ_WHOLE_TABLES)
            rows = {name: await self._count(f'"{self._tables[name].name}"') for name in CONTENTS}
            rows["tasks"] = await self._count(f"tasks WHERE {LISTED}")
            rows["drafts"] = rows["draft_snapshots"] = await self._count(f"tasks WHERE state = {DRAFT}")
            rows["snapshots"] -= rows["draft_snapshots"]
            rows["contexts"] = await self._count("contexts WHERE state IS NOT NULL")
            for table in plugin_tables:
                rows[table.name] = await self._count(_quoted(table.name))
            states: dict[State, int] = {}
            for state, tasks in await self._connection.fetch(
                f"SELECT state, sum(tasks)::bigint FROM state_counts WHERE scope <> {ALL_SCOPES} GROUP BY state "
                "HAVING sum(tasks) <> 0 ORDER BY state"
            ):
                states[STATES[state]] = tasks
        return StoreCounts(rows, states)

    async def _count(self, source: str) -> int:
        return await self._connection.fetchval(f"SELECT count(*) FROM {source}")


async def _lock(connection: PostgresConnection, name: str) -> None:
    """Keep others from migrating, and from retention. Raises ConfigError when they do not end soon."""
    try:
        # The session of a migration that was killed ends when it notices that.
        await connection.execute(f"SET lock_timeout = '{_LOCK_SECONDS}s'")
        for lock in (_MIGRATE_LOCK, DAYS_LOCK):
            await connection.execute(f"SELECT pg_advisory_lock({LOCK_SPACE}, {lock})")
        await connection.execute(f"SET lock_timeout = '{_WAIT_SECONDS}s'")
    except Exception as error:
        if is_conflict(error):
            raise ConfigError(f"{name} is in use: another migration, or a server: wait, or stop it") from None
        raise


def _quoted(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""'))


def _comparison(table: TargetTable) -> str:
    """The statement that counts the rows which are not stored as they are given, and has the key of one of them."""
    names = table.names
    types = [column.rpartition(" ")[2] for column in table.columns]
    given = ", ".join(f"${place}::{type_}[]" for place, type_ in enumerate(types, 1))
    keys = " AND ".join(f"t.{_quoted(name)} = i.{_quoted(name)}" for name in table.key)
    values = " AND ".join(
        f"t.{_quoted(name)} IS NOT DISTINCT FROM i.{_quoted(name)}"
        for name in names
        if name not in table.key and name != table.opaque
    )
    key = ", ".join(f"i.{_quoted(name)}::text" for name in table.key)
    return f"""
SELECT count(*), min(concat_ws(', ', {key})) FROM unnest({given}) AS i ({", ".join(map(_quoted, names))})
WHERE NOT EXISTS (SELECT 1 FROM {_quoted(table.name)} t WHERE {keys} AND {values or "true"})
"""
