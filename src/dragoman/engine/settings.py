"""Settings of the engine."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from dragoman.engine.call import ClosingChoice
from dragoman.engine.ports.rows import TaskRows
from dragoman.engine.ports.store import Store, WriteThrough
from dragoman.engine.ports.webhooks import ConfigReader, Outbox


class EngineSettings(Struct, frozen=True):
    """Settings of one engine; times are in seconds.

    `dedupe` is how long a repeated message is recognized; 0 turns that off. `heartbeat` is how long a stream may be
    silent, `long_poll` how long a read waits for news, and `drain` how long runs may finish when the server stops.
    With `show_errors`, callers read the exceptions of agents; with `data_as_text`, their data as JSON text. A
    draft, whose run may still answer with a bare message, becomes a task after `reply_within`. `attempts` is how
    often a restartable run is started when the process crashes each time. `max_tasks` and `max_streams` limit what
    runs or is open at once, `caller_tasks` and `caller_streams` the same for one caller. `page_bytes` limits a page
    of tasks. `closing` overrides that of the agent, unless it is "auto"; `closing_message` turns on that of every
    agent. With `otel_content`, spans have what is said. `task_rows` is the registry of plug-in tables.
    `wrap_store` puts a store of a plug-in before the engine's, and `configs` is where callers read their webhooks from.
    """

    dedupe: float = 600
    heartbeat: float = 15
    long_poll: float = 30
    drain: float = 30
    show_errors: bool = False
    data_as_text: bool = False
    reply_within: float = 1
    attempts: int = 3
    max_tasks: int = 10_000
    max_streams: int = 10_000
    max_parts: int = 1000
    caller_tasks: int = 2000
    caller_streams: int = 2000
    page_bytes: int = 4_000_000
    closing: ClosingChoice = "auto"
    closing_message: bool = False
    otel_content: bool = False
    task_rows: TaskRows | None = None
    wrap_store: Callable[[Store, Outbox | None], WriteThrough] | None = None
    configs: ConfigReader | None = None
