"""The tables of the report about ADK agents behind A2A."""

from __future__ import annotations

from collections.abc import Callable

from bench.adk_turns import TURNS as BURST_TURNS
from bench.job import Outcome
from bench.results import Row, Scenario
from bench.scenarios.adk import (
    BARE,
    BURSTS,
    BYTES_BAR,
    CASES,
    CHUNKS,
    OURS,
    OVERHEAD_BAR,
    STREAM,
    THEIRS,
    THEIRS_NEW,
)
from bench.stats import ratios, spread
from bench.tables import number, ranged, table

Measure = Callable[[Row], list[float]]


def adk(scenario: Scenario) -> list[str]:
    """An ADK agent run by its Runner, and behind two bridges."""
    return [
        "The same ADK agent with a scripted model: run by ADK's Runner alone, and served by Dragoman and by "
        "google-adk's own `to_a2a`, with each of its two executors, over loopback HTTP to one and the same client, "
        "which checks every answer. All run side by side on one core and are asked in turn, one turn at a time, each "
        f"in a conversation of its own: bursts of {BURST_TURNS} turns, or of one stream, {_bursts(scenario)} for each "
        f"row, with fresh processes after {BURSTS}. Tasks and sessions are in memory, everybody has uvloop and "
        "Python's own garbage collector. Time is that of the median turn of a burst, CPU that of the process in which "
        "the agent runs. `to_a2a` streams no chunks by itself: its converter of requests is replaced where chunks are "
        "asked for.",
        _costs(scenario),
        "What a bridge adds to a turn of the Runner, burst by burst, beside `to_a2a`, and the bar: "
        f"{_percent(OVERHEAD_BAR)} of it, in time and in CPU time.",
        _overheads(scenario),
        f"A stream of {CHUNKS:,} chunks of six bytes: all that is received, divided by the chunks. The bar is "
        f"{_percent(BYTES_BAR)} of `to_a2a`.",
        _bytes(scenario),
    ]


def _costs(scenario: Scenario) -> str:
    rows = [
        [row.server, case, ranged(spread(_ms(row))), ranged(spread(_cpu_ms(row))), _errors(row)]
        for case in CASES
        for row in scenario.rows
        if row.case == case and row.outcomes
    ]
    return table(["who runs the agent", "a turn", "ms", "CPU ms", "errors"], rows)


def _overheads(scenario: Scenario) -> str:
    rows: list[list[str]] = []
    for case in CASES:
        ours = scenario.find(OURS, case), scenario.find(BARE, case)
        for name in (THEIRS, THEIRS_NEW):
            theirs = scenario.find(name, case)
            if theirs is None or ours[0] is None or ours[1] is None:
                continue
            cells: list[str] = []
            enough = True
            for measure in (_ms, _cpu_ms):
                mine, other = _over(ours[0], ours[1], measure), _over(theirs, ours[1], measure)
                part = ratios([100 * value for value in mine], other)
                enough = enough and part.median <= 100 * OVERHEAD_BAR
                cells += [ranged(spread(mine)), ranged(spread(other)), ranged(part, " %")]
            rows.append([f"{case}, beside {name}", *cells, "yes" if enough else "**no**"])
    head = ["added to a turn", "ms", "theirs", "part", "CPU ms", "theirs", "part", f"≤ {_percent(OVERHEAD_BAR)}"]
    return table(head, rows)


def _bytes(scenario: Scenario) -> str:
    ours = scenario.find(OURS, STREAM)
    rows: list[list[str]] = []
    for name in (OURS, THEIRS, THEIRS_NEW):
        row = scenario.find(name, STREAM)
        if row is None:
            continue
        cells = [name, ranged(row.of(_chunk_bytes)), "", ""]
        if ours is not None and row is not ours:
            part = ratios(
                [100 * _chunk_bytes(one) for one in ours.outcomes], [_chunk_bytes(one) for one in row.outcomes]
            )
            cells[2:] = ranged(part, " %"), "yes" if part.median <= 100 * BYTES_BAR else "**no**"
        rows.append(cells)
    return table(["server", "bytes per chunk", "ours are", f"≤ {_percent(BYTES_BAR)}"], rows)


def _over(row: Row, base: Row, measure: Measure) -> list[float]:
    """What is added to the Runner's own, round by round."""
    return [mine - alone for mine, alone in zip(measure(row), measure(base), strict=False)]


def _ms(row: Row) -> list[float]:
    """The median turn of each burst: a pause of the machine is nobody's cost."""
    return [one.p50_ms for one in row.outcomes]


def _cpu_ms(row: Row) -> list[float]:
    return [one.cpu_us / 1000 for one in row.outcomes]


def _bursts(scenario: Scenario) -> int:
    return max((len(row.outcomes) for row in scenario.rows), default=0)


def _chunk_bytes(outcome: Outcome) -> float:
    return outcome.received_bytes / outcome.events if outcome.events else 0.0


def _percent(part: float) -> str:
    return f"{number(100 * part).removesuffix('.0')} %"


def _errors(row: Row) -> str:
    first = next((outcome.first_error for outcome in row.outcomes if outcome.first_error), "")
    return f"{row.errors} ({first[:80]})".replace("|", "/") if row.errors else "0"
