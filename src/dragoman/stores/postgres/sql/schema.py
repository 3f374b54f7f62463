"""The tables in PostgreSQL, and the migrations from older versions.

Tables are in the first schema of the search path. A migration is forward only, in one transaction, and by one server at
a time. `oldest` is the oldest version of the program's tables that works with the database as it is, so that servers of
two neighboring versions run side by side while they are upgraded one after the other. So a migration must not make them
wait: a lock that is not granted soon is asked for again later.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NamedTuple

from dragoman.model.error import ConfigError
from dragoman.net.postgres import is_conflict, is_forbidden
from dragoman.stores.postgres.sql.partition import DAY_BITS, attach_ahead

if TYPE_CHECKING:
    from dragoman.net.postgres import PostgresConnection

logger = logging.getLogger("dragoman.store")

# The state of a draft, which no task has.
DRAFT = -1
# Must be spelled as in the indexes, or PostgreSQL does not use them.
UNFINISHED = "state IN (1, 2)"
ENDED = "state IN (3, 4, 5, 7)"
WAITING = "state IN (6, 8)"
# What takes messages that answer nothing: submitted, working and auth-required.
NOTED = "state IN (1, 2, 8)"
LISTED = "state >= 0"
# The scope under which `state_counts` counts the ended tasks of all scopes.
ALL_SCOPES = 0
# The key in `dragoman_meta` that is there while `dragoman migrate` fills the database.
MOVING = "moving"
# Keys of advisory locks: the letters "drag", and what is locked.
LOCK_SPACE = 0x64726167
MIGRATION_LOCK, SWEEP_LOCK, DAYS_LOCK = 1, 2, 3
# How long a migration waits for a lock, in milliseconds, while others wait behind it; how long until it tries again, in
# seconds, and how often.
LOCK_MS, LOCK_PAUSE, LOCK_TRIES = 500, 1.0, 60

_TABLES = f"""
CREATE TABLE dragoman_meta (key text PRIMARY KEY, value bigint NOT NULL);
INSERT INTO dragoman_meta VALUES ('version', 0), ('oldest', 0), ('numbers', 0);

-- One row per server process. `beat` changes with every renewal of its lease; a node that is dead stays dead, and
-- was `stopped` if it said so itself. `lease` is in seconds, `keys` are fingerprints of its secrets, `tables` is the
-- version of the tables that it knows. A node whose `runs` is false only accepts messages, or stops.
CREATE TABLE nodes (
    id bigint PRIMARY KEY, name text NOT NULL, agents text[] NOT NULL, version text NOT NULL,
    lease float8 NOT NULL, keys text[] NOT NULL, tables smallint NOT NULL DEFAULT 1, runs boolean NOT NULL DEFAULT true,
    beat bigint NOT NULL DEFAULT 1, joined timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen timestamptz NOT NULL DEFAULT clock_timestamp(), dead boolean NOT NULL DEFAULT false,
    stopped boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50);
-- What a node writes to wait for its earlier commits, and to prove that it can write.
CREATE TABLE probes (node bigint PRIMARY KEY, value bigint NOT NULL);

CREATE TABLE scopes (
    scope bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    agent text COLLATE "C" NOT NULL, tenant text COLLATE "C" NOT NULL, owner text COLLATE "C" NOT NULL,
    UNIQUE (agent, tenant, owner)
);

-- Tasks, and drafts with state -1, which no query shows. `agent` is that of the scope: work is taken by agent. `owner`
-- is the node whose claim `epoch` numbers: only it writes, and only at the generation it has read. `begun` is true once
-- the agent's code may have been called for the last message. `queued_at` is when that message arrived, which decides
-- whose turn it is in a context: numbers come in blocks and say nothing across nodes. `followed` is true when a task of
-- the same context waits for this one. `mail` numbers posted messages.
CREATE TABLE tasks (
    number bigint PRIMARY KEY, id text COLLATE "C" NOT NULL UNIQUE, scope bigint NOT NULL, agent text COLLATE "C",
    context_id text COLLATE "C" NOT NULL, origin text NOT NULL, state smallint NOT NULL, status_ms bigint NOT NULL,
    generation integer NOT NULL, created_ms bigint NOT NULL,
    owner bigint, epoch integer NOT NULL, begun boolean NOT NULL DEFAULT false, attempts integer NOT NULL DEFAULT 0,
    mail integer NOT NULL DEFAULT 0, followed boolean NOT NULL DEFAULT false,
    queued_at timestamptz NOT NULL DEFAULT clock_timestamp(), claimed_at timestamptz
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);
CREATE INDEX tasks_newest ON tasks (scope, status_ms, number) WHERE state >= 0;
CREATE INDEX tasks_by_state ON tasks (scope, state, status_ms, number) WHERE state >= 0;
CREATE INDEX tasks_by_context ON tasks (scope, context_id, status_ms, number) WHERE state >= 0;
CREATE INDEX tasks_unfinished ON tasks (scope, context_id, queued_at, number) WHERE state IN (1, 2);
CREATE INDEX tasks_queued ON tasks (agent, number) WHERE state IN (1, 2) AND owner IS NULL;
-- The same tasks by context. It says so in other words: each query has its own index, however small the tables look.
CREATE INDEX tasks_behind ON tasks (scope, context_id) WHERE state IN (1, 2) AND coalesce(owner, 0) = 0;
CREATE INDEX tasks_drafts ON tasks (number) WHERE state = -1;
CREATE INDEX tasks_owned ON tasks (owner, number) WHERE owner IS NOT NULL;
CREATE INDEX tasks_ended ON tasks (status_ms, number) WHERE state IN (3, 4, 5, 7);

