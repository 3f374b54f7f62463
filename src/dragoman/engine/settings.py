"""What an engine is told about itself."""

from __future__ import annotations

from msgspec import Struct

from dragoman.engine.ports.rows import TaskRows


class EngineSettings(Struct, frozen=True):
    """The engine's own settings; times are in seconds.

    `task_rows` says which tasks have rows in the tables of plug-ins.

    A run that may be answered with a bare message becomes a task after `reply_within`. `attempts` is how often a run
    that may run again begins, when each time the process ends under it.
    """

    dedupe: float = 600
    heartbeat: float = 15
    long_poll: float = 30
    drain: float = 30
    show_errors: bool = False
    reply_within: float = 1
    attempts: int = 3
    max_tasks: int = 10_000
    max_streams: int = 10_000
    max_parts: int = 1000
    caller_tasks: int = 2000
    caller_streams: int = 2000
    page_bytes: int = 4_000_000
    task_rows: TaskRows | None = None
