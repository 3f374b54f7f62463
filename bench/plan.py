"""How a run is carried out: rounds, seconds, and an end that is kept."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import msgspec
from msgspec import Struct

from bench import cores
from bench.contestants import Contestant, Field
from bench.environments import PEERS, ROOT
from bench.job import Job, Outcome
from bench.results import Scenario
from bench.server import Running, running

# Starting a server and a generator, and stopping them, beside the burst itself.
OVERHEAD_SECONDS = 3.0
# Of bench/peers/go/load.
GRPC_GENERATOR = PEERS / "go-bench" / "load"


class OutOfTime(Exception):
    """The run would take longer than it may."""


class Settings(Struct, frozen=True):
    """What --quick changes."""

    rounds: int = 3
    seconds: float = 4.0
    warmup: float = 0.5
    budget: float = 1980.0
    quick: bool = False


QUICK = Settings(rounds=1, seconds=1.5, warmup=0.3, budget=200.0, quick=True)


class Plan:
    """The means every scenario uses: servers, bursts, a folder, the time that is left."""

    def __init__(self, settings: Settings, field: Field, folder: Path, keep: Path | None = None) -> None:
        self.settings = settings
        self.field = field
        self.folder = folder
        # Where filled stores are kept for the next run.
        self.keep = keep
        self._end = time.monotonic() + settings.budget

    @property
    def left(self) -> float:
        """The seconds that are left."""
        return self._end - time.monotonic()

    def need(self, seconds: float) -> None:
        """Raise OutOfTime when there is not that much time left."""
        if self.left < seconds:
            raise OutOfTime

    def burst(self, contestant: Contestant, job: Job, server: Running | None = None) -> Outcome:
        """Load a server, by default one that is started for this burst alone.

        A fresh process and an empty store each time: what one burst leaves in memory must not slow the next.

        Raises:
            OutOfTime: there is no time for it.
        """
        self.need(job.seconds + job.warmup + OVERHEAD_SECONDS)
        if server is not None:
            return generate(msgspec.structs.replace(job, port=server.port, pid=server.pid))
        with running(contestant, self.folder) as started:
            return generate(msgspec.structs.replace(job, port=started.port, pid=started.pid))

    def job(self, contestant: Contestant, /, **options: object) -> Job:
        """A job with this run's times and this contestant's ways; the port comes with the burst."""
        common = {"port": 0, "pid": 0, "blocks": contestant.blocks, "numbered": contestant.numbered}
        common["grpc"] = contestant.grpc
        times = {"seconds": self.settings.seconds, "warmup": max(self.settings.warmup, contestant.warmup)}
        return msgspec.convert({**common, **times, **options}, Job)


def generate(job: Job) -> Outcome:
    """Run the load generator in its own process. Raises RuntimeError when it breaks."""
    done = subprocess.run(
        _generator() if job.grpc else [sys.executable, "-m", "bench.load"],
        input=msgspec.json.encode(job),
        capture_output=True,
        cwd=ROOT,
        timeout=job.warmup + job.seconds + 3 * job.limit + 30,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"the load generator broke:\n{done.stderr.decode(errors='replace')[-2000:]}")
    return msgspec.json.decode(done.stdout, type=Outcome)


def _generator() -> list[str]:
    core = cores.load_core()
    return [sys.executable, "-m", "bench.cores", "" if core is None else str(core), str(GRPC_GENERATOR)]


def tell(scenario: Scenario, server: str, case: str, outcome: Outcome) -> None:
    """Show on stderr that something happens."""
    rate = f"{outcome.event_rate:,.0f} events/s" if outcome.events else f"{outcome.rate:,.0f} requests/s"
    wrong = f", {outcome.errors} errors: {outcome.first_error}" if outcome.errors else ""
    cut = f", {outcome.unfinished} streams given up" if outcome.unfinished else ""
    print(f"  {scenario.name:10} {server:20} {case:14} {rate}{wrong}{cut}", file=sys.stderr, flush=True)
