"""The same server with telemetry off, with metrics, and with traces of one request in a hundred: what that costs.

Two processes of one program differ by more than metrics cost, so that one server is measured with metrics on and off: a
signal tells it to record nothing for a while.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from tempfile import mkdtemp

import msgspec
from msgspec import Struct

from bench import proc, sink, versus
from bench.agents.dragoman_agent import TOGGLE
from bench.environments import ROOT
from bench.job import Job, Outcome
from bench.plan import OVERHEAD_SECONDS, Plan, generate, tell
from bench.results import Scenario
from bench.server import Running

OFF, METRICS, TRACES = "off", "metrics", "traces 1 %"
MODES = (OFF, METRICS, TRACES)
# How much more CPU time metrics may take.
BAR = 0.03
CHUNKS = 2000
READERS = 4
# As with authentication, differences are small: fresh servers, and many short bursts.
TIMES_ROUNDS = 2
VISITS = 6
PART_OF_SECONDS = 0.075
PART_OF_WARMUP = 0.2
SCRAPES = 20
# How long spans may take to arrive: they are sent in batches.
ARRIVAL_SECONDS = 10.0
_SAMPLED = {
    "OTEL_TRACES_EXPORTER": "otlp",
    "OTEL_METRICS_EXPORTER": "none",
    "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
    "OTEL_TRACES_SAMPLER_ARG": "0.01",
    "OTEL_BSP_SCHEDULE_DELAY": "500",
}


class Work(Struct, frozen=True):
    """What the server has to do, and where it keeps tasks."""

    name: str
    store: str
    job: Job


_SEND = Job("send", 0, 0, exact=True, numbered=True)
_STREAM = msgspec.structs.replace(_SEND, kind="stream", chunks=CHUNKS, concurrency=READERS)
WORKS = (
    Work("SendMessage, memory", "memory", _SEND),
    Work("SendMessage, sqlite", "sqlite", _SEND),
    Work("stream, memory", "memory", _STREAM),
)


class Observed(Struct):
    """A server that listens, the port of its metrics, or 0, and whether it records them."""

    running: Running
    metrics_port: int = 0
    records: bool = True

    def record(self, *, on: bool) -> None:
        """Record metrics, or record none for a while. It is so when the next connection is served."""
        if self.records != on:
            os.kill(self.running.pid, TOGGLE)
            self.records = on


def run(plan: Plan, scenario: Scenario) -> None:
    """Measure CPU time per request and per chunk. Raises RuntimeError where telemetry was not what it should be."""
    scrapes: list[tuple[float, int]] = []
    with sink.swallowing() as port:
        for number in range(plan.settings.rounds * (1 if plan.settings.quick else TIMES_ROUNDS)):
            for work in WORKS:
                modes = MODES[number % 3 :] + MODES[: number % 3]
                scrapes.append(_there_and_back(plan, scenario, work, modes, port))
        _wait_for_spans(port)
    cost = sorted(seconds for seconds, _ in scrapes)[len(scrapes) // 2]
    size = max(size for _, size in scrapes)
    scenario.notes.append(
        f"one scrape takes {cost * 1e3:.1f} ms of CPU time for {size / 1000:.0f} kB; every 15 s, that is "
        f"{cost / 15:.2%} of a core, which the table leaves out"
    )


def _there_and_back(
    plan: Plan, scenario: Scenario, work: Work, modes: tuple[str, ...], sink_port: int
) -> tuple[float, int]:
    """Load a server in each mode, one after the other, then backwards, again and again. Returns a scrape's cost."""
    seconds, warmup = plan.settings.seconds * PART_OF_SECONDS, plan.settings.warmup
    with ExitStack() as stack:
        started = {mode: stack.enter_context(_serving(plan, work, mode, sink_port)) for mode in (METRICS, TRACES)}
        servers = {OFF: started[METRICS], **started}
        for _ in range(1 if plan.settings.quick else VISITS):
            bursts: dict[str, list[Outcome]] = {mode: [] for mode in modes}
            for mode in (*modes, *modes[::-1]):
                plan.need(seconds + warmup + OVERHEAD_SECONDS)
                servers[mode].record(on=mode != OFF)
                running = servers[mode].running
                job = msgspec.structs.replace(
                    work.job, port=running.port, pid=running.pid, seconds=seconds, warmup=warmup
                )
                bursts[mode].append(generate(job))
                tell(scenario, work.name, mode, bursts[mode][-1])
            # The servers are warm now: only connections begin.
            warmup = plan.settings.warmup * PART_OF_WARMUP
            for mode, outcomes in bursts.items():
                scenario.row(work.name, mode).outcomes.append(combined(outcomes))
        started[METRICS].record(on=True)
        return _scrape(started[METRICS])


def combined(outcomes: list[Outcome]) -> Outcome:
    """The bursts of one server as one."""
    requests = sum(one.requests for one in outcomes)
    return Outcome(
        requests=requests,
        seconds=sum(one.seconds for one in outcomes),
        cpu_seconds=sum(one.cpu_seconds for one in outcomes),
        generator_cpu_seconds=sum(one.generator_cpu_seconds for one in outcomes),
        errors=sum(one.errors for one in outcomes),
        first_error=next((one.first_error for one in outcomes if one.first_error), ""),
        peak_mb=max(one.peak_mb for one in outcomes),
        p50_ms=sum(one.p50_ms * one.requests for one in outcomes) / max(1, requests),
        events=sum(one.events for one in outcomes),
        unfinished=sum(one.unfinished for one in outcomes),
    )


@contextmanager
def _serving(plan: Plan, work: Work, mode: str, sink_port: int) -> Generator[Observed]:
    """A `dragoman serve` in this mode."""
    plan.need(OVERHEAD_SECONDS)
    folder = Path(mkdtemp(prefix="telemetry-", dir=plan.folder))
    port = versus.free_port() if mode == METRICS else 0
    options = ("--metrics", str(port)) if port else ()
    endpoint = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"http://127.0.0.1:{sink_port}/v1/traces"}
    environ = {**_SAMPLED, **endpoint} if mode == TRACES else {"BENCH_TOGGLES_METRICS": "1"}
    with versus.serving(ROOT, work.store, folder, options, environ) as running:
        yield Observed(running, port)


def _scrape(server: Observed) -> tuple[float, int]:
    """CPU seconds and bytes of one scrape, after some. Raises RuntimeError when nothing was counted."""
    connection = HTTPConnection("127.0.0.1", server.metrics_port, timeout=10)
    body, before = b"", 0.0
    for number in range(SCRAPES + 1):
        connection.request("GET", "/metrics")
        body = connection.getresponse().read()
        if not number:
            before = proc.cpu_seconds(server.running.pid)
    spent = proc.cpu_seconds(server.running.pid) - before
    connection.close()
    counted = re.findall(rb"^a2a_server_operation_duration_seconds_count\{.*\} (\S+)$", body, re.MULTILINE)
    if not sum(map(float, counted)):
        raise RuntimeError("the server has counted no operation")
    return spent / SCRAPES, len(body)


def _wait_for_spans(port: int) -> None:
    """Make sure that spans were exported. Raises RuntimeError."""
    deadline = time.monotonic() + ARRIVAL_SECONDS
    while not sink.received(port):
        if time.monotonic() > deadline:
            raise RuntimeError("no span has arrived")
        time.sleep(0.2)
