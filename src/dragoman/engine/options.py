"""What an engine is told about itself."""

from __future__ import annotations

from msgspec import Struct

from dragoman.engine.projection import Projectors


class EngineSettings(Struct, frozen=True):
    """The engine's own settings, in seconds. `projectors` say which tasks are also rows that other programs read."""

    dedupe: float = 600
    heartbeat: float = 15
    long_poll: float = 30
    drain: float = 30
    show_errors: bool = False
    max_tasks: int = 10_000
    max_streams: int = 10_000
    max_parts: int = 1000
    caller_tasks: int = 2000
    caller_streams: int = 2000
    projectors: Projectors | None = None
