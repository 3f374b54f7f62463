"""The settings of a server, each declared once: its type, default, help and group.

Its flag, its variable, its place in the settings file and its keyword follow from its name, the parser of its values
from its type.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from socket import gethostname
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

from msgspec import Struct

from dragoman.console.access import ConsoleMode
from dragoman.dialects.table import CardVersion
from dragoman.engine.call import ClosingChoice
from dragoman.engine.settings import EngineSettings
from dragoman.server.config.store_file import DEFAULT_STORE
from dragoman.server.config.store_url import session_folder
from dragoman.server.config.values import (
    SWITCH,
    Auth,
    Bytes,
    Count,
    GrpcListen,
    GrpcUrl,
    HeadSize,
    Interval,
    Kind,
    MetricsListen,
    Networks,
    Port,
    Positive,
    Rate,
    Seconds,
    Size,
    Text,
    Texts,
    Token,
    Url,
    choice_parser,
)
from dragoman.server.plugins import Compat

LogLevel = Literal["debug", "info", "warning", "error"]


class SettingHelp(NamedTuple):
    """How a setting is presented to users.

    `group` is its heading in `serve --help-all`; `serve --help` lists only `common` ones. A `secret` setting has no
    flag, because other users see the flags of a process, and is never displayed.
    """

    group: str
    text: str
    metavar: str = ""
    common: bool = False
    secret: bool = False


class Limits(Struct, frozen=True, kw_only=True):
    """The limits on requests, tasks, streams and stored data."""

    headers: Annotated[HeadSize, SettingHelp("Limits", "Maximum size of the request line and headers.")] = 65_536
    body: Annotated[Size, SettingHelp("Limits", "Maximum size of a request body.")] = 10_000_000
    parts: Annotated[Positive, SettingHelp("Limits", "Maximum parts per message.")] = 1000
    nesting: Annotated[Positive, SettingHelp("Limits", "Maximum nesting of the JSON of a request.")] = 100
    values: Annotated[Count, SettingHelp("Limits", "Maximum values in the JSON of a request; 0 for no limit.")] = (
        500_000
    )
    memory: Annotated[
        Bytes, SettingHelp("Limits", "Maximum memory for requests and running tasks; 0 for a third of what is free.")
    ] = 0
    caller_memory: Annotated[
        Bytes, SettingHelp("Limits", "Maximum memory per caller; 0 for half of --limits-memory.")
    ] = 0
    page: Annotated[Size, SettingHelp("Limits", "Maximum size of one page of tasks; a page has at least one.")] = (
        4_000_000
    )
    request_timeout: Annotated[
        Seconds, SettingHelp("Limits", "How long a request may take to arrive; 0 for no limit.")
    ] = 30
    rate: Annotated[
        Rate,
        SettingHelp(
            "Limits", "Maximum requests per second and caller; 0 for no limit. With --auth, the default is 100."
        ),
    ] = 0
    burst: Annotated[
        Count,
        SettingHelp(
            "Limits",
            "Maximum burst of requests per caller; 0 for one second's worth. With --auth, the default is 1000.",
        ),
    ] = 0
    tasks: Annotated[Positive, SettingHelp("Limits", "Maximum running tasks per agent.")] = 10_000
    attempts: Annotated[
        Positive,
        SettingHelp("Stopping and restarting", "Maximum starts of a restart=True skill, if crashes interrupt it."),
    ] = 3
    caller_tasks: Annotated[Count, SettingHelp("Limits", "Maximum running tasks per caller; 0 for no limit.")] = 2000
    runs: Annotated[
        Count | None,
        SettingHelp("Limits", "Maximum runs of a server on PostgreSQL; 0 only accepts messages, for others to run."),
    ] = None
    streams: Annotated[Positive, SettingHelp("Limits", "Maximum open streams per agent.")] = 10_000
    caller_streams: Annotated[Count, SettingHelp("Limits", "Maximum open streams per caller; 0 for no limit.")] = 2000
    threads: Annotated[
        Positive, SettingHelp("Limits", "Threads for `def` skills; one caller can use at most half.")
    ] = 128
    keep: Annotated[Seconds, SettingHelp("Store", "How long to keep ended tasks; 0 to keep them forever.")] = 0
    keep_tasks: Annotated[Count, SettingHelp("Store", "Maximum number of ended tasks to keep; 0 for no limit.")] = 0
    compact: Annotated[
        Seconds,
        SettingHelp("Store", "How long to keep the events of an ended task; its result stays; 0 to keep them forever."),
    ] = 86_400
    remote_bytes: Annotated[
        Bytes, SettingHelp("Limits", "Maximum bytes to receive for one task of a remote agent; 0 for no limit.")
    ] = 64 * 1024 * 1024


class Settings(Struct, frozen=True, kw_only=True):
    """The settings of a server. `load_settings` checks values, this class does not."""

    host: Annotated[Text, SettingHelp("Address", "Address to listen on.", metavar="ADDRESS", common=True)] = "127.0.0.1"
    port: Annotated[Port, SettingHelp("Address", "Port to listen on; 0 picks a free one.", common=True)] = 8080
    workers: Annotated[
        Positive, SettingHelp("Address", "Processes that serve this port; several need PostgreSQL.", common=True)
    ] = 1
    grpc: Annotated[
        GrpcListen | None, SettingHelp("Address", "Serve gRPC too, on this port; 0 picks a free one.", common=True)
    ] = None
    metrics: Annotated[
        MetricsListen | None, SettingHelp("Address", "Serve /metrics for Prometheus, on this port.", common=True)
    ] = None
    url: Annotated[Url | None, SettingHelp("Address", "Public URL of the server, for the agent card.", common=True)] = (
        None
    )
    grpc_url: Annotated[GrpcUrl | None, SettingHelp("Address", "Public address of gRPC, for the agent card.")] = None
    tls_cert: Annotated[Text | None, SettingHelp("Address", "TLS certificate (PEM).", metavar="FILE")] = None
    tls_key: Annotated[
        Text | None, SettingHelp("Address", "Private key for --tls-cert, if in a separate file.", metavar="FILE")
    ] = None
    tls_ca: Annotated[
        Text | None, SettingHelp("Address", "CA certificates to verify client certificates.", metavar="FILE")
    ] = None
    trust_proxy: Annotated[
        Networks, SettingHelp("Address", "Network of a proxy whose X-Forwarded-* headers to trust; repeatable.")
    ] = ()
    allow_hosts: Annotated[Texts, SettingHelp("Address", "Extra host name to accept on loopback; repeatable.")] = ()
    cors: Annotated[
        Texts, SettingHelp("Address", "Web origin that may call the agents; repeatable.", metavar="ORIGIN")
    ] = ()
    store: Annotated[
        Text,
        SettingHelp(
            "Store",
            "Where to keep tasks: memory:, sqlite:///FILE or postgresql://USER@HOST/DATABASE.",
            metavar="URL",
            common=True,
        ),
    ] = DEFAULT_STORE
    node: Annotated[
        Text | None,
        SettingHelp(
            "Store",
            "Name of this server among those on one PostgreSQL; by default the machine and the port.",
            metavar="NAME",
        ),
    ] = None
    lease: Annotated[
        Interval,
        SettingHelp("Store", "How long a server on PostgreSQL may be silent before others take over its tasks."),
    ] = 6
    dedupe: Annotated[
        Seconds, SettingHelp("Store", "How long a repeated message returns its first task; 0 to turn off.")
    ] = 600
    auth: Annotated[
        Auth,
        SettingHelp(
            "Who may call",
            "How callers log in: cookie, bearer, apikey, basic, oauth2, oidc or mtls; repeatable.",
            common=True,
        ),
    ] = None
    open_list: Annotated[
        bool, SettingHelp("Who may call", "Let anonymous callers list tasks from other machines too.")
    ] = False
    secret: Annotated[
        Text | None,
        SettingHelp(
            "Who may call",
            "Key for cookies and stored credentials; separate several with commas to rotate.",
            secret=True,
        ),
    ] = None
    console: Annotated[
        ConsoleMode,
        SettingHelp(
            "Who may call",
            "Who sees the web console: token (who has its token), auth (who has signed in) or off.",
            metavar="MODE",
        ),
    ] = "token"
    console_token: Annotated[
        Token | None,
        SettingHelp("Who may call", "Token of the console; by default a new one at each start.", secret=True),
    ] = None
    dev: Annotated[
        bool,
        SettingHelp(
            "Development",
            "Development mode: --reload, error details for callers, no de-duplication.",
            common=True,
        ),
    ] = False
    reload: Annotated[bool, SettingHelp("Development", "Restart when a file changes.", common=True)] = False
    log_level: Annotated[
        LogLevel,
        SettingHelp("Logging", "Minimum log level: debug, info, warning or error.", metavar="LEVEL", common=True),
    ] = "info"
    log: Annotated[Literal["text", "json"], SettingHelp("Logging", "Log format: text or json.", metavar="FORM")] = (
        "text"
    )
    otel_content: Annotated[
        bool, SettingHelp("Logging", "Put the text of messages into the spans of OpenTelemetry.")
    ] = False
    card_version: Annotated[CardVersion, SettingHelp("Card", "Card format: 1.0, 0.3 or both.", metavar="VERSION")] = (
        "both"
    )
    sign: Annotated[bool, SettingHelp("Card", "Sign the card with the server's own key.")] = False
    compat: Annotated[
        Compat | None,
        SettingHelp(
            "Card", "Answer as an older document has it: tool-server, for agents made of MCP tools.", metavar="DOCUMENT"
        ),
    ] = None
    closing: Annotated[
        ClosingChoice,
        SettingHelp(
            "Answers",
            "How a streamed text ends: last (mark the last chunk), whole (repeat the text) or auto.",
            metavar="FORM",
        ),
    ] = "auto"
    closing_message: Annotated[
        bool,
        SettingHelp("Answers", "Repeat the answer in the final status and history; polls see no artifacts before."),
    ] = False
    reply_within: Annotated[
        Seconds, SettingHelp("Answers", "How long a skill may take to reply before a task is created.")
    ] = 1
    data_as_text: Annotated[
        bool, SettingHelp("Answers", "Send data as JSON text, for clients that only show text.")
    ] = False
    heartbeat: Annotated[
        Interval, SettingHelp("Answers", "Interval between keep-alive comments on a silent stream.")
    ] = 15
    long_poll: Annotated[Seconds, SettingHelp("Answers", "Maximum wait of a long poll.")] = 30
    blocking: Annotated[bool, SettingHelp("Answers", "Make A2A 0.3 callers wait for the result by default.")] = True
    strict_files: Annotated[
        bool, SettingHelp("Answers", "For files of A2A 0.3 over REST, follow the specification instead of the SDKs.")
    ] = False
    push: Annotated[bool, SettingHelp("Webhooks", "Deliver webhooks.")] = True
    push_allow: Annotated[
        Texts, SettingHelp("Webhooks", "Private host or network to allow for webhooks; repeatable.", metavar="HOST")
    ] = ()
    push_chunks: Annotated[bool, SettingHelp("Webhooks", "Deliver each piece of a streamed text too.")] = False
    drain: Annotated[
        Seconds, SettingHelp("Stopping and restarting", "How long to wait for running tasks when the server stops.")
    ] = 30
    limits: Limits = Limits()

    @property
    def node_name(self) -> str:
        """The name of this server among those on one PostgreSQL: the setting, else that of the machine and the port."""
        return self.node or f"{gethostname()}:{self.port}"

    def for_engine(self) -> EngineSettings:
        """Return those that each engine needs."""
        limits = self.limits
        return EngineSettings(
            dedupe=self.dedupe,
            heartbeat=self.heartbeat,
            long_poll=self.long_poll,
            drain=self.drain,
            show_errors=self.dev,
            data_as_text=self.data_as_text,
            reply_within=self.reply_within,
            attempts=limits.attempts,
            max_tasks=limits.tasks,
            max_streams=limits.streams,
            max_parts=limits.parts,
            caller_tasks=limits.caller_tasks,
            caller_streams=limits.caller_streams,
            page_bytes=limits.page,
            closing=self.closing,
            closing_message=self.closing_message,
            otel_content=self.otel_content,
        )

    @property
    def sessions(self) -> Path | None:
        """The folder for the sessions of programs, on this machine; None for temporary ones."""
        return session_folder(self.store)


class WorkerSettings(Settings, frozen=True, kw_only=True):
    """The settings of one of several processes that share a port. Each is a node of its own.

    `node_id` is the id with which it joins the other nodes. `ended` are the ids of processes that have surely ended, so
    that their tasks can be taken at once. `metrics_file` is where it keeps its numbers, if there is `metrics`.
    """

    worker: int
    node_id: int
    ended: tuple[int, ...] = ()
    metrics_file: Path = Path()

    @property
    def node_name(self) -> str:
        """The name of the server, and the number of the worker: a worker that is started again has it again."""
        return f"{super().node_name}/{self.worker}"

    @property
    def sessions(self) -> Path | None:
        """The folder for the sessions of programs; no two workers have the same."""
        return session_folder(self.store, self.worker)


class Setting(NamedTuple):
    """One setting, as its declaration has it.

    `parse(value, is_text)` returns the checked value and raises ValueError with what is wrong; `is_text` says that the
    value came as text, from a flag or the environment, and may be a number or a switch in words.
    """

    name: str
    default: Any
    help: SettingHelp
    kind: Kind

    @property
    def metavar(self) -> str:
        """What stands for a value in help texts."""
        return self.help.metavar or self.kind.metavar

    @property
    def is_switch(self) -> bool:
        """Whether it is on or off."""
        return self.kind is SWITCH

    @property
    def flag(self) -> str | None:
        """Its flag, for a switch with the negation; None when it has none."""
        word = self.name.replace("_", "-")
        return None if self.help.secret else f"--{word}/--no-{word}" if self.is_switch else f"--{word}"

    def parse(self, value: Any, is_text: bool) -> Any:
        """Check a value. Raises ValueError with what it must be."""
        return self.kind.parse(value, is_text)

    def of(self, settings: Settings) -> Any:
        """Return its value among settings."""
        limit = self.name.removeprefix("limits_")
        return getattr(settings, limit) if limit == self.name else getattr(settings.limits, limit)


def _kind(declared: Any, metadata: tuple[Any, ...]) -> Kind:
    """The kind of a declared type: the one that it names, else a switch or a choice of words."""
    named = next((each for each in metadata if isinstance(each, Kind)), None)
    if named is not None:
        return named
    if get_origin(declared) is Literal:
        return Kind(choice_parser(*get_args(declared)), "")
    if declared is bool:
        return SWITCH
    (some,) = (each for each in get_args(declared) if each is not NoneType)
    return _kind(get_args(some)[0], some.__metadata__) if get_origin(some) is Annotated else _kind(some, ())


def _settings_of(struct: type[Struct], prefix: str = "") -> Iterator[Setting]:
    defaults = struct()
    for name, declared in struct.__annotations__.items():
        if get_origin(declared) is Annotated:
            help_ = next(each for each in declared.__metadata__ if isinstance(each, SettingHelp))
            kind = _kind(declared.__origin__, declared.__metadata__)
            yield Setting(prefix + name, getattr(defaults, name), help_, kind)


def _by_group(settings: Iterable[Setting]) -> dict[str, Setting]:
    """All settings by name, the groups in the order of their first settings."""
    groups: dict[str, list[Setting]] = {}
    for setting in settings:
        groups.setdefault(setting.help.group, []).append(setting)
    return {setting.name: setting for group in groups.values() for setting in group}


SETTINGS = _by_group(chain(_settings_of(Settings), _settings_of(Limits, "limits_")))
