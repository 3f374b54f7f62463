"""The tables of the report, one function for each scenario."""

from __future__ import annotations

from collections.abc import Callable

from bench.job import Outcome
from bench.results import Row, Scenario
from bench.scenarios import auth as auth_scenario
from bench.scenarios import client as client_scenario
from bench.scenarios import http_client as http_scenario
from bench.scenarios import mcp as mcp_scenario
from bench.scenarios import startup as startup_scenario
from bench.scenarios.blocking import UUID_IDS
from bench.scenarios.reading import CASES
from bench.stats import ratios, spread
from bench.tables import number, ranged, table

PAIRS = (
    ("dragoman, memory", "a2a-sdk, memory"),
    ("dragoman, sqlite", "a2a-sdk, sqlite"),
    ("dragoman, memory", "fasta2a, memory"),
    ("dragoman, memory", "a2a-go, memory"),
    ("dragoman, memory", "@a2a-js/sdk, memory"),
    ("dragoman, memory", "floor"),
    ("dragoman, sqlite", "floor"),
)


def blocking(scenario: Scenario) -> list[str]:
    """Requests per second."""
    head = ["server", "message ids", "requests/s", "p50 / p95 / p99 ms", "CPU µs/request", "peak MB", "errors"]
    rows = [
        [
            row.server,
            row.case,
            _at_least(row) + ranged(row.of(lambda outcome: outcome.rate)),
            _latency(row),
            ranged(row.of(lambda outcome: outcome.cpu_us)),
            number(row.of(lambda outcome: outcome.peak_mb).high),
            _errors(row),
        ]
        for row in scenario.rows
        if row.outcomes
    ]
    text = "SendMessage that waits for a task with four events, 32 callers at once."
    caveat = (
        "fasta2a does not wait: it answers before the work is done, and does one task at a time. Dragoman looks for "
        "repeats only among messages whose ids are UUIDs, hence two rows. a2a-go and @a2a-js/sdk run on Go and on Node "
        "with one core, like everybody."
    )
    return [text, table(head, rows), caveat, *_compare(scenario, UUID_IDS, lambda outcome: outcome.rate, _cpu_us)]


def auth(scenario: Scenario) -> list[str]:
    """What knowing the caller costs."""
    head = ["server", "who is calling", "requests/s", "CPU µs/request", "p50 / p95 / p99 ms", "errors"]
    rows: list[list[str]] = []
    kept: list[list[str]] = []
    for row in scenario.rows:
        if not row.outcomes:
            continue
        rate = _at_least(row) + ranged(row.of(lambda outcome: outcome.rate))
        rows.append([row.server, row.case, rate, ranged(row.of(_cpu_us)), _latency(row), _errors(row)])
        base = scenario.find(row.server, auth_scenario.OPEN)
        if base is not None and row.case != auth_scenario.OPEN:
            kept.append([f"{row.server}, {row.case}", *_kept(row, base)])
    bar = f"{auth_scenario.BAR:.0%}".replace("%", " %")
    parts = [
        "SendMessage as above with UUID ids, 32 callers with the credentials of one user, to a server that lets "
        "everybody in (open) and to one with a single scheme turned on. Users are kept in a SQLite file in every row, "
        "as `dragoman users` writes it: where tasks are in memory, only they are, which `dragoman serve` does not do "
        "and which makes the share of authentication as large as it can be; else both are in that file. The JWT is "
        "signed with ES256, its key is in a JWKS file. Every scheme is first asked without credentials, and must "
        "refuse, then with them: what takes long, an argon2 password or a signature, is looked at then, and "
        "remembered for five minutes. Servers for all rows of a store run side by side, and only one has something to "
        f"do: bursts of {scenario.seconds * auth_scenario.PART_OF_SECONDS:g} s go from the first to the last and back, "
        "then come fresh servers, because processes differ. Bursts: "
        f"{' and '.join(str(count) for count in dict.fromkeys(len(row.outcomes) for row in scenario.rows))} each.",
        table(head, rows),
    ]
    if kept:
        wanted = f"What is left of the open server's rate, round by round, and the bar: {bar} in the median of both."
        parts += [wanted, table(["of open", "requests/s", "requests per CPU second", f"≥ {bar}"], kept)]
    return parts


def _kept(row: Row, base: Row) -> list[str]:
    """The parts of the rates that are left, and whether they are enough."""
    found = [
        ratios([100 * one.rate for one in row.outcomes], [one.rate for one in base.outcomes]),
        ratios([100 * one.cpu_rate for one in row.outcomes], [one.cpu_rate for one in base.outcomes]),
    ]
    enough = all(one.median >= 100 * auth_scenario.BAR for one in found)
    return [*(ranged(one, " %") for one in found), "yes" if enough else "**no**"]


