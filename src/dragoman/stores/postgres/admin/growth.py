"""What grows in a store in PostgreSQL, and what to set about it, for `dragoman doctor`. Nothing is written."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from dragoman.stores.administration import HealthFinding
from dragoman.stores.postgres.sql.partition import DAYS_AHEAD, MS_PER_DAY, READ_TODAY, date_of, first_number
from dragoman.stores.postgres.sql.retention import CLEAR_AFTER
from dragoman.stores.postgres.sql.schema import ALL_SCOPES, ENDED
from dragoman.telemetry.printable import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dragoman.net.postgres import PostgresConnection

# So many ended tasks, the oldest of so many days ago, look as if nobody had thought of deleting them.
MANY_TASKS, OLD_DAYS = 1_000_000, 30

_DAYS = """
SELECT d.day, d.cutoff_ms, d.checked, d.dropped, coalesce(pg_total_relation_size(to_regclass('events_' || d.day)), 0)
FROM days d ORDER BY d.day
"""
_HOLDER = "SELECT id, state, status_ms FROM tasks WHERE number = $1"
_OLDEST = f"SELECT status_ms FROM tasks WHERE {ENDED} ORDER BY status_ms LIMIT 1"
_ENDED = f"SELECT coalesce(sum(tasks), 0)::bigint FROM state_counts WHERE scope = {ALL_SCOPES}"
_RESULTS = "SELECT sum(pg_total_relation_size(t)) FROM unnest(ARRAY['tasks', 'snapshots', 'notes']::regclass[]) t"


class DayFacts(NamedTuple):
    """A day with events: see `days` in the schema; and its size in bytes."""

    day: int
    cutoff_ms: int
    checked: int
    dropped: bool
    size: int


class Holder(NamedTuple):
    """A task because of which a day cannot be dropped."""

    id: str
    state: int
    status_ms: int

    @property
    def has_ended(self) -> bool:
        """True when it has ended, and is only too young."""
        return f"{self.state}" in ENDED.partition("(")[2]


async def examine_growth(connection: PostgresConnection) -> list[HealthFinding]:
    """Say what grows in a database whose tables have partitions."""
    today: int = await connection.fetchval(READ_TODAY)
    days = [DayFacts(*row) for row in await connection.fetch(_DAYS)]
    held = next((day for day in days if day.day <= today - CLEAR_AFTER and not day.dropped), None)
    holder = None if held is None else await connection.fetchrow(_HOLDER, held.checked)
    ended, oldest_ms = await connection.fetchval(_ENDED), await connection.fetchval(_OLDEST)
    return [
        check_days(days, today),
        *check_held(held, None if holder is None else Holder(*holder)),
        check_ended(ended, oldest_ms, await connection.fetchval(_RESULTS), int(time.time() * 1000)),
    ]


def check_days(days: Sequence[DayFacts], today: int) -> HealthFinding:
    """Say how large the events are, and check that there are partitions for the days ahead."""
    past = [day for day in days if day.day <= today]
    whole = sum(day.size for day in days)
    latest = next((day for day in reversed(past) if day.day == today - 1), None)
    says = f"{format_bytes(whole)} of events, of {len(past)} {'day' if len(past) == 1 else 'days'}"
    if latest is not None:
        says += f"; {format_bytes(latest.size)} yesterday"
    ahead = max((day.day for day in days), default=today) - today
    if ahead < DAYS_AHEAD - 2:
        do = "a running server makes them every minute: its log says why it cannot"
        return HealthFinding("warn", "events", f"{says}; there are partitions for {max(ahead, 0)} days ahead only", do)
    return HealthFinding("ok", "events", says)


def check_held(day: DayFacts | None, holder: Holder | None) -> Iterable[HealthFinding]:
    """Say why the events of the oldest day are still there. `holder` is the task that was found to need them."""
    if day is None:
        return
    says = f"those of {date_of(day.day)} ({format_bytes(day.size)}) are kept"
    if day.cutoff_ms < 0:
        do = "set limits_compact, in seconds, to drop them some time after their tasks have ended"
        yield HealthFinding("warn", "events", f"{says}: no rule deletes them", do)
    elif holder is not None and not holder.has_ended and day.checked >= first_number(day.day):
        since = datetime.fromtimestamp(holder.status_ms / 1000, UTC)
        do = "cancel it, if nobody will answer; meanwhile the events of all others are deleted one by one"
        says += f", because task {holder.id} has been waiting or working since {since:%Y-%m-%d}"
        yield HealthFinding("ok", "events", says, do)


def check_ended(tasks: int, oldest_ms: int | None, size: int, now_ms: int) -> HealthFinding:
    """Say how many tasks have ended and are kept."""
    if oldest_ms is None or not tasks:
        return HealthFinding("ok", "ended tasks", "none")
    days = (now_ms - oldest_ms) // MS_PER_DAY
    says = f"{tasks}, the oldest of {max(days, 0)} days ago; {format_bytes(size)} with their results"
    if tasks >= MANY_TASKS and days >= OLD_DAYS:
        do = "set limits_keep, in seconds, or limits_keep_tasks, unless they are to be kept forever"
        return HealthFinding("warn", "ended tasks", says, do)
    return HealthFinding("ok", "ended tasks", says)
