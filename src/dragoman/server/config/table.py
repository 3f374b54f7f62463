"""Every setting: what it means, how its flag is written, how a value is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

from dragoman.dialects.table import CARD_FORMATS
from dragoman.server.config import values

LogLevel = Literal["debug", "info", "warning", "error"]


class SettingInfo(NamedTuple):
    """One setting: its help, how its flag is written (None: it has none), and how a value is read.

    `read(value, is_text)` returns the checked value and raises ValueError with what is wrong; `is_text` says that
    the value came as text, from a flag or the environment, and may be a number or a switch in words. One that is
    `secret` has no flag, because others see the flags of a process, and is shown to nobody.
    """

    help: str
    flag: str | None
    metavar: str
    read: Callable[[Any, bool], Any]
    secret: bool = False
    switch: bool = False
    repeat: bool = False


SETTINGS: dict[str, SettingInfo] = {
    "host": SettingInfo("Address to listen on.", "--host", "ADDRESS", values.text),
    "port": SettingInfo("Port to listen on; 0 picks a free one.", "--port", "NUMBER", values.whole(0, 65535)),
    "store": SettingInfo("Where tasks are kept: memory:, or sqlite:///FILE.", "--store", "URL", values.text),
    "url": SettingInfo("Public address on the card, if not the request's.", "--url", "URL", values.address),
    "trust_proxy": SettingInfo(
        "Network whose X-Forwarded-* count; repeat for several.",
        "--trust-proxy",
        "NETWORK",
        values.networks,
        repeat=True,
    ),
    "auth": SettingInfo(
        "Scheme by which callers are known: cookie, bearer, apikey, basic, oauth2, oidc or mtls; repeat for several.",
        "--auth",
        "SCHEME",
        values.auth,
        repeat=True,
    ),
    "allow_hosts": SettingInfo(
        "Name this server answers to on loopback; repeat for several.",
        "--allow-hosts",
        "NAME",
        values.texts,
        repeat=True,
    ),
    "cors": SettingInfo(
        "Origin whose pages may use the agents; repeat for several.", "--cors", "ORIGIN", values.texts, repeat=True
    ),
    "open_list": SettingInfo(
        "Strangers may list tasks beyond loopback.", "--open-list/--no-open-list", "", values.switch, switch=True
    ),
    "secret": SettingInfo(
        "Key for cookies and stored credentials; several, comma-separated, rotate.", None, "TEXT", values.text, True
    ),
    "tls_cert": SettingInfo("Certificate to serve https with, a PEM file.", "--tls-cert", "FILE", values.text),
    "tls_key": SettingInfo("Its private key, if not in the same file.", "--tls-key", "FILE", values.text),
    "tls_ca": SettingInfo(
        "Authorities for the certificates of callers, who are asked for one.", "--tls-ca", "FILE", values.text
    ),
    "push": SettingInfo("Whether webhooks are called.", "--push/--no-push", "", values.switch, switch=True),
    "push_allow": SettingInfo(
        "Host or network off the public internet that webhooks may reach; repeat for several.",
        "--push-allow",
        "HOST",
        values.texts,
        repeat=True,
    ),
    "push_chunks": SettingInfo(
        "Webhooks get the pieces of a streamed text, not only the whole.",
        "--push-chunks/--no-push-chunks",
        "",
        values.switch,
        switch=True,
    ),
    "card_version": SettingInfo(
        "Card format: both, or exactly 1.0 or 0.3.", "--card-version", "VERSION", values.choice(*CARD_FORMATS)
    ),
    "sign": SettingInfo("Sign the card with the server's own key.", "--sign/--no-sign", "", values.switch, switch=True),
    "dedupe": SettingInfo(
        "How long a repeated message returns its first task; 0 is never.",
        "--dedupe",
        "SECONDS",
        values.seconds(zero=True),
    ),
    "reply_within": SettingInfo(
        "How long a skill may take to answer without a task.", "--reply-within", "SECONDS", values.seconds(zero=True)
    ),
    "dev": SettingInfo(
        "Exception texts to callers, no de-duplication.", "--dev/--no-dev", "", values.switch, switch=True
    ),
    "drain": SettingInfo(
        "How long open requests may take when stopping.", "--drain", "SECONDS", values.seconds(zero=True)
    ),
    "log": SettingInfo("Form of the log on stderr: text or json.", "--log", "FORM", values.choice("text", "json")),
    "log_level": SettingInfo(
        "The least to log: debug, info, warning or error.", "--log-level", "LEVEL", values.choice(*get_args(LogLevel))
    ),
    "blocking": SettingInfo(
        "Whether 0.3 callers who say nothing wait for the end.",
        "--blocking/--no-blocking",
        "",
        values.switch,
        switch=True,
    ),
    "heartbeat": SettingInfo(
        "Silence after which a stream shows a sign of life.", "--heartbeat", "SECONDS", values.seconds(zero=False)
    ),
    "long_poll": SettingInfo("How long a long poll may wait.", "--long-poll", "SECONDS", values.seconds(zero=True)),
    "limits_headers": SettingInfo(
        "Largest head of a request: its address, its headers and 32 bytes more for each.",
        "--limits-headers",
        "BYTES",
        values.whole(1024),
    ),
    "limits_body": SettingInfo("Largest request body accepted.", "--limits-body", "BYTES", values.whole(1)),
    "limits_parts": SettingInfo("How many parts a message may have.", "--limits-parts", "NUMBER", values.whole(1)),
    "limits_nesting": SettingInfo(
        "How deep the JSON of a request may be nested.", "--limits-nesting", "NUMBER", values.whole(1)
    ),
    "limits_values": SettingInfo(
        "How many values the JSON of a request may have; 0 is any number.",
        "--limits-values",
        "NUMBER",
        values.whole(0),
    ),
    "limits_memory": SettingInfo(
        "Memory that requests and the messages of running tasks may take; 0 is a share of what there is.",
        "--limits-memory",
        "BYTES",
        values.whole(0),
    ),
    "limits_caller_memory": SettingInfo(
        "How much of it for one caller; 0 is half.", "--limits-caller-memory", "BYTES", values.whole(0)
    ),
    "limits_page": SettingInfo(
        "Where a page of a list of tasks ends; it has one task at least.", "--limits-page", "BYTES", values.whole(1)
    ),
    "limits_patience": SettingInfo(
        "How long a request may take to arrive; 0 is for ever.",
        "--limits-patience",
        "SECONDS",
        values.seconds(zero=True),
    ),
    "limits_rate": SettingInfo(
        "Requests a second that a caller may make; 0 is any number. With auth it is 100, unless set.",
        "--limits-rate",
        "NUMBER",
        values.number(zero=True),
    ),
    "limits_burst": SettingInfo(
        "How many of these at once; 0 is those of one second. With auth, and no rate set, it is 1000.",
        "--limits-burst",
        "NUMBER",
        values.whole(0),
    ),
    "limits_tasks": SettingInfo("How many tasks may run at once.", "--limits-tasks", "NUMBER", values.whole(1)),
    "limits_attempts": SettingInfo(
        "How often a restart=True skill begins when the server stops under it.",
        "--limits-attempts",
        "NUMBER",
        values.whole(1),
    ),
    "limits_caller_tasks": SettingInfo(
        "How many tasks of one caller; 0 is any number.", "--limits-caller-tasks", "NUMBER", values.whole(0)
    ),
    "limits_streams": SettingInfo(
        "How many streams may be open at once.", "--limits-streams", "NUMBER", values.whole(1)
    ),
    "limits_caller_streams": SettingInfo(
        "How many streams of one caller; 0 is any number.", "--limits-caller-streams", "NUMBER", values.whole(0)
    ),
    "limits_threads": SettingInfo(
        "Threads for skills that block; one caller has at most half of them.",
        "--limits-threads",
        "NUMBER",
        values.whole(1),
    ),
    "limits_keep": SettingInfo(
        "How long ended tasks are kept; 0 is for ever.", "--limits-keep", "SECONDS", values.seconds(zero=True)
    ),
    "limits_keep_tasks": SettingInfo(
        "How many ended tasks are kept; 0 is any number.", "--limits-keep-tasks", "NUMBER", values.whole(0)
    ),
    "limits_compact": SettingInfo(
        "When an ended task's single events go, its last state stays; 0 is never.",
        "--limits-compact",
        "SECONDS",
        values.seconds(zero=True),
    ),
    "limits_remote_bytes": SettingInfo(
        "Bytes that one task of an agent elsewhere may bring; 0 is any number.",
        "--limits-remote-bytes",
        "BYTES",
        values.whole(0),
    ),
}
