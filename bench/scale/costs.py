"""What one step costs on the machine where it was measured: the whole of bench/scale.json."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from bench.environments import ROOT

SAVED = ROOT / "bench" / "scale.json"


class Linear(Struct, frozen=True):
    """A cost that grows with a number: so much in any case, and so much for each."""

    fixed: float
    each: float

    def of(self, number: float) -> float:
        """The cost for that many."""
        return self.fixed + self.each * number


class CommitCost(Struct, frozen=True):
    """One statement of a group commit, by the number of tasks in it: CPU seconds at the node and in PostgreSQL.

    `pause` is the time of it in which nobody computes: two wake-ups, and the disk.
    """

    node: Linear
    database: Linear
    pause: Linear


class UnitCosts(Struct, frozen=True):
    """Seconds and bytes, each measured by itself.

    A send is a SendMessage that waits for a task with four events. It takes two commits: `begin` creates the task and
    makes it working, `end` completes it.
    """

    # CPU per send without a store: of a node with many callers, of one that has to wait for each; of the generator.
    node_send: float
    node_send_alone: float
    generator_send: float
    begin: CommitCost
    end: CommitCost
    # As many begin as end, by their number: what a statement of both costs beside its tasks.
    both: CommitCost
    # An event on its way, a hundred a second: from the agent to a reader without a store; the commit of one event; from
    # the NOTIFY to a listener; the read of new events.
    event_seconds: float
    event_commit_seconds: float
    notify_seconds: float
    read_seconds: float
    # From a message in one process until another one that waits for it runs.
    hop: float
    # Until 8 KB are safe on this disk.
    sync: float
    # CPU per NOTIFY: of PostgreSQL, by the number of listeners; of the node that sends it; and of each node that gets
    # it, by the number of tasks in it.
    notify: Linear
    notify_node: float
    notice: Linear
    # A renewal of a lease, by the number of nodes.
    beat_database: Linear
    beat_node: Linear
    # A look for tasks to take, and at those that are owned.
    look_database: float
    look_node: float
    # CPU per task that has a webhook, beside that of the task itself, and how many requests it gets.
    webhook_node: float
    webhook_database: float
    webhook_requests: float
    # Bytes per send: of WAL, and on disk with all indexes. WAL of a send right after a checkpoint, with whole pages.
    wal_bytes: float
    wal_bytes_checkpoint: float
    disk_bytes: float
    # Memory of one connection in PostgreSQL that has committed, of one that has not, and of one stream in a node.
    backend_bytes: float
    idle_backend_bytes: float
    stream_bytes: float

    def commit_node(self, begins: float, ends: float) -> float:
        """CPU of a node for one statement with so many tasks."""
        return _mixed(self.begin.node, self.end.node, self.both.node, begins, ends)

    def commit_database(self, begins: float, ends: float) -> float:
        """CPU of PostgreSQL for one statement with so many tasks."""
        return _mixed(self.begin.database, self.end.database, self.both.database, begins, ends)


def _mixed(begin: Linear, end: Linear, both: Linear, begins: float, ends: float) -> float:
    fixed = both.fixed if begins and ends else begin.fixed if begins else end.fixed
    return fixed + begin.each * begins + end.each * ends


class Point(Struct, frozen=True):
    """What was measured with real nodes: medians of the rounds.

    `callers` is how many each node has, `seconds` the median time of a request, CPU is per request. A point without
    callers is that of an event on its way from node to node.
    """

    name: str
    nodes: int
    callers: int
    rate: float
    seconds: float
    node_cpu: float
    database_cpu: float
    errors: int = 0


class Measured(Struct):
    """All that was measured in one run."""

    taken: str
    machine: dict[str, str]
    load: float
    notes: list[str]
    costs: UnitCosts
    points: list[Point]


def save(measured: Measured, path: Path = SAVED) -> None:
    """Write a file."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(measured), indent=1) + b"\n")


def load(path: Path = SAVED) -> Measured:
    """Read a file. Raises msgspec.MsgspecError and OSError."""
    return msgspec.json.decode(path.read_bytes(), type=Measured)
