"""Two source trees of Dragoman, measured side by side in one run.

    python -m bench.versus BASE [NEW] [--rounds 6] [--seconds 1] [--only CASE]

BASE and NEW are folders that hold `src/dragoman`; NEW is this tree when it is left out. Each tree serves
bench/agents/dragoman_agent.py with its own `dragoman serve`, on the first core; the load generator of this tree
talks HTTP to both. In every round both servers are fresh, and bursts go base, new, new, base, in the next round the
other way round. A ratio is new divided by base, over the bursts of one round; below 1 the new tree costs less (CPU,
latency) or does less (rate). Beside the ratio of CPU times stands the 95 % interval of its median, from six rounds on:
the new tree is slower if even the lower end is above 1.02.

In the case `client` the clients of both trees call the base's server; in the case `mcp` this tree's client calls a tool
of an MCP server through each tree's bridge.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from bench import cores, machine
from bench.environments import ROOT
from bench.job import Job, Outcome
from bench.plan import generate
from bench.server import Running, variables
from bench.stats import ratio_interval, ratios, spread
from bench.tables import ranged, table

AGENT = ROOT / "bench" / "agents" / "dragoman_agent.py"
BRIDGE = ROOT / "bench" / "agents" / "dragoman_mcp.py"
CHUNKS = 100
START_SECONDS = 20.0
STOP_SECONDS = 5.0


class Case(Struct, frozen=True):
    """One kind of request on one kind of store."""

    name: str
    store: str
    job: Job
    # The module of a client in a process of its own that calls instead of the load generator.
    caller: str = ""
    agent: Path = AGENT


_SEND = Job("send", 0, 0, warmup=0.3, exact=True, numbered=True)
_STREAM = msgspec.structs.replace(_SEND, kind="stream", chunks=CHUNKS, concurrency=4)
CASES = (
    Case("send-memory", "memory", _SEND),
    Case("send-sqlite", "sqlite", _SEND),
    Case("stream-memory", "memory", _STREAM),
    Case("stream-sqlite", "sqlite", _STREAM),
    Case("client", "memory", msgspec.structs.replace(_SEND, concurrency=8), "bench.callers.dragoman_client"),
    Case("mcp", "memory", msgspec.structs.replace(_SEND, concurrency=8), "bench.callers.mcp_bridge", BRIDGE),
)
# A client that has not answered this long after its time is stuck.
PATIENCE = 60.0
SLOWER = 1.02


class Total(Struct, frozen=True):
    """What one tree did in one round."""

    cpu_us: float
    p50_ms: float
    rate: float


def total(outcomes: Sequence[Outcome]) -> Total:
    """Sum up the bursts of one round. Raises RuntimeError when an answer was wrong or missing."""
    wrong = next((outcome for outcome in outcomes if outcome.errors or outcome.unfinished), None)
    if wrong is not None:
        raise RuntimeError(f"{wrong.errors} wrong answers, {wrong.unfinished} unfinished streams: {wrong.first_error}")
    requests = sum(outcome.requests for outcome in outcomes)
    return Total(
        cpu_us=sum(outcome.cpu_seconds for outcome in outcomes) / requests * 1e6,
        p50_ms=sum(outcome.p50_ms * outcome.requests for outcome in outcomes) / requests,
        rate=requests / sum(outcome.seconds for outcome in outcomes),
    )


def order(number: int) -> str:
    """Which tree each burst of a round goes to: "b" is the base, "n" the new one."""
    return "nbbn" if number % 2 else "bnnb"


@contextmanager
def serving(
    tree: Path,
    store: str,
    folder: Path,
    options: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    agent: Path = AGENT,
) -> Generator[Running]:
    """Serve an agent with the source of a tree. Raises RuntimeError when it does not listen in time.

    `options` are for `dragoman serve`, `environ` are variables besides the usual ones.
    """
    port = free_port()
    url = "memory:" if store == "memory" else f"sqlite:///{folder}/tasks.db"
    command = [sys.executable, "-m", "dragoman", "serve", str(agent), "--port", str(port), "--store", url, *options]
    log = folder / "serve.log"
    with log.open("wb") as output:
        variables = {**environment(tree), **(environ or {})}
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output, env=variables)
    core = cores.server_core()
    if core is not None:
        os.sched_setaffinity(process.pid, {core})  # its threads, which begin later, inherit this
    try:
        _wait(port, process, log)
        yield Running(port, process.pid)
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def environment(tree: Path) -> dict[str, str]:
    """Variables under which Python finds `dragoman` in a tree, and `bench` in this one."""
    return {**variables(), "PYTHONPATH": os.pathsep.join((str(tree / "src"), str(ROOT)))}


def check_tree(tree: Path) -> None:
    """Make sure that Python takes the package from that tree. Raises RuntimeError."""
    code = "import dragoman; print(dragoman.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(tree), cwd="/", capture_output=True, text=True, check=True
    )
    if not Path(done.stdout.strip()).is_relative_to(tree / "src"):
        raise RuntimeError(f"{tree} has no src/dragoman: Python would take {done.stdout.strip()}")


def _wait(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError(f"the server does not listen:\n{log.read_text(errors='replace')[-2000:]}")


def measure(case: Case, base: Path, new: Path, number: int, seconds: float) -> tuple[Total, Total]:
    """One round of one case: what base and new did."""
    outcomes: dict[str, list[Outcome]] = {"b": [], "n": []}
    with (
        tempfile.TemporaryDirectory(prefix="versus-base-") as base_folder,
        tempfile.TemporaryDirectory(prefix="versus-new-") as new_folder,
        serving(base, case.store, Path(base_folder), agent=case.agent) as base_server,
        serving(new, case.store, Path(new_folder), agent=case.agent) as new_server,
    ):
        servers = {"b": base_server, "n": new_server}
        for which in order(number):
            server = servers[which]
            if case.name == "client":
                found = _call(case, base_server, base if which == "b" else new, seconds)
            elif case.caller:
                found = _call(case, server, ROOT, seconds)
                found = msgspec.structs.replace(found, cpu_seconds=found.generator_cpu_seconds)
            else:
                found = generate(msgspec.structs.replace(case.job, port=server.port, pid=server.pid, seconds=seconds))
            outcomes[which].append(found)
    return total(outcomes["b"]), total(outcomes["n"])


def _call(case: Case, server: Running, tree: Path, seconds: float) -> Outcome:
    """One burst by a tree's client. Raises RuntimeError when it breaks."""
    order = {
        "module": case.caller,
        "url": f"http://127.0.0.1:{server.port}",
        "pid": server.pid,
        "loop": "asyncio",
        "seconds": seconds,
        "warmup": case.job.warmup,
        "cases": {case.name: {"concurrency": case.job.concurrency, "chunks": 0}},
    }
    done = subprocess.run(
        [sys.executable, "-m", "bench.call"],
        input=msgspec.json.encode(order),
        capture_output=True,
        cwd=tree,
        env=environment(tree),
        timeout=seconds + PATIENCE,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"the client of {tree} broke:\n{done.stderr.decode(errors='replace')[-2000:]}")
    return msgspec.json.decode(done.stdout, type=dict[str, Outcome])[case.name]


