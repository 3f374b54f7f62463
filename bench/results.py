"""What was measured: the whole of bench/results.json."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct

from bench.job import Outcome
from bench.stats import Spread, spread


class Row(Struct):
    """One server in one case: an outcome per round."""

    server: str
    case: str
    outcomes: list[Outcome] = []

    def of(self, what: Callable[[Outcome], float]) -> Spread:
        """The spread of something over the rounds."""
        return spread([what(outcome) for outcome in self.outcomes])

    @property
    def errors(self) -> int:
        """Errors in all rounds."""
        return sum(outcome.errors for outcome in self.outcomes)


class Memory(Struct):
    """What parked tasks hold."""

    server: str
    tasks: int
    before_mb: float
    after_mb: float
    asyncio_before: int
    asyncio_after: int

    @property
    def kb_each(self) -> float:
        """Memory per task, in KB."""
        return (self.after_mb - self.before_mb) * 1024 / self.tasks


class Start(Struct):
    """How long a command takes, in milliseconds, per run."""

    name: str
    command: str
    milliseconds: list[float] = []


class Scenario(Struct):
    """One question and its answers. `notes` say what was left out, and why."""

    name: str
    taken: str = ""
    rounds: int = 0
    seconds: float = 0.0
    rows: list[Row] = []
    memories: list[Memory] = []
    starts: list[Start] = []
    notes: list[str] = []
    broken: bool = False

    def row(self, server: str, case: str = "") -> Row:
        """The row of a server in a case, made when it is not there."""
        for row in self.rows:
            if row.server == server and row.case == case:
                return row
        row = Row(server, case)
        self.rows.append(row)
        return row

    def find(self, server: str, case: str = "") -> Row | None:
        """The row of a server in a case, if anything was measured."""
        for row in self.rows:
            if row.server == server and row.case == case and row.outcomes:
                return row
        return None


class Results(Struct):
    """A run."""

    command: str
    machine: dict[str, str]
    versions: dict[str, str]
    scenarios: list[Scenario] = []

    def scenario(self, name: str) -> Scenario | None:
        """A scenario that was run."""
        return next((scenario for scenario in self.scenarios if scenario.name == name), None)


def save(results: Results, path: Path) -> None:
    """Write a results file."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")


def load(path: Path) -> Results:
    """Read a results file. Raises msgspec.MsgspecError and OSError."""
    return msgspec.json.decode(path.read_bytes(), type=Results)
