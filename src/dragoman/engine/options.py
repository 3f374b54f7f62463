"""What an engine is told about itself."""

from __future__ import annotations

from msgspec import Struct


class EngineSettings(Struct, frozen=True):
    """The engine's own settings, in seconds."""

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