def text(found: dict[str, list[tuple[Total, Total]]]) -> str:
    """The table: medians over the rounds with their ranges, that of the CPU ratio being its interval."""
    head = ["case", "base CPU µs", "new CPU µs", "CPU new/base", "slower", "p50 new/base", "rate new/base"]
    rows: list[list[str]] = []
    for name, rounds in found.items():
        bases, news = [base for base, _ in rounds], [new for _, new in rounds]
        cells = [ranged(spread([one.cpu_us for one in side])) for side in (bases, news)]
        for what, compared in (("cpu_us", ratio_interval), ("p50_ms", ratios), ("rate", ratios)):
            ratio = compared([getattr(one, what) for one in news], [getattr(one, what) for one in bases])
            cells.append(f"{ratio.median:.3f} ({ratio.low:.3f}–{ratio.high:.3f})")  # noqa: RUF001
            if what == "cpu_us":
                cells.append("yes" if ratio.low > SLOWER else "no")
        rows.append([name, *cells])
    return table(head, rows)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.versus", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("base", type=Path, help="the folder of the tree to compare with")
    parser.add_argument("new", type=Path, nargs="?", default=ROOT, help="the folder of the tree that is measured")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each of the four bursts of a round")
    parser.add_argument("--only", choices=[case.name for case in CASES], action="append")
    options = parser.parse_args()
    base, new = options.base.resolve(), options.new.resolve()
    check_tree(base)
    check_tree(new)
    found: dict[str, list[tuple[Total, Total]]] = {}
    print(f"base {base}, new {new}, load {machine.load():.1f}", file=sys.stderr)
    for number in range(options.rounds):
        for case in CASES:
            if options.only and case.name not in options.only:
                continue
            one, other = measure(case, base, new, number, options.seconds)
            found.setdefault(case.name, []).append((one, other))
            figures = f"{one.cpu_us:8.1f} {other.cpu_us:8.1f} µs CPU, {other.cpu_us / one.cpu_us:.3f}"
            print(f"  round {number + 1}: {case.name:14} {figures}", file=sys.stderr, flush=True)
    print(text(found))
    times = f"{options.rounds} of four bursts of {options.seconds:g} s"
    print(f"\nrounds: {times}; CPU µs are per request; a stream has {CHUNKS} chunks")


if __name__ == "__main__":
    main()