def streaming(scenario: Scenario) -> list[str]:
    """Chunks per second."""
    head = ["server", "chunks/s", "CPU µs/chunk", "streams", "given up", "peak MB", "errors"]
    rows = [
        [
            row.server,
            _at_least(row) + ranged(row.of(lambda outcome: outcome.event_rate)),
            ranged(row.of(_event_cpu_us)),
            str(sum(outcome.requests for outcome in row.outcomes)),
            str(sum(outcome.unfinished for outcome in row.outcomes)),
            number(row.of(lambda outcome: outcome.peak_mb).high),
            _errors(row),
        ]
        for row in scenario.rows
        if row.outcomes
    ]
    text = (
        "SendStreamingMessage with 2,000 chunks, four readers at once. A stream that is not over in time is given up: "
        "its chunks so far count, which flatters servers whose events cost more the longer the stream is."
    )
    return [text, table(head, rows), *_compare(scenario, "", lambda outcome: outcome.event_rate, _event_cpu_us)]


def growth(scenario: Scenario) -> list[str]:
    """Cost per event against the length of the stream."""
    lengths = sorted({int(row.case) for row in scenario.rows})
    servers = list(dict.fromkeys(row.server for row in scenario.rows))
    head = ["CPU µs per chunk", *(f"{length:,} chunks" for length in lengths)]
    rows = [[server, *(_growth_cell(scenario.find(server, str(length))) for length in lengths)] for server in servers]
    return [
        "One stream at a time. A server that rewrites the whole task at each event pays more and more.",
        table(head, rows),
    ]


def _growth_cell(row: Row | None) -> str:
    if row is None:
        return "not tried"
    cut = " (given up)" if any(outcome.unfinished for outcome in row.outcomes) else ""
    return ranged(row.of(_event_cpu_us)) + cut


def reading(scenario: Scenario) -> list[str]:
    """Cost of a read against the number of tasks."""
    sizes = sorted({int(row.server) for row in scenario.rows})
    head = ["tasks in the file", *CASES]
    cpu: list[list[str]] = []
    latency: list[list[str]] = []
    for size in sizes:
        found = [scenario.find(str(size), case) for case in CASES]
        cpu.append(
            [f"{size:,}", *("" if row is None else ranged(row.of(lambda one: one.cpu_us / 1000)) for row in found)]
        )
        latency.append([f"{size:,}", *("" if row is None else _latency(row) for row in found)])
    wrong = sum(row.errors for row in scenario.rows)
    return [
        "Dragoman on SQLite, pages of 50 tasks with the total. One task in twenty failed (by status), ten share a "
        "context, one in a hundred is recent (by time: of 1,000 tasks ten, which do not fill a page). GetTask has 32 "
        "callers, ListTasks 8.",
        "CPU ms per request:",
        table(head, cpu),
        "p50 / p95 / p99 in ms:",
        table(head, latency),
        f"{wrong} errors.",
    ]


def fanout(scenario: Scenario) -> list[str]:
    """Many readers of one task."""
    head = ["server", "readers", "CPU s", "CPU µs per chunk and reader", "MB sent", "peak MB", "errors"]
    rows = [
        [
            row.server,
            row.case,
            ranged(row.of(lambda outcome: outcome.cpu_seconds)),
            ranged(row.of(_event_cpu_us)),
            number(row.of(lambda outcome: outcome.received_bytes / 1e6).median),
            number(row.of(lambda outcome: outcome.peak_mb).high),
            _errors(row),
        ]
        for row in scenario.rows
        if row.outcomes
    ]
    parts = [
        "Sixty chunks, one every 50 ms, to all readers of one task; from the first chunk to the last.",
        table(head, rows),
    ]
    for case in dict.fromkeys(row.case for row in scenario.rows):
        parts.extend(_compare(scenario, case, None, lambda outcome: outcome.cpu_seconds))
    return parts


def parked(scenario: Scenario) -> list[str]:
    """What waiting tasks hold."""
    head = ["server", "tasks", "memory before, MB", "after, MB", "KB per task", "asyncio tasks before", "after"]
    rows = [
        [
            one.server,
            f"{one.tasks:,}",
            number(one.before_mb),
            number(one.after_mb),
            number(one.kb_each),
            str(one.asyncio_before),
            str(one.asyncio_after),
        ]
        for one in scenario.memories
    ]
    return [
        "Tasks in input-required. A store in memory holds the tasks themselves; one on disk need hold nothing.",
        table(head, rows),
    ]


