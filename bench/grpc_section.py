"""The tables of the report about gRPC."""

from __future__ import annotations

from collections.abc import Callable

from bench.job import Outcome
from bench.results import Row, Scenario
from bench.scenarios.over_grpc import BARS, CHUNKS, JSON, OURS, READERS, SEND, SEND_SHARED, STREAM, THEIRS
from bench.stats import ratios
from bench.tables import number, ranged, table

Measure = Callable[[Outcome], float]
STORES = ("memory", "sqlite")
PEERS = ("a2a-go gRPC", "@a2a-js/sdk gRPC")


def over_grpc(scenario: Scenario) -> list[str]:
    """Sends and streams over gRPC, and the bars."""
    return [
        "SendMessage that waits for a task with four events, 32 callers at once, each on a connection of its own; for "
        "comparison, all on one connection, from which grpcio takes one call at a time. "
        "Servers of the Python libraries are grpcio's asyncio servers on uvloop, all with the settings their library "
        "has by itself. The load generator is a program in Go on a core of its own, the same for every server over "
        "gRPC; it checks every answer as the one for HTTP does. `dragoman` is JSON-RPC over HTTP/1.1, in the same run.",
        _sends(scenario),
        f"SendStreamingMessage with {CHUNKS:,} chunks, {READERS} readers at once:",
        _streams(scenario),
        "Round by round, and the bars, which hold for both:",
        _bars(scenario),
    ]


def _sends(scenario: Scenario) -> str:
    rows = [
        [
            row.server,
            row.case,
            _at_least(row) + ranged(row.of(lambda outcome: outcome.rate)),
            " / ".join(_middle(row, what) for what in (_p50, _p95, _p99)),
            ranged(row.of(lambda outcome: outcome.cpu_us)),
            number(row.of(lambda outcome: outcome.peak_mb).high),
            _errors(row),
        ]
        for row in scenario.rows
        if row.case != STREAM and row.outcomes
    ]
    return table(["server", "", "requests/s", "p50 / p95 / p99 ms", "CPU µs/request", "peak MB", "errors"], rows)


def _streams(scenario: Scenario) -> str:
    rows = [
        [
            row.server,
            _at_least(row) + ranged(row.of(lambda outcome: outcome.event_rate)),
            ranged(row.of(lambda outcome: outcome.event_cpu_us)),
            str(sum(outcome.requests for outcome in row.outcomes)),
            str(sum(outcome.unfinished for outcome in row.outcomes)),
            number(row.of(lambda outcome: outcome.peak_mb).high),
            _errors(row),
        ]
        for row in scenario.rows
        if row.case == STREAM and row.outcomes
    ]
    return table(["server", "chunks/s", "CPU µs/chunk", "streams", "given up", "peak MB", "errors"], rows)


def _bars(scenario: Scenario) -> str:
    rows: list[list[str]] = []
    for case in (SEND, SEND_SHARED, STREAM):
        for store in STORES:
            ours = scenario.find(f"{OURS}, {store}", case)
            others = [THEIRS, JSON] if store != "memory" else [THEIRS, *PEERS, JSON]
            for other in others:
                theirs = scenario.find(f"{other}, {store}", case)
                if ours is not None and theirs is not None:
                    bar = BARS.get((case, store)) if other == THEIRS else None
                    rows.append(_compared(ours, theirs, case, bar))
    return table(["ratio", "rate", "work per CPU second", "bar", "met"], rows)


def _compared(ours: Row, theirs: Row, case: str, bar: float | None) -> list[str]:
    found = [
        ratios([what(one) for one in ours.outcomes], [what(one) for one in theirs.outcomes]) for what in _rates(case)
    ]
    what = f"{CHUNKS:,} chunks" if case == STREAM else f"SendMessage, {case}"
    met = "" if bar is None else "yes" if all(one.median >= bar for one in found) else "**no**"
    wanted = "" if bar is None else f"≥ {bar:g}×"  # noqa: RUF001
    return [f"{ours.server} / {theirs.server}, {what}", *(ranged(one, "×") for one in found), wanted, met]  # noqa: RUF001


def _rates(case: str) -> tuple[Measure, Measure]:
    if case == STREAM:
        return lambda outcome: outcome.event_rate, lambda outcome: outcome.event_cpu_rate
    return lambda outcome: outcome.rate, lambda outcome: outcome.cpu_rate


def _middle(row: Row, what: Measure) -> str:
    return number(row.of(what).median)


def _p50(outcome: Outcome) -> float:
    return outcome.p50_ms


def _p95(outcome: Outcome) -> float:
    return outcome.p95_ms


def _p99(outcome: Outcome) -> float:
    return outcome.p99_ms


def _at_least(row: Row) -> str:
    return "≥ " if any(outcome.generator_bound for outcome in row.outcomes) else ""


def _errors(row: Row) -> str:
    first = next((outcome.first_error for outcome in row.outcomes if outcome.first_error), "")
    return f"{row.errors} ({first[:80]})".replace("|", "/") if row.errors else "0"