-- `at_ms` is when an event was committed, by the clock of the database; NULL for events from before that column.
CREATE TABLE events (
    task bigint NOT NULL, generation integer NOT NULL, body bytea NOT NULL,
    at_ms bigint DEFAULT floor(date_part('epoch', now()) * 1000)::bigint, PRIMARY KEY (task, generation)
) PARTITION BY RANGE (task);
CREATE TABLE events_0 PARTITION OF events FOR VALUES FROM (0) TO ({1 << DAY_BITS});
-- `checked` is the first number of the day whose task may still need its events, and `cutoff_ms` the time before which
-- those below had ended. `cleared` is how far a row-by-row deletion has come. Until `kept_until`, nodes may have
-- numbers of the day.
CREATE TABLE days (
    day integer PRIMARY KEY, cutoff_ms bigint NOT NULL DEFAULT -1, checked bigint NOT NULL DEFAULT 0,
    cleared bigint NOT NULL DEFAULT 0, cleared_at timestamptz, kept_until timestamptz,
    dropped boolean NOT NULL DEFAULT false
);
INSERT INTO days (day) VALUES (0);
-- `key` was made by who wrote the note, so that sending it again changes nothing; `note` gives the order.
CREATE TABLE notes (
    task bigint NOT NULL, key bigint NOT NULL, note bigint GENERATED ALWAYS AS IDENTITY,
    generation integer NOT NULL, kind text COLLATE "C" NOT NULL, mail integer NOT NULL, body bytea NOT NULL,
    PRIMARY KEY (task, key)
);
CREATE INDEX notes_mail ON notes (task, mail) WHERE mail > 0;
CREATE TABLE snapshots (
    task bigint PRIMARY KEY, generation integer NOT NULL, mail integer NOT NULL, body bytea NOT NULL
) WITH (fillfactor = 80);

-- Conversations that have a state, a turn or a home. `running` is the task whose turn it is, and `turn` changes with
-- every turn. `home` is the name of the node that has the sessions of the conversation: a node that is
-- started again under its name has them still. `given` is a parameter of ON CONFLICT, here
-- and below: in a stored row it means nothing.
CREATE TABLE contexts (
    scope bigint NOT NULL, context_id text COLLATE "C" NOT NULL, state bytea, running bigint,
    turn bigint NOT NULL DEFAULT 0, home text, given bigint, PRIMARY KEY (scope, context_id)
) WITH (fillfactor = 80);

-- Dedupe keys, with the number of the task that accepted the message, or the bare message that answered it. A key
-- without either is void: its task was deleted.
CREATE TABLE repeats (
    key bytea PRIMARY KEY, task bigint NOT NULL, task_id text COLLATE "C" NOT NULL, until_ms bigint NOT NULL,
    reply bytea, given bigint
);
CREATE INDEX repeats_old ON repeats (until_ms);

-- How many tasks there are: the sum over all nodes. Each node changes its own rows only: none waits for another.
CREATE TABLE state_counts (
    scope bigint NOT NULL, state smallint NOT NULL, node bigint NOT NULL, tasks bigint NOT NULL,
    PRIMARY KEY (scope, state, node)
) WITH (fillfactor = 50);
CREATE INDEX state_counts_of ON state_counts (node);

