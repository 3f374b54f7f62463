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
    has no flag, because other users see the flags of a process, and is never displayed.
    """

    name: str
    help: str
    metavar: str
    parse: Callable[[Any, bool], Any]
    secret: bool = False
    switch: bool = False
    repeat: bool = False

    @property
    def flag(self) -> str | None:
        """Its flag, for a switch with the negation; None when it has none."""
        word = self.name.replace("_", "-")
        return None if self.secret else f"--{word}/--no-{word}" if self.switch else f"--{word}"


def _switch(name: str, text: str) -> SettingInfo:
    return SettingInfo(name, text, "", values.parse_switch, switch=True)


def _seconds(name: str, text: str) -> SettingInfo:
    return SettingInfo(name, text, "SECONDS", values.seconds_parser(zero=True))


def _count(name: str, text: str, least: int) -> SettingInfo:
    return SettingInfo(name, text, "NUMBER", values.whole_parser(least))


def _bytes(name: str, text: str, least: int) -> SettingInfo:
    return SettingInfo(name, text, "BYTES", values.whole_parser(least))


_ALL = (
    SettingInfo("host", "Address to listen on.", "ADDRESS", values.parse_text),
    SettingInfo("port", "Port to listen on; 0 picks a free one.", "NUMBER", values.whole_parser(0, 65535)),
    SettingInfo("store", "Where tasks are kept: memory:, or sqlite:///FILE.", "URL", values.parse_text),
    SettingInfo("url", "Public address on the card, if not the request's.", "URL", values.parse_url),
    SettingInfo(
        "trust_proxy",
        "Network whose X-Forwarded-* count; repeat for several.",
        "NETWORK",
        values.parse_networks,
        repeat=True,
    ),
    SettingInfo(
        "auth",
        "Scheme by which callers are known: cookie, bearer, apikey, basic, oauth2, oidc or mtls; repeat for several.",
        "SCHEME",
        values.parse_auth,
        repeat=True,
    ),
    SettingInfo(
        "allow_hosts",
        "Name this server answers to on loopback; repeat for several.",
        "NAME",
        values.parse_texts,
        repeat=True,
    ),
    SettingInfo(
        "cors", "Origin whose pages may use the agents; repeat for several.", "ORIGIN", values.parse_texts, repeat=True
    ),
    _switch("open_list", "Strangers may list tasks beyond loopback."),
    SettingInfo(
        "secret",
        "Key for cookies and stored credentials; several, comma-separated, rotate.",
        "TEXT",
        values.parse_text,
        secret=True,
    ),
    SettingInfo("tls_cert", "Certificate to serve https with, a PEM file.", "FILE", values.parse_text),
    SettingInfo("tls_key", "Its private key, if not in the same file.", "FILE", values.parse_text),
    SettingInfo(
        "tls_ca", "Authorities for the certificates of callers, who are asked for one.", "FILE", values.parse_text
    ),
    _switch("push", "Whether webhooks are called."),
    SettingInfo(
        "push_allow",
        "Host or network off the public internet that webhooks may reach; repeat for several.",
        "HOST",
        values.parse_texts,
        repeat=True,
    ),
    _switch("push_chunks", "Webhooks get the pieces of a streamed text, not only the whole."),
    SettingInfo(
        "card_version", "Card format: both, or exactly 1.0 or 0.3.", "VERSION", values.choice_parser(*CARD_FORMATS)
    ),
    _switch("sign", "Sign the card with the server's own key."),
    _switch("data_as_text", "Data of agents is sent as JSON text, for clients that show nothing else."),
    _seconds("dedupe", "How long a repeated message returns its first task; 0 is never."),
    _seconds("reply_within", "How long a skill may take to answer without a task."),
    SettingInfo(
        "closing",
        "How a streamed text ends: whole (repeated in full), last (with its last chunk) or auto, as callers read it.",
        "FORM",
        values.choice_parser(*get_args(ClosingChoice)),
    ),
    _switch("closing_message", "Repeat the answer's text in the last status, for clients that read only that."),
    _switch("dev", "Exception texts to callers, no de-duplication."),
    _seconds("drain", "How long open requests may take when stopping."),
    SettingInfo("log", "Form of the log on stderr: text or json.", "FORM", values.choice_parser("text", "json")),
    SettingInfo(
        "log_level",
        "The least to log: debug, info, warning or error.",
        "LEVEL",
        values.choice_parser(*get_args(LogLevel)),
    ),
    _switch("blocking", "Whether 0.3 callers who say nothing wait for the end."),
    _switch("strict_files", "Whether files of 0.3 over REST are never read or written as the caller's SDK does."),
    SettingInfo(
        "heartbeat", "Silence after which a stream shows a sign of life.", "SECONDS", values.seconds_parser(zero=False)
    ),
    _seconds("long_poll", "How long a long poll may wait."),
    _bytes("limits_headers", "Largest head of a request: its address, its headers and 32 bytes more for each.", 1024),
    _bytes("limits_body", "Largest request body accepted.", 1),
    _count("limits_parts", "How many parts a message may have.", 1),
    _count("limits_nesting", "How deep the JSON of a request may be nested.", 1),
    _count("limits_values", "How many values the JSON of a request may have; 0 is any number.", 0),
    _bytes(
        "limits_memory",
        "Memory that requests and the messages of running tasks may take; 0 is a share of what there is.",
        0,
    ),
    _bytes("limits_caller_memory", "How much of it for one caller; 0 is half.", 0),
    _bytes("limits_page", "Where a page of a list of tasks ends; it has one task at least.", 1),
    _seconds("limits_request_timeout", "How long a request may take to arrive; 0 is for ever."),
    SettingInfo(
        "limits_rate",
        "Requests a second that a caller may make; 0 is any number. With auth it is 100, unless set.",
        "NUMBER",
        values.number_parser(zero=True),
    ),
    _count(
        "limits_burst",
        "How many of these at once; 0 is those of one second. With auth, and no rate set, it is 1000.",
        0,
    ),
    _count("limits_tasks", "How many tasks may run at once.", 1),
    _count("limits_attempts", "How often a restart=True skill begins when the server stops under it.", 1),
    _count("limits_caller_tasks", "How many tasks of one caller; 0 is any number.", 0),
    _count("limits_streams", "How many streams may be open at once.", 1),
    _count("limits_caller_streams", "How many streams of one caller; 0 is any number.", 0),
    _count("limits_threads", "Threads for skills that block; one caller has at most half of them.", 1),
    _seconds("limits_keep", "How long ended tasks are kept; 0 is for ever."),
    _count("limits_keep_tasks", "How many ended tasks are kept; 0 is any number.", 0),
    _seconds("limits_compact", "When an ended task's single events go, its last state stays; 0 is never."),
    _bytes("limits_remote_bytes", "Bytes that one task of an agent elsewhere may bring; 0 is any number.", 0),
)
SETTINGS: dict[str, SettingInfo] = {setting.name: setting for setting in _ALL}
# Former names, which are still accepted everywhere and listed nowhere.
RENAMED = {"limits_patience": "limits_request_timeout"}
