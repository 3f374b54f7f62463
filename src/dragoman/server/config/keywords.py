"""The settings as keyword arguments of `Server`, `serve` and `app`, for editors and type checkers.

Generated from `settings.py`; `tests/unit/server/test_setting_keywords.py` compares both, and writes this file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from dragoman.console.access import ConsoleMode
    from dragoman.dialects.table import CardVersion
    from dragoman.engine.call import ClosingChoice
    from dragoman.server.config.settings import Limits, LogLevel
    from dragoman.server.config.values import Network
    from dragoman.server.plugins import Compat


class LimitKeywords(TypedDict, total=False):
    """The limits by name: the fields of `Limits`."""

    headers: int
    body: int
    parts: int
    nesting: int
    values: int
    memory: int
    caller_memory: int
    page: int
    request_timeout: float
    rate: float
    burst: int
    tasks: int
    attempts: int
    caller_tasks: int
    runs: int | None
    streams: int
    caller_streams: int
    threads: int
    keep: float
    keep_tasks: int
    compact: float
    remote_bytes: int


class SettingKeywords(TypedDict, total=False):
    """The settings by name: the fields of `Settings`, as a caller may write them. None is as good as not set."""

    host: str | None
    port: int | None
    workers: int | None
    grpc: str | int | None
    metrics: str | int | None
    url: str | None
    grpc_url: str | None
    tls_cert: str | None
    tls_key: str | None
    tls_ca: str | None
    trust_proxy: str | Sequence[str | Network] | None
    allow_hosts: str | Sequence[str] | None
    cors: str | Sequence[str] | None
    store: str | None
    node: str | None
    lease: float | None
    dedupe: float | None
    auth: str | Sequence[str] | Mapping[str, Mapping[str, Any]] | Callable[..., Any] | None
    open_list: bool | None
    secret: str | None
    console: ConsoleMode | None
    console_token: str | None
    dev: bool | None
    reload: bool | None
    log_level: LogLevel | None
    log: Literal["text", "json"] | None
    otel_content: bool | None
    card_version: CardVersion | None
    sign: bool | None
    compat: Compat | None
    closing: ClosingChoice | None
    closing_message: bool | None
    reply_within: float | None
    data_as_text: bool | None
    heartbeat: float | None
    long_poll: float | None
    blocking: bool | None
    strict_files: bool | None
    push: bool | None
    push_allow: str | Sequence[str] | None
    push_chunks: bool | None
    drain: float | None
    limits: Limits | LimitKeywords | None
