"""A request as HTTP/1.1 spells it: whom it is for, what it asks for, its headers."""

from __future__ import annotations

import re
from base64 import b64encode
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

from dragoman.net.exchange import HttpRequest

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_UNSAFE = re.compile(r"[\x00-\x1f\x7f]")
# Whom a request is for and where it ends is said once, and not by a caller.
_FRAMING = ("host", "content-length", "transfer-encoding", "connection", "upgrade", "expect")


class Place(NamedTuple):
    """What a URL says: whom to connect to, and what to ask for there."""

    tls: bool
    host: str
    port: int
    head: bytes
    authorization: str


@lru_cache(256)
def place_of(url: str) -> Place:
    """Take a URL apart. Raises ValueError when it names nobody that can be called."""
    parts = urlsplit(url)
    host = (parts.hostname or "").rstrip(".")
    if parts.scheme not in ("http", "https") or not host or _UNSAFE.search(url) or " " in url:
        raise ValueError("not an address that can be called")
    tls = parts.scheme == "https"
    port = parts.port or (443 if tls else 80)
    name = host if host.isascii() else host.encode("idna").decode()
    shown_name = f"[{name.partition('%')[0]}]" if ":" in name else name
    netloc = shown_name if port == (443 if tls else 80) else f"{shown_name}:{port}"
    target = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._") + (
        f"?{quote(parts.query, safe='/%:@!$&()*+,;=?~-._')}" if parts.query else ""
    )
    authorization = ""
    if parts.username is not None:
        secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = f"Basic {b64encode(secret.encode()).decode()}"
    return Place(tls, name, port, f" {target} HTTP/1.1\r\nHost: {netloc}\r\n".encode(), authorization)


def spelled(request: HttpRequest, place: Place, agent: str) -> bytes:
    """A request as bytes. Raises ValueError when a header would be more than one."""
    lines: list[str] = []
    agent_named = authorized = False
    for name, value in request.headers.items():
        key = _key(name)
        if not key or _UNSAFE.search(value):
            raise ValueError(f"the header {name!r} is not one that can be sent, or holds what no header may hold")
        lines.append(f"{name}: {value}\r\n")
        if key == "user-agent":
            agent_named = True
        elif key == "authorization":
            authorized = True
    if not agent_named:
        lines.append(f"User-Agent: {agent}\r\n")
    if place.authorization and not authorized:
        lines.append(f"Authorization: {place.authorization}\r\n")
    if request.body is not None:
        lines.append(f"Content-Length: {len(request.body)}\r\n")
    lines.append("\r\n")
    return request.method.encode() + place.head + "".join(lines).encode("latin-1") + (request.body or b"")


@lru_cache(512)
def _key(name: str) -> str:
    """The name of a header in lower case; empty when it is none, or one that says where a request ends."""
    key = name.lower()
    return key if _TOKEN.fullmatch(name) and key not in _FRAMING else ""