-- A webhook is owed the journal of its task after its cursor. `owner` is the node that delivers it.
CREATE TABLE pushes (
    push bigint GENERATED ALWAYS AS IDENTITY, task bigint NOT NULL, id text COLLATE "C" NOT NULL, dialect text NOT NULL,
    url text NOT NULL, secrets bytea NOT NULL, cursor integer NOT NULL, created_ms bigint NOT NULL,
    tries integer NOT NULL, failing_ms bigint NOT NULL, due_ms bigint NOT NULL, state smallint NOT NULL,
    error text NOT NULL, owner bigint, epoch integer NOT NULL DEFAULT 1, PRIMARY KEY (task, id)
) WITH (fillfactor = 80);
CREATE INDEX pushes_owned ON pushes (owner, push) WHERE state = 0;
CREATE INDEX pushes_woken ON pushes (owner) WHERE state = 0 AND due_ms = -1;
CREATE INDEX pushes_owed ON pushes (push) WHERE state <> 1;

-- Who may call. Names are compared as they are; `password` is an argon2 hash, or empty for those who have keys only.
CREATE TABLE users (
    "user" bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text COLLATE "C" NOT NULL UNIQUE,
    password text NOT NULL, created_ms bigint NOT NULL,
    epoch bigint NOT NULL DEFAULT 0, revoked boolean NOT NULL DEFAULT false
);
CREATE TABLE grants (
    "user" bigint NOT NULL, permission text COLLATE "C" NOT NULL, until_ms bigint, PRIMARY KEY ("user", permission)
);
CREATE TABLE api_keys (
    digest bytea PRIMARY KEY, "user" bigint NOT NULL, hint text NOT NULL, created_ms bigint NOT NULL, until_ms bigint
);
CREATE INDEX api_keys_of ON api_keys ("user");
"""


# The oldest version of the tables that is migrated: those below were never released.
OLDEST = 3


class _Migration(NamedTuple):
    """A step to the next version, and the oldest version of the program's tables that works with the result."""

    oldest: int
    statements: str


# What each version after the oldest one changes.
_MIGRATIONS = (
    # Accounts are not locked: these columns had no use.
    _Migration(3, "ALTER TABLE users DROP COLUMN failures, DROP COLUMN locked_until_ms"),
)
VERSION = OLDEST + len(_MIGRATIONS)


async def migrate(connection: PostgresConnection, name: str, *, moving: bool = False) -> None:
    """Create the tables, or migrate those of an older version. `name` is that of the database, for texts.

    With `moving`, another store is being moved into the database, so that it may be incomplete.

    Raises:
        ConfigError: the database is another program's or too new, has another encoding, or its role lacks rights; or it
            is incomplete.
    """
    try:
        await _migrate(connection, name, moving=moving)
    except Exception as error:
        if is_forbidden(error):
            raise no_rights_error(name, error) from None
        raise


async def attach_today(connection: PostgresConnection, name: str) -> None:
    """Make the partitions of today and the days ahead before a node gets task numbers: perhaps none was there for long.

    Raises:
        ConfigError: the role lacks rights.
    """
    before = await connection.fetchval("SELECT current_setting('lock_timeout')")  # perhaps the URL says so
    await connection.execute(f"SET lock_timeout = {LOCK_MS}")
    try:
        await attach_ahead(connection)
    except Exception as error:
        if is_forbidden(error):
            raise no_rights_error(name, error) from None
        if not is_conflict(error):
            raise
        logger.info("partitions are not made yet, because a transaction uses the events; a sweep tries again")
    await connection.fetchval("SELECT set_config('lock_timeout', $1, false)", before)


def no_rights_error(name: str, error: Exception | str) -> ConfigError:
    """Build the error for a role that lacks a right; `error` is which one."""
    return ConfigError(
        f"{name}: {error}: make the role of the servers the owner of the database (`ALTER DATABASE … OWNER TO …`) and "
        "of all its tables (`ALTER TABLE … OWNER TO …`), and use the same role for commands"
    )


async def _migrate(connection: PostgresConnection, name: str, *, moving: bool) -> None:
    if await check_version(connection, name, moving=moving) >= VERSION:
        return
    # Of the session, because there are several transactions.
    await connection.execute(f"SELECT pg_advisory_lock({LOCK_SPACE}, {MIGRATION_LOCK})")
    try:
        await connection.execute(f"SET lock_timeout = {LOCK_MS}")
        while (
            version := await check_version(connection, name, moving=moving)
        ) < VERSION:  # another server may have been faster
            logger.debug("migrating %s to version %d", name, version + 1)
            await _apply(connection, version, name)
    finally:
        if not connection.is_closed():
            await connection.execute("SET lock_timeout = 0")
            await connection.execute(f"SELECT pg_advisory_unlock({LOCK_SPACE}, {MIGRATION_LOCK})")


