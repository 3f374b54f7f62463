"""Health checks of a store in PostgreSQL for `dragoman doctor`. Nothing is written.

Each check is a function of a few facts, so that it can be tried with facts that no test server has.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, NamedTuple

from dragoman.stores.administration import HealthFinding
from dragoman.telemetry.printable import format_bytes

# The oldest version of PostgreSQL that the tests run on.
TESTED_VERSION = 15
# What a node needs: writer, reader, lease, wake-ups (two) and users.
NODE_CONNECTIONS = 6
MAX_CLOCK_DIFFERENCE = 1.0
LARGE_TABLES = 4
# A table with fewer rows needs no statistics.
FEW_ROWS = 1000
LONG_TRANSACTION = 3600.0
# How long work may wait for a node, in seconds, until that is worth a warning.
LONG_WAIT = 60.0

_SERVER = """
SELECT current_setting('server_version') AS version, current_setting('server_version_num')::int AS number,
    pg_is_in_recovery() AS standby, current_setting('fsync') AS fsync,
    current_setting('full_page_writes') AS full_page_writes,
    current_setting('synchronous_commit') AS synchronous_commit,
    current_setting('synchronous_standby_names') AS synchronous_standbys,
    current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int AS connections,
    (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS connected,
    (SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'dragoman%' AND datname = current_database()
        AND pid <> pg_backend_pid()) AS own,
    (SELECT count(*) FROM pg_stat_replication) AS standbys,
    (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')) AS synchronous,
    pg_backend_pid() AS pid, inet_server_addr() IS NULL AS is_socket,
    (SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()) AS encrypted,
    (SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid()) AS tls,
    pg_notification_queue_usage() AS notices,
    (SELECT extract(epoch FROM max(clock_timestamp() - xact_start))::float8 FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()) AS longest
"""
_TABLES = """
SELECT relname AS name, pg_total_relation_size(relid) AS size, n_live_tup AS live, n_dead_tup AS dead,
    last_analyze IS NOT NULL OR last_autoanalyze IS NOT NULL AS analyzed
FROM pg_stat_user_tables WHERE schemaname = current_schema() ORDER BY size DESC
"""
_NODES = """
SELECT name, version, dead, extract(epoch FROM clock_timestamp() - seen)::float8 AS age FROM nodes ORDER BY name, seen
"""
_WAITING = """
SELECT count(*) AS tasks, extract(epoch FROM max(clock_timestamp() - queued_at))::float8 AS longest FROM tasks
WHERE owner IS NULL AND state IN (1, 2) AND queued_at < clock_timestamp() - make_interval(secs => $1)
"""


class NodeFacts(NamedTuple):
    """A node: its name and version, whether it was declared dead, and how many seconds ago it was seen."""

    name: str
    version: str
    dead: bool
    age: float


class TableFacts(NamedTuple):
    """A table: its size in bytes with its indexes, its live and dead rows, and whether it was ever analyzed."""

    name: str
    size: int
    live: int
    dead: int
    analyzed: bool


async def examine(connection: Any, lease: float) -> AsyncIterator[HealthFinding]:
    """Check a database that is connected; `lease` is the setting of the nodes, in seconds."""
    facts = await connection.fetchrow(_SERVER)
    yield check_version(facts["version"], facts["number"])
    yield check_path(connection.get_server_pid(), facts["pid"])
    yield check_encryption(facts["encrypted"], facts["tls"], is_local=facts["is_socket"])
    yield check_role(facts["standby"])
    yield check_durability(facts["fsync"], facts["full_page_writes"])
    yield check_standbys(facts["synchronous_standbys"], facts["standbys"], facts["synchronous"])
    yield await _check_clock(connection)


async def _check_clock(connection: Any) -> HealthFinding:
    before = time.time()
    there: float = await connection.fetchval("SELECT extract(epoch FROM clock_timestamp())::float8")
    after = time.time()
    return check_clock(there - (before + after) / 2, (after - before) / 2)


# -- the server --------------------------------------------------------------------------------------------------------


def check_version(version: str, number: int) -> HealthFinding:
    """Check the version of PostgreSQL."""
    major = number // 10_000
    if major < TESTED_VERSION:
        return HealthFinding("FAIL", "postgresql", f"{version} is too old", f"upgrade it to {TESTED_VERSION} or newer")
    return HealthFinding("ok", "postgresql", version)


def check_path(connected: int, answering: int) -> HealthFinding:
    """Check that nothing stands between: the process that was connected to is the one that answers."""
    if connected == answering:
        return HealthFinding("ok", "pooler", "none")
    return HealthFinding(
        "FAIL",
        "pooler",
        "a connection pooler is in between, and LISTEN and prepared statements need a connection of their own",
        "use the address of PostgreSQL itself; each node keeps only a few connections",
    )


def check_encryption(encrypted: bool | None, version: str | None, *, is_local: bool) -> HealthFinding:
    """Check that the connection is encrypted, unless it stays on this machine."""
    if encrypted:
        return HealthFinding("ok", "tls", f"{version}")
    if is_local:
        return HealthFinding("ok", "tls", "none, on this machine")
    return HealthFinding(
        "warn", "tls", "the connection is not encrypted", "add ?sslmode=verify-full to the URL, or ?sslmode=require"
    )


def check_role(standby: bool) -> HealthFinding:
    """Check that the database takes writes."""
    if standby:
        return HealthFinding(
            "FAIL",
            "role",
            "a standby, which takes no writes",
            "name the primary, or all hosts with ?target_session_attrs=read-write",
        )
    return HealthFinding("ok", "role", "primary")


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
    return HealthFinding("ok", "durability", "fsync = on; servers set synchronous_commit = on themselves")


def check_standbys(configured: str, standbys: int, synchronous: int) -> HealthFinding:
    """Say what a promotion of a standby can lose."""
    if not standbys and not configured:
        return HealthFinding("ok", "standbys", "none")
    if configured and not synchronous:
        return HealthFinding(
            "FAIL",
            "standbys",
            f"synchronous_standby_names = {configured!r}, and none of them is connected: commits wait",
            "start the standby, or take it out of synchronous_standby_names",
        )
    if not synchronous:
        return HealthFinding(
            "warn",
            "standbys",
            f"{standbys}, all asynchronous: promoting one can lose the last acknowledged events",
            "set synchronous_standby_names if nothing may be lost",
        )
    return HealthFinding("ok", "standbys", f"{standbys}, {synchronous} of them synchronous")


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


def check_notices(usage: float) -> HealthFinding:
    """Check how full the queue of NOTIFY is; a full one stops all commits that notify."""
    says = f"{usage:.0%} of the NOTIFY queue is in use"
    if usage > 0.25:
        return HealthFinding("warn", "notices", says, "end the session that has been in a transaction for long")
    return HealthFinding("ok", "notices", says)


def check_transactions(longest: float | None) -> HealthFinding:
    """Check that no transaction stays open, which would keep dead rows and notices."""
    if longest is not None and longest > LONG_TRANSACTION:
        return HealthFinding(
            "warn",
            "transactions",
            f"one has been open for {longest / 3600:.1f} hours, so dead rows cannot be removed",
            "find it with `SELECT pid, query FROM pg_stat_activity ORDER BY xact_start`, and end it",
        )
    return HealthFinding("ok", "transactions", "none is open for long")


# -- the store ---------------------------------------------------------------------------------------------------------


def check_nodes(nodes: Sequence[NodeFacts], lease: float) -> Iterable[HealthFinding]:
    """Say which nodes run, and which were not seen within their lease."""
    alive = [node for node in nodes if not node.dead]
    if not alive:
        yield HealthFinding("ok", "nodes", "no server is running")
    for node in alive:
        says = f"{node.name} ({node.version}), seen {max(node.age, 0):.1f} s ago"
        if node.age > lease:
            yield HealthFinding(
                "warn", "nodes", says, "it is declared dead as soon as another node has watched it for a whole lease"
            )
        else:
            yield HealthFinding("ok", "nodes", says)
    versions = sorted({node.version for node in alive})
    if len(versions) > 1:
        yield HealthFinding("warn", "nodes", f"they run {' and '.join(versions)}", "finish the upgrade of all nodes")


def check_waiting(tasks: int, longest: float | None, alive: int) -> HealthFinding:
    """Check that no task waits for a node for long."""
    if not tasks:
        return HealthFinding("ok", "waiting", "no task has waited for a node longer than a minute")
    says = f"{tasks} {'task waits' if tasks == 1 else 'tasks wait'} for a node, the longest for {longest or 0:.0f} s"
    if not alive:
        return HealthFinding("warn", "waiting", says, "start a server with the agents of these tasks")
    return HealthFinding(
        "warn", "waiting", says, "start a server with the agents of these tasks, or raise limits_runs or limits_tasks"
    )


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
