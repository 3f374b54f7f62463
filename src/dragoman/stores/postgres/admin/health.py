"""Health checks of a store in PostgreSQL for `dragoman doctor`. Nothing is written.

Each check is a function of a few facts, so that it can be tried with facts that no test server has.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dragoman.model.error import ConfigError
from dragoman.net.postgres import PostgresConnection
from dragoman.stores.administration import HealthFinding, NodeStatus, check_schema
from dragoman.stores.postgres.admin.growth import examine_growth
from dragoman.stores.postgres.admin.nodes import check_fleet, find_unserved, list_nodes
from dragoman.stores.postgres.admin.standbys import examine_standbys
from dragoman.stores.postgres.sql import schema
from dragoman.stores.postgres.sql.database import POOL_SIZE
from dragoman.telemetry.printable import format_bytes

# The oldest version of PostgreSQL that the tests run on.
TESTED_VERSION = 15
# The most connections that a node keeps: for commits, for reads and claims, for its lease, wake-ups and users.
NODE_CONNECTIONS = 1 + POOL_SIZE + 3
MAX_CLOCK_DIFFERENCE = 1.0
LARGE_TABLES = 4
# A table with fewer rows needs no statistics.
FEW_ROWS = 1000
LONG_TRANSACTION = 3600.0
# How long work may wait for a node, in seconds, until that is worth a warning.
LONG_WAIT = 60.0
FULL_QUEUE = 0.25

_SERVER = """
SELECT current_setting('server_version') AS version, current_setting('server_version_num')::int AS number,
    current_setting('fsync') AS fsync,
    current_setting('full_page_writes') AS full_page_writes,
    current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int AS connections,
    (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS connected,
    (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'dragoman bus')
        AS listeners,
    pg_backend_pid() AS pid,
    coalesce(inet_server_addr() = inet_client_addr() OR inet_server_addr() << '127.0.0.0/8', true) AS is_local,
    (SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid() AND ssl) AS tls,
    pg_notification_queue_usage() AS notices,
    (SELECT extract(epoch FROM max(clock_timestamp() - xact_start))::float8 FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()) AS longest
"""
# A partition counts for its table; one with few rows needs no statistics.
_TABLES = f"""
SELECT coalesce(p.relname, s.relname) AS name, sum(pg_total_relation_size(s.relid))::bigint AS size,
    sum(s.n_live_tup)::bigint AS live, sum(s.n_dead_tup)::bigint AS dead, bool_and(
        s.last_analyze IS NOT NULL OR s.last_autoanalyze IS NOT NULL OR s.n_live_tup <= {FEW_ROWS}
    ) AS analyzed
FROM pg_stat_user_tables s LEFT JOIN pg_inherits i ON i.inhrelid = s.relid LEFT JOIN pg_class p ON p.oid = i.inhparent
WHERE s.schemaname = current_schema() GROUP BY 1 ORDER BY size DESC
"""
_WAITING = """
SELECT count(*) AS tasks, extract(epoch FROM max(clock_timestamp() - queued_at))::float8 AS longest FROM tasks
WHERE owner IS NULL AND state IN (1, 2) AND queued_at < clock_timestamp() - make_interval(secs => $1)
"""


class TableFacts(NamedTuple):
    """A table: its size in bytes with its indexes, its live and dead rows, and whether it was ever analyzed."""

    name: str
    size: int
    live: int
    dead: int
    analyzed: bool


async def examine(connection: PostgresConnection, name: str, hosts: int = 1) -> list[HealthFinding]:
    """Check the database of a connection; `name` is what texts call it, `hosts` how many its URL names."""
    facts = await connection.fetchrow(_SERVER)
    findings = [
        check_version(facts["version"], facts["number"]),
        check_path(connection.get_server_pid(), facts["pid"]),
        check_encryption(facts["tls"], is_local=facts["is_local"]),
        check_durability(facts["fsync"], facts["full_page_writes"]),
        *await examine_standbys(connection, hosts),
        await _check_clock(connection),
    ]
    try:
        version = await schema.check_version(connection, name)
    except ConfigError as error:
        return [*findings, HealthFinding("FAIL", "schema", str(error))]
    findings.append(check_schema(version, schema.VERSION, "no tables yet, the next start makes them"))
    if version == 0:
        return findings
    nodes = await list_nodes(connection)
    tasks, longest = await connection.fetchrow(_WAITING, LONG_WAIT)
    return [
        *findings,
        *check_nodes(nodes),
        *await find_unserved(connection, nodes),
        check_waiting(tasks, longest),
        check_connections(facts["connections"], facts["connected"], len(nodes)),
        check_listeners(facts["listeners"], len(nodes)),
        check_notices(facts["notices"]),
        check_transactions(facts["longest"]),
        *check_tables([TableFacts(*row) for row in await connection.fetch(_TABLES)]),
        *await examine_growth(connection),
    ]


async def _check_clock(connection: PostgresConnection) -> HealthFinding:
    before = time.time()
    there: float = await connection.fetchval("SELECT extract(epoch FROM clock_timestamp())::float8")
    after = time.time()
    return check_clock(there - (before + after) / 2, (after - before) / 2)


# -- the server --------------------------------------------------------------------------------------------------------


def check_version(version: str, number: int) -> HealthFinding:
    """Check the version of PostgreSQL."""
    if number // 10_000 < TESTED_VERSION:
        says = f"{version}, older than what Dragoman is tested with"
        return HealthFinding("warn", "postgresql", says, f"upgrade it to {TESTED_VERSION} or newer")
    return HealthFinding("ok", "postgresql", version)


def check_path(connected: int, answering: int) -> HealthFinding:
    """Check whether the process that was connected to is the one that answers. Otherwise a pooler is in between."""
    if connected == answering:
        return HealthFinding("ok", "pooler", "none")
    return HealthFinding(
        "warn",
        "pooler",
        "a connection pooler is in between, in session mode: it saves nothing, as nodes keep their connections",
        "use the address of PostgreSQL itself",
    )


def check_encryption(version: str | None, *, is_local: bool) -> HealthFinding:
    """Check that the connection is encrypted, unless it stays on this machine. `version` is that of TLS."""
    if version is not None:
        return HealthFinding("ok", "tls", version)
    if is_local:
        return HealthFinding("ok", "tls", "none: the connection stays on this machine")
    return HealthFinding(
        "warn", "tls", "the connection is not encrypted", "add ?sslmode=verify-full to the URL, or ?sslmode=require"
    )


def check_durability(fsync: str, full_page_writes: str) -> HealthFinding:
    """Check that what was committed survives a crash of the machine."""
    off = [name for name, value in (("fsync", fsync), ("full_page_writes", full_page_writes)) if value != "on"]
    if off:
        return HealthFinding(
            "FAIL",
            "durability",
            f"{' and '.join(off)} = off: a crash of its machine can destroy the database",
            "turn it on in postgresql.conf, unless everything in it may be lost",
        )
    return HealthFinding("ok", "durability", "fsync = on")


def check_clock(difference: float, error: float) -> HealthFinding:
    """Check the difference between the clocks of this machine and of the database, in seconds."""
    says = f"this machine and the database differ by {abs(difference):.3f} s (± {error:.3f})"
    if abs(difference) - error > MAX_CLOCK_DIFFERENCE:
        return HealthFinding("warn", "clock", says, "synchronize the clocks, as with chrony or systemd-timesyncd")
    return HealthFinding("ok", "clock", says)


def check_connections(limit: int, connected: int, nodes: int) -> HealthFinding:
    """Check that there are connections for the nodes that run, and for one more."""
    says = f"{connected} of {limit} in use; a node needs {NODE_CONNECTIONS}, and {nodes} run"
    if limit - connected < NODE_CONNECTIONS:
        return HealthFinding("warn", "connections", says, "raise max_connections: no other node could connect")
    return HealthFinding("ok", "connections", says)


def check_listeners(listeners: int, nodes: int) -> HealthFinding:
    """Check that every node listens for wake-ups."""
    says = f"{listeners} of {nodes} nodes listen for wake-ups" if listeners < nodes else "every node listens"
    if listeners < nodes:
        return HealthFinding("warn", "wake-ups", says, "without them, streams of other nodes are up to 15 s late")
    return HealthFinding("ok", "wake-ups", says)


def check_notices(usage: float) -> HealthFinding:
    """Check how full the queue of NOTIFY is. When it is full, wake-ups fail."""
    says = f"{usage:.0%} of the NOTIFY queue is in use"
    if usage > FULL_QUEUE:
        return HealthFinding("warn", "notify", says, "end the session that has been in a transaction for long")
    return HealthFinding("ok", "notify", says)


def check_transactions(longest: float | None) -> HealthFinding:
    """Check that no transaction stays open, which would keep dead rows and notices."""
    if longest is not None and longest > LONG_TRANSACTION:
        return HealthFinding(
            "warn",
            "vacuum",
            f"a transaction has been open for {longest / 3600:.1f} hours, so dead rows cannot be removed",
            "find it with `SELECT pid, query FROM pg_stat_activity ORDER BY xact_start`, and end it",
        )
    return HealthFinding("ok", "vacuum", "no open transaction keeps dead rows")


# -- the store ---------------------------------------------------------------------------------------------------------


def check_nodes(nodes: Sequence[NodeStatus]) -> Iterable[HealthFinding]:
    """Say which nodes run: those that were not declared dead."""
    if not nodes:
        yield HealthFinding("ok", "nodes", "no server is running")
    for node in nodes:
        says = f"{node.name}, Dragoman {node.version}, {', '.join(node.agents)}: seen {node.age:.1f} s ago"
        if node.state == "late":
            do = "it has crashed or cannot reach the database; its tasks are taken over as soon as another node runs"
            yield HealthFinding("warn", "nodes", says, do)
        else:
            yield HealthFinding("ok", "nodes", says)
    yield from check_fleet(nodes)


def check_waiting(tasks: int, longest: float | None) -> HealthFinding:
    """Check that no task waits for a node for long."""
    if not tasks:
        return HealthFinding("ok", "queue", "no task has waited for a node for more than a minute")
    says = f"{tasks} {'task waits' if tasks == 1 else 'tasks wait'} for a node, the oldest for {longest or 0:.0f} s"
    do = "start another node with the agents of these tasks, or raise limits_runs; a conversation runs one at a time"
    return HealthFinding("warn", "queue", says, do)


def check_tables(tables: Sequence[TableFacts]) -> Iterable[HealthFinding]:
    """Say how large the tables are, and what they miss: statistics, or a vacuum."""
    largest = ", ".join(f"{table.name} {format_bytes(table.size)}" for table in tables[:LARGE_TABLES])
    whole = sum(table.size for table in tables)
    yield HealthFinding("ok", "size", f"{format_bytes(whole)}; the largest tables: {largest}")
    for table in tables:
        if table.live > FEW_ROWS and not table.analyzed:
            yield HealthFinding(
                "warn",
                "statistics",
                f"{table.name} was never analyzed, so its queries may be slow",
                f"ANALYZE {table.name}",
            )
        if table.dead > FEW_ROWS and table.dead > table.live:
            yield HealthFinding(
                "warn",
                "dead rows",
                f"{table.name} has {table.dead} dead rows and {table.live} live ones",
                f"VACUUM {table.name}; check that autovacuum is on",
            )