def cross_node(scenario: Scenario) -> list[str]:
    """How old events are when a reader at another node gets them."""
    head = ["server", "events/s", "p50 ms", "p95 ms", "p99 ms", "errors"]
    rows = [
        [
            row.server,
            ranged(row.of(lambda outcome: outcome.event_rate)),
            ranged(row.of(lambda outcome: outcome.p50_ms)),
            ranged(row.of(lambda outcome: outcome.p95_ms)),
            ranged(row.of(lambda outcome: outcome.p99_ms)),
            _errors(row),
        ]
        for row in scenario.rows
        if row.outcomes
    ]
    return [
        "Two nodes on one PostgreSQL (its default durability: every commit waits for the disk). A task at one node "
        "writes the time a hundred times a second, a subscriber at the other compares it with the same clock when the "
        "event arrives. Dragoman wakes readers with NOTIFY; a2a-sdk is its cluster mode, which polls every 0.5 s.",
        table(head, rows),
    ]


def client(scenario: Scenario) -> list[str]:
    """Clients, per second of their CPU time."""
    ours, theirs = client_scenario.OURS, client_scenario.THEIRS
    parts = [
        "Clients against Dragoman's server, memory, on the first core; each client alone in a process on the last "
        f"core, in turn with the other, {scenario.seconds / 2:g} s for each case after a warm-up. Both find JSON-RPC "
        "1.0 by the card, both have default settings and Python's own garbage collector; only the five seconds after "
        "which the a2a-sdk gives up are raised to sixty. CPU is user and system time of the client's process. Where "
        "a rate is marked with ≥, the server had no time left.",
        "SendMessage, the text of the completed task read and compared:",
        _client_table(scenario, (client_scenario.ONE, client_scenario.MANY), "request"),
        f"Streams of {client_scenario.CHUNKS:,} chunks, one at a time, every event looked at, the text put together "
        "and compared:",
        _client_table(scenario, (client_scenario.STREAMS,), "chunk"),
    ]
    rows: list[list[str]] = []
    for loop in client_scenario.LOOPS:
        for case in client_scenario.CASES:
            mine, other = scenario.find(f"{ours}, {loop}", case), scenario.find(f"{theirs}, {loop}", case)
            if mine is not None and other is not None:
                cells = [
                    ratios([what(one) for one in mine.outcomes], [what(one) for one in other.outcomes])
                    for what in _client_rates(case)
                ]
                rows.append([f"{case}, {loop}", *(ranged(cell, "×") for cell in cells)])  # noqa: RUF001
    if rows:
        parts.append(table([f"{ours} / {theirs}", "per CPU second", "per second"], rows))
    if any(start.milliseconds for start in scenario.starts):
        parts.append("From the start of a process to its first answer, with imports and the card:")
        starts = [[start.name, ranged(spread(start.milliseconds))] for start in scenario.starts if start.milliseconds]
        parts.append(table(["client", "ms"], starts))
    return parts


def http_client(scenario: Scenario) -> list[str]:
    """The hand-written HTTP client beside aiohttp."""
    ours, theirs = http_scenario.OURS, http_scenario.THEIRS
    parts = [
        "Dragoman's own HTTP/1.1 and aiohttp behind the same port, CPU time of the calling process. `Client` is "
        "Dragoman's client against its server, memory; an `exchange` is the port alone, a request as bytes and an "
        f"answer as bytes, against the floor. A stream has {http_scenario.CHUNKS} chunks and counts as one request. "
        f"The hand-written one is kept as long as aiohttp costs at least {http_scenario.BAR:g} times as much.",
    ]
    rows: list[list[str]] = []
    for loop in client_scenario.LOOPS:
        kinds = (http_scenario.CLIENT, http_scenario.EXCHANGE)
        for case in (f"{what}, {case}" for what in kinds for case in http_scenario.CASES):
            mine, other = scenario.find(f"{ours}, {loop}", case), scenario.find(f"{theirs}, {loop}", case)
            if mine is not None and other is not None:
                costs = [[_cpu_us(one) for one in row.outcomes] for row in (other, mine)]
                ratio = ratios(*costs)
                cells = [ranged(spread(each)) for each in costs]
                kept = "yes" if ratio.median >= http_scenario.BAR else "**no**"
                errors = str(mine.errors + other.errors)
                rows.append([f"{case}, {loop}", *cells, ranged(ratio, "×"), kept, errors])  # noqa: RUF001
    bar = f"≥ {http_scenario.BAR:g}×"  # noqa: RUF001
    head = ["", f"{theirs}, CPU µs", f"{ours}, CPU µs", f"{theirs} / {ours}", bar, "errors"]
    return [*parts, table(head, rows)]


