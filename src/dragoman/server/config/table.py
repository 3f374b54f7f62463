"""The table of all settings: their names, helps, flags and parsers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

from dragoman.console.access import ConsoleMode
from dragoman.dialects.table import CARD_FORMATS
from dragoman.engine.call import ClosingChoice
from dragoman.server.config import values
from dragoman.server.plugins import Compat

LogLevel = Literal["debug", "info", "warning", "error"]


class SettingInfo(NamedTuple):
    """One setting: its name in every source, its help, and the parser of its values.

    `parse(value, is_text)` returns the checked value and raises ValueError with what is wrong; `is_text` says that
    the value came as text, from a flag or the environment, and may be a number or a switch in words. A `secret` setting
    has no flag, because other users see the flags of a process, and is never displayed. `group` is its heading in
    `serve --help-all`; `serve --help` lists only `common` ones.
    """

    name: str
    help: str
    metavar: str
    parse: Callable[[Any, bool], Any]
    secret: bool = False
    switch: bool = False
    repeat: bool = False
    common: bool = False
    group: str = ""

    @property
    def flag(self) -> str | None:
        """Its flag, for a switch with the negation; None when it has none."""
        word = self.name.replace("_", "-")
        return None if self.secret else f"--{word}/--no-{word}" if self.switch else f"--{word}"


def _switch(name: str, text: str, *, common: bool = False) -> SettingInfo:
    return SettingInfo(name, text, "", values.parse_switch, switch=True, common=common)


def _seconds(name: str, text: str) -> SettingInfo:
    return SettingInfo(name, text, "SECONDS", values.seconds_parser(zero=True))


def _count(name: str, text: str, least: int) -> SettingInfo:
    return SettingInfo(name, text, "NUMBER", values.whole_parser(least))


def _bytes(name: str, text: str, least: int) -> SettingInfo:
    return SettingInfo(name, text, "BYTES", values.whole_parser(least))


_GROUPS: dict[str, tuple[SettingInfo, ...]] = {
    "Address": (
        SettingInfo("host", "Address to listen on.", "ADDRESS", values.parse_text, common=True),
        SettingInfo(
            "port", "Port to listen on; 0 picks a free one.", "NUMBER", values.whole_parser(0, 65535), common=True
        ),
        SettingInfo(
            "workers",
            "Processes that serve this port; several need PostgreSQL.",
            "NUMBER",
            values.whole_parser(1),
            common=True,
        ),
        SettingInfo(
            "grpc",
            "Serve gRPC too, on this port; 0 picks a free one.",
            "[HOST:]PORT",
            values.listen_parser(50051),
            common=True,
        ),
        SettingInfo(
            "metrics",
            "Serve /metrics for Prometheus, on this port.",
            "[HOST:]PORT",
            values.listen_parser(9464, "127.0.0.1"),
            common=True,
        ),
        SettingInfo("url", "Public URL of the server, for the agent card.", "URL", values.parse_url, common=True),
        SettingInfo("grpc_url", "Public address of gRPC, for the agent card.", "HOST:PORT", values.parse_grpc_url),
        SettingInfo("tls_cert", "TLS certificate (PEM).", "FILE", values.parse_text),
        SettingInfo("tls_key", "Private key for --tls-cert, if in a separate file.", "FILE", values.parse_text),
        SettingInfo("tls_ca", "CA certificates to verify client certificates.", "FILE", values.parse_text),
        SettingInfo(
            "trust_proxy",
            "Network of a proxy whose X-Forwarded-* headers to trust; repeatable.",
            "NETWORK",
            values.parse_networks,
            repeat=True,
        ),
        SettingInfo(
            "allow_hosts",
            "Extra host name to accept on loopback; repeatable.",
            "NAME",
            values.parse_texts,
            repeat=True,
        ),
        SettingInfo(
            "cors",
            "Web origin that may call the agents; repeatable.",
            "ORIGIN",
            values.parse_texts,
            repeat=True,
        ),
    ),
    "Store": (
        SettingInfo(
            "store",
            "Where to keep tasks: memory:, sqlite:///FILE or postgresql://USER@HOST/DATABASE.",
            "URL",
            values.parse_text,
            common=True,
        ),
        SettingInfo(
            "node",
            "Name of this server among those on one PostgreSQL; by default the machine and the port.",
            "NAME",
            values.parse_text,
        ),
        SettingInfo(
            "lease",
            "How long a server on PostgreSQL may be silent before others take over its tasks.",
            "SECONDS",
            values.seconds_parser(zero=False),
        ),
        _seconds("dedupe", "How long a repeated message returns its first task; 0 to turn off."),
        _seconds("limits_keep", "How long to keep ended tasks; 0 to keep them forever."),
        _count("limits_keep_tasks", "Maximum number of ended tasks to keep; 0 for no limit.", 0),
        _seconds(
            "limits_compact", "How long to keep the events of an ended task; its result stays; 0 to keep them forever."
        ),
    ),
    "Who may call": (
        SettingInfo(
            "auth",
            "How callers log in: cookie, bearer, apikey, basic, oauth2, oidc or mtls; repeatable.",
            "SCHEME",
            values.parse_auth,
            repeat=True,
            common=True,
        ),
        _switch("open_list", "Let anonymous callers list tasks from other machines too."),
        SettingInfo(
            "secret",
            "Key for cookies and stored credentials; separate several with commas to rotate.",
            "TEXT",
            values.parse_text,
            secret=True,
        ),
        SettingInfo(
            "console",
            "Who sees the web console: token (who has its token), auth (who has signed in) or off.",
            "MODE",
            values.choice_parser(*get_args(ConsoleMode)),
        ),
        SettingInfo(
            "console_token",
            "Token of the console; by default a new one at each start.",
            "TEXT",
            values.parse_console_token,
            secret=True,
        ),
    ),
    "Development": (
        _switch(
            "dev",
            "Development mode: --reload, error details for callers, more warnings, no de-duplication.",
            common=True,
        ),
        _switch("reload", "Restart when a file changes.", common=True),
    ),
    "Logging": (
        SettingInfo(
            "log_level",
            "Minimum log level: debug, info, warning or error.",
            "LEVEL",
            values.choice_parser(*get_args(LogLevel)),
            common=True,
        ),
        SettingInfo("log", "Log format: text or json.", "FORM", values.choice_parser("text", "json")),
        _switch("otel_content", "Put the text of messages into the spans of OpenTelemetry."),
    ),
    "Card": (
        SettingInfo("card_version", "Card format: 1.0, 0.3 or both.", "VERSION", values.choice_parser(*CARD_FORMATS)),
        _switch("sign", "Sign the card with the server's own key."),
        SettingInfo(
            "compat",
            "Answer as an older document has it: tool-server, for agents made of MCP tools.",
            "DOCUMENT",
            values.choice_parser(*get_args(Compat)),
        ),
    ),
    "Answers": (
        SettingInfo(
            "closing",
            "How a streamed text ends: last (mark the last chunk), whole (repeat the text) or auto.",
            "FORM",
            values.choice_parser(*get_args(ClosingChoice)),
        ),
        _switch("closing_message", "Repeat the answer in the final status and history; polls see no artifacts before."),
        _seconds("reply_within", "How long a skill may take to reply before a task is created."),
        _switch("data_as_text", "Send data as JSON text, for clients that only show text."),
        SettingInfo(
            "heartbeat",
            "Interval between keep-alive comments on a silent stream.",
            "SECONDS",
            values.seconds_parser(zero=False),
        ),
        _seconds("long_poll", "Maximum wait of a long poll."),
        _switch("blocking", "Make A2A 0.3 callers wait for the result by default."),
        _switch("strict_files", "For files of A2A 0.3 over REST, follow the specification instead of the SDKs."),
    ),
    "Webhooks": (
        _switch("push", "Deliver webhooks."),
        SettingInfo(
            "push_allow",
            "Private host or network to allow for webhooks; repeatable.",
            "HOST",
            values.parse_texts,
            repeat=True,
        ),
        _switch("push_chunks", "Deliver each piece of a streamed text too."),
    ),
    "Stopping and restarting": (
        _seconds("drain", "How long to wait for running tasks when the server stops."),
        _count("limits_attempts", "Maximum starts of a restart=True skill, if crashes interrupt it.", 1),
    ),
    "Limits": (
        _bytes("limits_headers", "Maximum size of the request line and headers.", 1024),
        _bytes("limits_body", "Maximum size of a request body.", 1),
        _count("limits_parts", "Maximum parts per message.", 1),
        _count("limits_nesting", "Maximum nesting of the JSON of a request.", 1),
        _count("limits_values", "Maximum values in the JSON of a request; 0 for no limit.", 0),
        _bytes(
            "limits_memory",
            "Maximum memory for requests and running tasks; 0 for a third of what is free.",
            0,
        ),
        _bytes("limits_caller_memory", "Maximum memory per caller; 0 for half of --limits-memory.", 0),
        _bytes("limits_page", "Maximum size of one page of tasks; a page has at least one.", 1),
        _seconds("limits_request_timeout", "How long a request may take to arrive; 0 for no limit."),
        SettingInfo(
            "limits_rate",
            "Maximum requests per second and caller; 0 for no limit. With --auth, the default is 100.",
            "NUMBER",
            values.number_parser(zero=True),
        ),
        _count(
            "limits_burst",
            "Maximum burst of requests per caller; 0 for one second's worth. With --auth, the default is 1000.",
            0,
        ),
        _count("limits_tasks", "Maximum running tasks per agent.", 1),
        _count("limits_runs", "Maximum runs of a server on PostgreSQL; 0 only accepts messages, for others to run.", 0),
        _count("limits_caller_tasks", "Maximum running tasks per caller; 0 for no limit.", 0),
        _count("limits_streams", "Maximum open streams per agent.", 1),
        _count("limits_caller_streams", "Maximum open streams per caller; 0 for no limit.", 0),
        _count("limits_threads", "Threads for `def` skills; one caller can use at most half.", 1),
        _bytes("limits_remote_bytes", "Maximum bytes to receive for one task of a remote agent; 0 for no limit.", 0),
    ),
}
SETTINGS: dict[str, SettingInfo] = {
    setting.name: setting._replace(group=heading) for heading, group in _GROUPS.items() for setting in group
}
# Former names, which are still accepted everywhere and listed nowhere.
RENAMED = {"limits_patience": "limits_request_timeout"}
