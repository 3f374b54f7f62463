"""Checks of the standbys of a database for `dragoman doctor`: what a promotion can lose, and whether commits wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dragoman.net.postgres import PostgresConnection
from dragoman.stores.administration import HealthFinding
from dragoman.telemetry.printable import format_bytes

# A commit that waits so long for a standby waits for one that is gone.
LONG_COMMIT = 2.0
# What a role without rights sees of a standby is that there is one. Of its own sessions it sees all.
_STANDBYS = """
SELECT current_setting('synchronous_standby_names') AS configured,
    current_setting('synchronous_commit') AS synchronous_commit,
    count(*) AS standbys, count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')) AS synchronous,
    count(*) FILTER (WHERE sync_state IS NULL) AS hidden,
    max(pg_wal_lsn_diff(pg_current_wal_lsn(), flush_lsn))::bigint AS behind,
    (SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'
        AND query_start < clock_timestamp() - make_interval(secs => $1)) AS waiting
FROM pg_stat_replication
"""
_WITHOUT = "ALTER SYSTEM SET synchronous_standby_names = ''` and `SELECT pg_reload_conf()"


class StandbyFacts(NamedTuple):
    """What a primary knows of its standbys.

    `configured` is synchronous_standby_names, and `synchronous_commit` the setting of servers. `hidden` counts the
    standbys of which this role may see nothing. `behind` is how many bytes the last one lacks, `waiting` how many
    commits have waited for a standby for long.
    """

    configured: str
    synchronous_commit: str
    standbys: int
    synchronous: int
    hidden: int
    behind: int | None
    waiting: int


async def examine_standbys(connection: PostgresConnection, hosts: int) -> list[HealthFinding]:
    """Check the standbys of a primary; `hosts` is how many the URL names."""
    facts = StandbyFacts(*await connection.fetchrow(_STANDBYS, LONG_COMMIT))
    return [*check_standbys(facts), *check_hosts(facts, hosts)]


def check_standbys(facts: StandbyFacts) -> Iterator[HealthFinding]:
    """Say what a promotion can lose, and whether commits wait."""
    names = f"synchronous_standby_names = {facts.configured!r}"
    start = f"start the standby; if it is lost, write without one until there is another: `{_WITHOUT}`"
    if facts.waiting:
        commits = "1 commit waits" if facts.waiting == 1 else f"{facts.waiting} commits wait"
        yield HealthFinding("FAIL", "standbys", f"{commits} for a standby ({names})", start)
    elif facts.configured and not facts.synchronous and not facts.hidden:
        yield HealthFinding("FAIL", "standbys", f"{names}, and none of them is connected: commits wait", start)
    elif not facts.standbys:
        yield HealthFinding("ok", "standbys", "none")
    elif not facts.configured:
        lag = "" if facts.behind is None else f", up to {format_bytes(facts.behind)} behind"
        says = f"{facts.standbys}, all asynchronous{lag}: promoting one can lose the last acknowledged events"
        yield HealthFinding("warn", "standbys", says, "set synchronous_standby_names if nothing may be lost")
    elif facts.hidden:
        do = "to see which are synchronous, GRANT pg_read_all_stats to the role of the servers"
        yield HealthFinding("ok", "standbys", f"{facts.standbys}, {names}", do)
    else:
        yield HealthFinding("ok", "standbys", f"{facts.standbys}, {facts.synchronous} of them synchronous")
    if facts.synchronous_commit not in ("on", "remote_apply"):
        says = f"the URL sets synchronous_commit = {facts.synchronous_commit}: what was acknowledged can be lost"
        yield HealthFinding("warn", "standbys", says, "remove it from the URL: servers set it to on themselves")


def check_hosts(facts: StandbyFacts, hosts: int) -> Iterator[HealthFinding]:
    """Say when nodes could not find a standby that is promoted, or when a host of the URL is none."""
    if facts.standbys < hosts - 1:
        standbys = f"{facts.standbys or 'no'} {'standby follows' if facts.standbys == 1 else 'standbys follow'}"
        says = f"the URL names {hosts} hosts, and {standbys} the primary"
        yield HealthFinding("warn", "hosts", says, "start the others, or remove them from the URL")
    if facts.standbys and hosts == 1:
        yield HealthFinding(
            "ok",
            "hosts",
            "the URL names one host",
            "add the standbys (postgresql://…@one,two/…), unless the address moves with the primary",
        )
