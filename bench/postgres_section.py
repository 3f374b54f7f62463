"""The tables of the report about stores on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable

from bench.job import Outcome
from bench.results import Row, Scenario
from bench.scenarios.postgres import (
    CHUNKS,
    NODES_BAR,
    RATE_BAR,
    READERS,
    SEND,
    SEND_MANY,
    SEND_TWO,
    STREAM,
    STREAM_BAR,
)
from bench.stats import Spread, ratios
from bench.tables import number, ranged, table

OURS = "dragoman, postgres"
SQLITE = "dragoman, sqlite"
THEIRS = "a2a-sdk, postgres"
Measure = Callable[[Outcome], float]


def postgres(scenario: Scenario) -> list[str]:
    """Sends and streams on PostgreSQL, and the bars."""
    return [
        "SendMessage that waits for a task with four events, and streams, on PostgreSQL as it is installed: `fsync` "
        "and `synchronous_commit` are on, every commit waits for the disk. SQLite and memory are beside it, and "
        "a2a-sdk with its `DatabaseTaskStore` on the same server. Every burst has a database of its own. All nodes "
        "are on the first core, and the CPU of two is added up. PostgreSQL runs where there is room, and its CPU is "
        "that of all its processes. Dragoman writes what several callers wait for in one commit, and each message "
        "takes two: the slower the disk and the fewer the callers, the more its rate depends on the disk.",
        _sends(scenario),
        f"SendStreamingMessage with {CHUNKS:,} chunks, {READERS} readers at once:",
        _streams(scenario),
        "Round by round, and the bars:",
        _bars(scenario),
    ]


def _sends(scenario: Scenario) -> str:
    rows = [
        [
            row.server,
            row.case,
            _at_least(row) + ranged(row.of(lambda outcome: outcome.rate)),
            f"{_middle(row, lambda one: one.p50_ms)} / {_middle(row, lambda one: one.p99_ms)}",
            ranged(row.of(_node)),
            _database(row, _postgres),
            str(row.errors),
        ]
        for row in scenario.rows
        if row.case != STREAM and row.outcomes
    ]
    head = ["server", "", "requests/s", "p50 / p99 ms", "node CPU µs/request", "PostgreSQL CPU µs/request", "errors"]
    return table(head, rows)


def _streams(scenario: Scenario) -> str:
    rows = [
        [
            row.server,
            _at_least(row) + ranged(row.of(lambda outcome: outcome.event_rate)),
            ranged(row.of(lambda outcome: outcome.event_cpu_us)),
            _database(row, lambda outcome: outcome.event_database_cpu_us),
            str(row.errors),
        ]
        for row in scenario.rows
        if row.case == STREAM and row.outcomes
    ]
    return table(["server", "chunks/s", "node CPU µs/chunk", "PostgreSQL CPU µs/chunk", "errors"], rows)


def _bars(scenario: Scenario) -> str:
    one, two = scenario.find(OURS, SEND), scenario.find(OURS, SEND_TWO)
    stream, sqlite = scenario.find(OURS, STREAM), scenario.find(SQLITE, STREAM)
    rows: list[list[str]] = []
    for case in (SEND, SEND_MANY):
        ours, theirs = scenario.find(OURS, case), scenario.find(THEIRS, case)
        if ours is not None and theirs is not None:
            rate = _ratio(ours, theirs, lambda outcome: outcome.rate)
            rows.append([f"{OURS} / {THEIRS}, {case}, requests/s", _times(rate), *_least(rate, RATE_BAR)])
            cost = _ratio(theirs, ours, _all)
            rows.append([f"{THEIRS} / {OURS}, {case}, CPU per request, PostgreSQL's included", _times(cost), "", ""])
    if one is not None and two is not None:
        cost = _ratio(two, one, _all)
        name = f"{OURS}, two nodes / one, 32 callers each, CPU per request, PostgreSQL's included"
        rows.append([name, _times(cost), *_most(cost, NODES_BAR)])
        rows.append(["of this the nodes", _times(_ratio(two, one, _node)), "", ""])
        rows.append(["of this PostgreSQL", _times(_ratio(two, one, _postgres)), "", ""])
    if stream is not None and sqlite is not None:
        cost = _ratio(stream, sqlite, lambda outcome: outcome.event_cpu_us)
        rows.append([f"{OURS} / {SQLITE}, node CPU per chunk", _times(cost), *_most(cost, STREAM_BAR)])
    return table(["ratio", "", "bar", "met"], rows)


def _node(outcome: Outcome) -> float:
    return outcome.cpu_us


def _postgres(outcome: Outcome) -> float:
    return outcome.database_cpu_us


def _all(outcome: Outcome) -> float:
    return outcome.cpu_us + outcome.database_cpu_us


def _ratio(row: Row, base: Row, what: Measure) -> Spread:
    return ratios([what(one) for one in row.outcomes], [what(one) for one in base.outcomes])


def _times(found: Spread) -> str:
    low, middle, high = (f"{one:.2f}" if one < 10 else number(one) for one in (found.low, found.median, found.high))
    return f"{middle}×" if low == high else f"{middle}× ({low}–{high})"  # noqa: RUF001


def _least(found: Spread, bar: float) -> list[str]:
    return [f"≥ {bar:g}×", "yes" if found.median >= bar else "**no**"]  # noqa: RUF001


def _most(found: Spread, bar: float) -> list[str]:
    return [f"≤ {bar:g}×", "yes" if found.median <= bar else "**no**"]  # noqa: RUF001


def _database(row: Row, what: Measure) -> str:
    return ranged(row.of(what)) if any(outcome.database_cpu_seconds for outcome in row.outcomes) else ""


def _middle(row: Row, what: Measure) -> str:
    return number(row.of(what).median)


def _at_least(row: Row) -> str:
    return "≥ " if any(outcome.generator_bound for outcome in row.outcomes) else ""