def mcp(scenario: Scenario) -> list[str]:
    """An MCP tool directly and through the bridge."""
    head = ["how it is called", "", "ms/call", "calls/s", "p50 / p95 / p99 ms", "errors"]
    rows: list[list[str]] = []
    costs: list[list[str]] = []
    for case in mcp_scenario.CASES:
        base = scenario.find(mcp_scenario.DIRECT, case)
        for row in scenario.rows:
            if row.case != case or not row.outcomes:
                continue
            rate = ranged(row.of(lambda outcome: outcome.rate))
            rows.append([row.server, case, ranged(row.of(_call_ms)), rate, _latency(row), _errors(row)])
            if base is not None and row is not base:
                cost = ratios([_call_ms(one) for one in row.outcomes], [_call_ms(one) for one in base.outcomes])
                costs.append([f"{row.server}, {case}", ranged(cost, "×")])  # noqa: RUF001
    text = (
        "An echo tool on a stdio MCP server, called by the official MCP client, and through A2A by Dragoman's client: "
        "the bridge with its journal in between. Time per call is the time of the burst divided by its calls."
    )
    return [text, table(head, rows), table(["through the bridge / directly", "time per call"], costs)]


def _call_ms(outcome: Outcome) -> float:
    return outcome.seconds / outcome.requests * 1000 if outcome.requests else 0.0


def _client_table(scenario: Scenario, cases: tuple[str, ...], unit: str) -> str:
    head = ["client", "", f"{unit}s per CPU second", f"CPU µs/{unit}", f"{unit}s/s", "p50 / p95 / p99 ms", "errors"]
    rows: list[list[str]] = []
    for case in cases:
        per_cpu, per_second = _client_rates(case)
        cost = _event_cpu_us if case == client_scenario.STREAMS else _cpu_us
        for row in scenario.rows:
            if row.case == case and row.outcomes:
                rate = _at_least(row) + ranged(row.of(per_second))
                cells = [ranged(row.of(per_cpu)), ranged(row.of(cost)), rate, _latency(row), _errors(row)]
                rows.append([row.server, row.case, *cells])
    return table(head, rows)


def _client_rates(case: str) -> tuple[Callable[[Outcome], float], Callable[[Outcome], float]]:
    """What is counted in a case, per second of CPU time and per second."""
    if case == client_scenario.STREAMS:
        return lambda outcome: outcome.event_cpu_rate, lambda outcome: outcome.event_rate
    return lambda outcome: outcome.cpu_rate, lambda outcome: outcome.rate


def startup(scenario: Scenario) -> list[str]:
    """Imports and the first command."""
    bare = next((one for one in scenario.starts if one.name == startup_scenario.BARE and one.milliseconds), None)
    floor = spread(bare.milliseconds).median if bare else 0.0
    head = ["", "ms", "ms above the bare interpreter"]
    rows = [
        [one.name, ranged(spread(one.milliseconds)), number(max(0.0, spread(one.milliseconds).median - floor))]
        for one in scenario.starts
        if one.milliseconds
    ]
    return ["Wall time of the whole process.", table(head, rows)]


# -- parts ---------------------------------------------------------------------------------------------------------


def _compare(
    scenario: Scenario, case: str, rate: Callable[[Outcome], float] | None, cost: Callable[[Outcome], float]
) -> list[str]:
    """Ours against theirs, round by round."""
    rows: list[list[str]] = []
    for ours, theirs in PAIRS:
        mine, other = scenario.find(ours, case), scenario.find(theirs, case)
        if mine is None or other is None:
            continue
        cells = [f"{ours} / {theirs}"]
        for what in (rate, cost):
            if what is not None:
                found = ratios([what(one) for one in mine.outcomes], [what(one) for one in other.outcomes])
                cells.append(ranged(found, "×"))  # noqa: RUF001
        rows.append(cells)
    head = ["ratio", *(["rate"] if rate is not None else []), "CPU"]
    return [table(head, rows)] if rows else []


def _cpu_us(outcome: Outcome) -> float:
    return outcome.cpu_us


def _event_cpu_us(outcome: Outcome) -> float:
    return outcome.event_cpu_us


def _latency(row: Row) -> str:
    middle, most, nearly_all = (
        row.of(lambda outcome: outcome.p50_ms),
        row.of(lambda outcome: outcome.p95_ms),
        row.of(lambda outcome: outcome.p99_ms),
    )
    return f"{number(middle.median)} / {number(most.median)} / {number(nearly_all.median)}"


def _at_least(row: Row) -> str:
    """Where the generator was the limit, the server can do more."""
    return "≥ " if any(outcome.generator_bound for outcome in row.outcomes) else ""


def _errors(row: Row) -> str:
    first = next((outcome.first_error for outcome in row.outcomes if outcome.first_error), "")
    return f"{row.errors} ({first[:80]})".replace("|", "/") if row.errors else "0"
