"""The table of the report about telemetry."""

from __future__ import annotations

from bench.job import Outcome
from bench.results import Row, Scenario
from bench.scenarios.telemetry import BAR, CHUNKS, METRICS, OFF, PART_OF_SECONDS, READERS, VISITS
from bench.stats import Spread, middle_half
from bench.tables import ranged, table


def telemetry(scenario: Scenario) -> list[str]:
    """What metrics and traces cost."""
    rows: list[list[str]] = []
    for row in scenario.rows:
        if not row.outcomes:
            continue
        base = scenario.find(row.server, OFF)
        more = _more(row, base) if base is not None and row.case != OFF else None
        rows.append(
            [
                f"{row.server}, {row.case}",
                ranged(row.of(_rate)),
                ranged(row.of(_cpu_us)),
                "" if more is None else f"{more.median:+.1f} % ({more.low:+.1f} to {more.high:+.1f})",
                "" if more is None or row.case != METRICS else "yes" if more.median <= 100 * BAR else "**no**",
                str(row.errors),
            ]
        )
    bar = f"{BAR:.0%}".replace("%", " %")
    rounds = max((len(row.outcomes) for row in scenario.rows), default=0)
    head = ["`dragoman serve`, telemetry", "per second", "CPU µs each", "CPU more than off", f"≤ {bar}", "errors"]
    return [
        "`dragoman serve` with telemetry off; with `--metrics`; and with traces of one request in a hundred "
        "(`OTEL_TRACES_SAMPLER=parentbased_traceidratio`, `OTEL_TRACES_SAMPLER_ARG=0.01`), exported over OTLP to a "
        "collector that swallows them. Requests are SendMessage with 32 callers; streams have "
        f"{CHUNKS:,} chunks and {READERS} readers, and their figures are about chunks. Two processes differ by more "
        "than metrics cost, so the rows with metrics and with telemetry off are one process, which a signal tells to "
        f"record or not. Bursts of {scenario.seconds * PART_OF_SECONDS:g} s go from mode to mode and back, which is a "
        f"round; after {VISITS} rounds come fresh servers, {rounds // VISITS or 1} times. What telemetry adds is "
        "compared round by round: the median, and the middle half of the rounds.",
        table(head, rows),
    ]


def _more(row: Row, base: Row) -> Spread:
    """How many percent more CPU time one takes: the median and the quartiles of the rounds."""
    found = middle_half([_cpu_us(one) for one in row.outcomes], [_cpu_us(one) for one in base.outcomes])
    return Spread(*(100 * (one - 1) for one in (found.median, found.low, found.high)))


def _cpu_us(outcome: Outcome) -> float:
    return outcome.event_cpu_us if outcome.events else outcome.cpu_us


def _rate(outcome: Outcome) -> float:
    return outcome.event_rate if outcome.events else outcome.rate
