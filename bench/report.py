"""docs/benchmarks.md and its pictures, from the results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bench import adk_section, grpc_section, postgres_section, sections, svg, telemetry_section
from bench.results import Results, Scenario
from bench.scenarios.blocking import UUID_IDS
from bench.scenarios.reading import CASES

SECTIONS: dict[str, tuple[str, Callable[[Scenario], list[str]]]] = {
    "blocking": ("SendMessage", sections.blocking),
    "auth": ("SendMessage with authentication", sections.auth),
    "telemetry": ("What telemetry costs", telemetry_section.telemetry),
    "streaming": ("Streaming", sections.streaming),
    "grpc": ("SendMessage and streams over gRPC", grpc_section.over_grpc),
    "growth": ("What an event costs in a long stream", sections.growth),
    "reading": ("GetTask and ListTasks with many tasks", sections.reading),
    "fanout": ("Many readers of one task", sections.fanout),
    "parked": ("Tasks that wait", sections.parked),
    "postgres": ("SendMessage and streams on PostgreSQL", postgres_section.postgres),
    "cross-node": ("From node to node", sections.cross_node),
    "client": ("The client", sections.client),
    "http": ("The HTTP client", sections.http_client),
    "mcp": ("MCP tools behind A2A", sections.mcp),
    "adk": ("ADK agents behind A2A", adk_section.adk),
    "startup": ("Starting", sections.startup),
}
_PEERS = ("a2a-sdk", "fasta2a", "a2a-go", "@a2a-js/sdk", "google-adk")
_IMAGES = {"blocking": "bench-requests", "growth": "bench-events", "reading": "bench-reading"}


def write(results: Results, folder: Path) -> None:
    """Write benchmarks.md and img/bench-*.svg into a folder."""
    images = folder / "img"
    images.mkdir(parents=True, exist_ok=True)
    for name, picture in pictures(results).items():
        (images / f"{name}.svg").write_text(picture)
    (folder / "benchmarks.md").write_text(text(results))


def text(results: Results) -> str:
    """The page."""
    parts = ["# Benchmarks", _introduction(results)]
    for name, (title, section) in SECTIONS.items():
        scenario = results.scenario(name)
        if scenario is None:
            continue
        parts.append(f"## {title}")
        parts.extend(section(scenario))
        if name in _IMAGES:
            parts.append(f"![{title}](img/{_IMAGES[name]}.svg)")
        parts.extend(f"*Note: {note}.*" for note in scenario.notes)
    parts.append(_method(results))
    return "\n\n".join(parts) + "\n"


def pictures(results: Results) -> dict[str, str]:
    """The plots, by name."""
    found: dict[str, str] = {}
    blocking, growth, reading = (results.scenario(name) for name in ("blocking", "growth", "reading"))
    if blocking is not None:
        rows = [row for row in blocking.rows if row.case == UUID_IDS and row.outcomes]
        values = {_honest(row.server): row.of(lambda outcome: outcome.rate).median for row in rows}
        found["bench-requests"] = svg.bars("SendMessage with four events, requests per second", values, "/s")
    if growth is not None:
        lines: dict[str, list[tuple[float, float]]] = {}
        for row in growth.rows:
            if row.outcomes:
                cost = row.of(lambda outcome: outcome.event_cpu_us).median
                lines.setdefault(row.server, []).append((float(row.case), cost))
        title = "CPU time per event, by the length of the stream"
        found["bench-events"] = svg.lines(title, lines, "chunks in the stream", "µs per event")
    if reading is not None:
        sizes = sorted({int(row.server) for row in reading.rows})
        series = {
            case: [
                (float(size), row.of(lambda outcome: outcome.cpu_us / 1000).median)
                for size in sizes
                if (row := reading.find(str(size), case)) is not None
            ]
            for case in CASES
        }
        title = "CPU time per request, by the number of stored tasks (SQLite)"
        found["bench-reading"] = svg.lines(title, series, "stored tasks", "ms per request")
    return found


def _honest(server: str) -> str:
    return "fasta2a (does not wait)" if server.startswith("fasta2a") else server


def _introduction(results: Results) -> str:
    machine, versions = results.machine, results.versions
    peers = ", ".join(f"{name} {versions[name]}" for name in _PEERS if name in versions)
    taken = max((scenario.taken for scenario in results.scenarios), default="")
    rounds = max((scenario.rounds for scenario in results.scenarios), default=0)
    seconds = max((scenario.seconds for scenario in results.scenarios), default=0.0)
    return (
        f"Dragoman {versions.get('dragoman', '?')} beside {peers or 'nobody'}: {taken}, {machine['cores']} cores of an "
        f"{machine['cpu']}, Python {machine['python']}. Every server does the same work in a process of its own on one "
        f"core, in turn; rounds: {rounds} of {seconds:g} s. Figures are medians, with the smallest and the largest in "
        "brackets. **The machine is shared and noisy: compare the ratios and the CPU times, which come from the same "
        "run of a section; absolute rates move up to twofold.**"
    )


def _method(results: Results) -> str:
    machine, versions = results.machine, results.versions
    lines = [
        "## How it was measured",
        f"    {results.command}",
        "- Servers: uvicorn with httptools and uvloop, one worker (a2a-go: net/http, @a2a-js/sdk: Express), pinned to "
        "the first core; default settings of each "
        "library, with one difference: Dragoman's garbage collector is set as `dragoman serve` sets it (frozen at "
        "the start, higher thresholds), the peers' is Python's default. Dragoman's SQLite store commits with "
        "`synchronous=FULL`; a2a-sdk uses `DatabaseTaskStore` on `sqlite+aiosqlite` (its table is made before the "
        "first request, else the first ones fail).",
        "- A fresh process and an empty store for every burst, because stores in memory grow with every task. Servers "
        "are kept for GetTask and ListTasks, on files that do not change, and for two bursts with authentication and "
        "with telemetry.",
        "- Load: one process on the last core, HTTP/1.1 with kept connections, 32 callers (streams: 4 readers). It "
        "checks every answer: status, state, the echoed text; for streams each chunk, its order, numbers without a "
        "gap, the last event. Message ids are all different. Every burst begins with a warm-up that does not count; "
        "that of @a2a-js/sdk takes 4 s, until Node has compiled what it runs.",
        "- The agent: an echo with four events (task, working, artifact, completed), and a counter that yields between "
        "its chunks. An event that only closes a streamed text, empty or with the whole text once more, takes its time "
        "and is not counted.",
        "- The floor decodes and checks the request with msgspec and writes the same bytes: no tasks, no store.",
        "- CPU is user and system time of the server with its threads, from /proc; of the client where clients are "
        "compared. Ratios are taken round by round.",
        "- Each section is one run, and its ratios come from that run alone; a section can be measured again by "
        f"itself. Taken: {'; '.join(f'{scenario.name} {scenario.taken}' for scenario in results.scenarios)}.",
        f"- {machine['system']}, {machine['memory']} of memory, SQLite {machine['sqlite']}; "
        + ", ".join(f"{name} {version}" for name, version in versions.items())
        + ".",
    ]
    return "\n\n".join(lines[:2]) + "\n\n" + "\n".join(lines[2:])
