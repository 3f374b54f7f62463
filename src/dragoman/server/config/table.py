"""The table of all settings: their names, helps, flags and parsers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

from dragoman.dialects.table import CARD_FORMATS
from dragoman.engine.call import ClosingChoice
from dragoman.server.config import values

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
        SettingInfo("url", "Public address of the server, for the card.", "URL", values.parse_url, common=True),
        SettingInfo("tls_cert", "Certificate for https, a PEM file.", "FILE", values.parse_text),
        SettingInfo("tls_key", "Private key of --tls-cert, if it is in another file.", "FILE", values.parse_text),
        SettingInfo("tls_ca", "Authorities that sign the certificates of callers.", "FILE", values.parse_text),
        SettingInfo(
            "trust_proxy",
            "Network of a proxy whose X-Forwarded-* headers count; repeatable.",
            "NETWORK",
            values.parse_networks,
            repeat=True,
        ),
        SettingInfo(
            "allow_hosts",
            "Further host name that a server on loopback accepts; repeatable.",
            "NAME",
            values.parse_texts,
            repeat=True,
        ),
        SettingInfo(
            "cors",
            "Origin whose web pages may call the agents; repeatable.",
            "ORIGIN",
            values.parse_texts,
            repeat=True,
        ),
    ),
    "Store": (
        SettingInfo(
            "store", "Where tasks are kept: memory:, or sqlite:///FILE.", "URL", values.parse_text, common=True
        ),
        _seconds("dedupe", "How long a repeated message returns its first task; 0: never."),
        _seconds("limits_keep", "How long ended tasks are kept; 0: forever."),
        _count("limits_keep_tasks", "How many ended tasks are kept; 0: any number.", 0),
        _seconds("limits_compact", "When the events of an ended task are deleted, except its last state; 0: never."),
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
        _switch("open_list", "Anonymous callers may list tasks, also beyond loopback."),
        SettingInfo(
            "secret",
            "Key for cookies and stored credentials; several, comma-separated, rotate.",
            "TEXT",
            values.parse_text,
            secret=True,
        ),
    ),
    "Development": (
        _switch("dev", "Reload, warn of likely mistakes, send error texts to callers, no de-duplication.", common=True),
        _switch("reload", "Restart when a file changes.", common=True),
    ),
    "Logging": (
        SettingInfo(
            "log_level",
            "Lowest level to log: debug, info, warning or error.",
            "LEVEL",
            values.choice_parser(*get_args(LogLevel)),
            common=True,
        ),
        SettingInfo("log", "Format of the log on stderr: text or json.", "FORM", values.choice_parser("text", "json")),
    ),
    "Card": (
        SettingInfo(
            "card_version", "Card format: both, or exactly 1.0 or 0.3.", "VERSION", values.choice_parser(*CARD_FORMATS)
        ),
        _switch("sign", "Sign the card with the server's own key."),
    ),
    "Answers": (
        SettingInfo(
            "closing",
            "How a streamed text ends: whole (repeated in full), last (with its last chunk) or auto.",
            "FORM",
            values.choice_parser(*get_args(ClosingChoice)),
        ),
        _switch("closing_message", "Repeat the text of the answer in the last status message."),
        _seconds("reply_within", "How long a skill may take to reply without a task."),
        _switch("data_as_text", "Send data as JSON text, for clients that show only text."),
        SettingInfo(
            "heartbeat",
            "How long a stream is silent before it sends a sign of life.",
            "SECONDS",
            values.seconds_parser(zero=False),
        ),
        _seconds("long_poll", "How long a long poll may wait."),
        _switch("blocking", "Callers of 0.3 wait for the end, unless they say otherwise."),
        _switch("strict_files", "Read and write files of 0.3 over REST as the protocol says, not as SDKs do."),
    ),
    "Webhooks": (
        _switch("push", "Deliver webhooks."),
        SettingInfo(
            "push_allow",
            "Private host or network that webhooks may reach; repeatable.",
            "HOST",
            values.parse_texts,
            repeat=True,
        ),
        _switch("push_chunks", "Deliver the pieces of a streamed text too."),
    ),
    "Stopping and restarting": (
        _seconds("drain", "How long running tasks may take when the server stops."),
        _count("limits_attempts", "How often a restart=True skill is started again after crashes.", 1),
    ),
    "Limits": (
        _bytes("limits_headers", "Largest head of a request, its address and its headers.", 1024),
        _bytes("limits_body", "Largest request body.", 1),
        _count("limits_parts", "Most parts of a message.", 1),
        _count("limits_nesting", "Deepest nesting of the JSON of a request.", 1),
        _count("limits_values", "Most values in the JSON of a request; 0: any number.", 0),
        _bytes(
            "limits_memory",
            "Memory for requests and the messages of running tasks; 0: a share of the machine's.",
            0,
        ),
        _bytes("limits_caller_memory", "How much of it for one caller; 0: half.", 0),
        _bytes("limits_page", "Largest page of a list of tasks; it has at least one task.", 1),
        _seconds("limits_request_timeout", "How long a request may take to arrive; 0: forever."),
        SettingInfo(
            "limits_rate",
            "Requests per second and caller; 0: any number. With auth the default is 100.",
            "NUMBER",
            values.number_parser(zero=True),
        ),
        _count(
            "limits_burst",
            "How many of these at once; 0: those of one second. With auth the default is 1000.",
            0,
        ),
        _count("limits_tasks", "Most tasks that run at once.", 1),
        _count("limits_caller_tasks", "Most running tasks of one caller; 0: any number.", 0),
        _count("limits_streams", "Most open streams.", 1),
        _count("limits_caller_streams", "Most open streams of one caller; 0: any number.", 0),
        _count("limits_threads", "Threads for `def` skills; one caller gets at most half of them.", 1),
        _bytes("limits_remote_bytes", "Most bytes that a task of a remote agent may receive; 0: any number.", 0),
    ),
}
SETTINGS: dict[str, SettingInfo] = {
    setting.name: setting._replace(group=heading) for heading, group in _GROUPS.items() for setting in group
}
# Former names, which are still accepted everywhere and listed nowhere.
RENAMED = {"limits_patience": "limits_request_timeout"}