async def _apply(connection: PostgresConnection, version: int, name: str) -> None:
    """Make the tables, or apply the migration after a version.

    Raises:
        ConfigError: others do not give up a table, or a node is alive that would not work with the result.
    """
    migration = _MIGRATIONS[version - OLDEST if version else -1]
    for _ in range(LOCK_TRIES):
        try:
            if version:
                await _check_nodes(connection, version, migration.oldest, name)
            async with connection.transaction():
                await connection.execute(migration.statements if version else _TABLES)
                if not version:
                    await attach_ahead(connection)
                numbers = version + 1 if version else VERSION, migration.oldest
                await connection.execute("UPDATE dragoman_meta SET value = $1 WHERE key = 'version'", numbers[0])
                await connection.execute("UPDATE dragoman_meta SET value = $1 WHERE key = 'oldest'", numbers[1])
        except Exception as error:
            if not is_conflict(error):
                raise
            await asyncio.sleep(LOCK_PAUSE)
        else:
            return
    raise ConfigError(
        f"{name} cannot be migrated, because a transaction keeps its tables locked: wait for backups to end, or find "
        "it with `SELECT pid, query FROM pg_stat_activity ORDER BY xact_start`, and start again"
    )


async def _check_nodes(connection: PostgresConnection, version: int, oldest: int, name: str) -> None:
    """Raise ConfigError when a node is alive whose version is older than the `oldest` that works after a migration."""
    rows = await connection.fetch(
        "SELECT DISTINCT name, version FROM nodes WHERE NOT dead AND tables < $1 "
        "AND seen > clock_timestamp() - interval '1 minute' ORDER BY name",
        oldest,
    )
    if rows:
        nodes = ", ".join(f"{node} (Dragoman {release})" for node, release in rows)
        raise ConfigError(
            f"{name} cannot be migrated to version {version + 1} while nodes run that would not work with it: stop "
            f"{nodes}, or update them to a release in between first"
        )


async def check_version(connection: PostgresConnection, name: str, *, moving: bool = False) -> int:
    """Return the version of the tables; 0 when there are none yet. With `moving`, they may be incomplete.

    Raises:
        ConfigError: they are another program's, or too old or too new for this one, or cannot be created, or are
            incomplete.
    """
    schema = await connection.fetchval("SELECT current_schema()")
    if schema is None:
        raise ConfigError(
            f"{name} has no schema for new tables: create the one that search_path names, with "
            "`CREATE SCHEMA … AUTHORIZATION …` and the role of the servers"
        )
    # (`to_regclass` would answer from a cache, after another server has created the tables.)
    has_tables, is_ours = await connection.fetchrow(
        "SELECT count(*) > 0, coalesce(bool_or(relname = 'dragoman_meta'), false) FROM pg_class c "
        "WHERE relnamespace = quote_ident(current_schema())::regnamespace AND relkind IN ('r', 'p') "
        "AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.objid = c.oid AND d.deptype = 'e')"  # those of extensions
    )
    if not is_ours:
        if has_tables:
            raise ConfigError(
                f"{name} has tables of another program in the schema {schema}: use a database of its own, "
                "or a schema of its own with ?search_path=NAME"
            )
        encoding, may_create = await connection.fetchrow(
            "SELECT current_setting('server_encoding'), has_schema_privilege(current_schema(), 'CREATE')"
        )
        if encoding != "UTF8":
            raise ConfigError(f"{name} has the encoding {encoding}: create a database with ENCODING 'UTF8'")
        if not may_create:
            raise no_rights_error(name, f"permission denied for schema {schema}")
        return 0
    query = f"SELECT key, value FROM dragoman_meta WHERE key IN ('version', 'oldest', '{MOVING}')"
    rows = dict(await connection.fetch(query))
    if rows["version"] < OLDEST:
        raise ConfigError(
            f"{name} has tables of a Dragoman from before its first release (schema {rows['version']}, the oldest that "
            f"this one reads is {OLDEST}): use another --store"
        )
    if rows["oldest"] > VERSION:
        raise ConfigError(
            f"{name} was migrated by a newer Dragoman (schema {rows['version']}, this one has {VERSION}): "
            "upgrade this server, or use another --store"
        )
    if MOVING in rows and not moving:
        source = await connection.fetchval("SELECT source FROM moved_stores WHERE ended IS NULL")
        raise ConfigError(
            f"{name} is incomplete: {source} is being moved into it, or that was interrupted: run `dragoman migrate` "
            "again with the same file and database, and it goes on where it stopped"
        )
    return int(rows["version"])
