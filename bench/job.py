"""What the load generator is asked to do, and what it found."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Kind = Literal["send", "stream", "get", "list", "park", "fanout", "cross"]
Filter = Literal["none", "status", "context", "since"]


class Job(Struct, frozen=True, forbid_unknown_fields=True):
    """One burst against one server."""

    kind: Kind
    port: int
    pid: int
    concurrency: int = 32
    seconds: float = 4.0
    warmup: float = 0.5
    # When streams are given up that have not ended by then.
    limit: float = 30.0
    ids: Literal["uuid", "typed"] = "uuid"
    # By which callers say who they are, like `Name: value`; with messages of the kind `send` only.
    header: str = ""
    # False: the server answers SendMessage before the work is done.
    blocks: bool = True
    # True: the server numbers its events, and the numbers are checked.
    numbered: bool = False
    chunks: int = 0
    # How many tasks are stored (get, list), or are to be parked.
    tasks: int = 0
    filter: Filter = "none"
    # Seconds between two chunks of the stream that many readers follow, or that another node writes.
    pace: float = 0.05
    # The port of the node that writes what `port` reads.
    writer_port: int = 0
    # Port and process of further nodes: callers go to all in turn, and the CPU time is that of all.
    nodes: tuple[tuple[int, int], ...] = ()
    # The process of the database server, the parent of all its others.
    database_pid: int = 0
    # Over gRPC, from a generator written in Go; messages of the kinds `send` and `stream` only.
    grpc: bool = False
    # How many connections the callers over gRPC share; 0 for one each.
    connections: int = 0
    # CPU time to the nanosecond, for short bursts; the server must not end threads meanwhile.
    exact: bool = False


class Outcome(Struct, frozen=True):
    """What came of a burst. Rates and times cover the measured window only; errors cover everything.

    `cpu_seconds` are of what is measured. Where that is a client, the generator is the server it calls.
    """

    requests: int
    seconds: float
    cpu_seconds: float
    generator_cpu_seconds: float
    errors: int
    first_error: str
    peak_mb: float
    p50_ms: float = 0.0
    p95_ms: float = 0.0
    p99_ms: float = 0.0
    # Streams only: chunks that arrived, streams that were given up.
    events: int = 0
    unfinished: int = 0
    received_bytes: int = 0
    # Of the database server, where there is one.
    database_cpu_seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.requests / self.seconds

    @property
    def event_rate(self) -> float:
        """Events per second."""
        return self.events / self.seconds

    @property
    def cpu_us(self) -> float:
        """CPU time per request, in microseconds."""
        return self.cpu_seconds / self.requests * 1e6 if self.requests else 0.0

    @property
    def database_cpu_us(self) -> float:
        """CPU time of the database per request, in microseconds."""
        return self.database_cpu_seconds / self.requests * 1e6 if self.requests else 0.0

    @property
    def event_cpu_us(self) -> float:
        """CPU time per event, in microseconds."""
        return self.cpu_seconds / self.events * 1e6 if self.events else 0.0

    @property
    def event_database_cpu_us(self) -> float:
        """CPU time of the database per event, in microseconds."""
        return self.database_cpu_seconds / self.events * 1e6 if self.events else 0.0

    @property
    def cpu_rate(self) -> float:
        """Requests per second of CPU time."""
        return self.requests / self.cpu_seconds if self.cpu_seconds else 0.0

    @property
    def event_cpu_rate(self) -> float:
        """Events per second of CPU time."""
        return self.events / self.cpu_seconds if self.cpu_seconds else 0.0

    @property
    def generator_bound(self) -> bool:
        """True when the generator had no time left, so that what is measured might have done more."""
        return self.generator_cpu_seconds > 0.9 * self.seconds
