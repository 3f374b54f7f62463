"""Parses URLs and encodes requests for HTTP/1.1."""

from __future__ import annotations

import re
from base64 import b64encode
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

from dragoman.net.exchange import HttpRequest

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_UNSAFE = re.compile(r"[\x00-\x1f\x7f]")
# Headers that decide where a request goes and where it ends are set here, never by a caller.
FRAMING = ("host", "content-length", "transfer-encoding", "connection", "upgrade", "expect")


class HttpUrl(NamedTuple):
    """A parsed URL: where to connect, the encoded end of the request line with Host, and Basic credentials."""

    tls: bool
    host: str
    port: int
    request_line: bytes
    authorization: str


@lru_cache(256)
def parse_url(url: str) -> HttpUrl:
    """Parse an http or https URL. Raises ValueError when it is not one."""
    parts = urlsplit(url)
    host = (parts.hostname or "").rstrip(".")
    if parts.scheme not in ("http", "https") or not host or _UNSAFE.search(url) or " " in url:
        raise ValueError("not an address that can be called")
    tls = parts.scheme == "https"
    port = parts.port or (443 if tls else 80)
    name = host if host.isascii() else host.encode("idna").decode()
    host_name = f"[{name.partition('%')[0]}]" if ":" in name else name
    netloc = host_name if port == (443 if tls else 80) else f"{host_name}:{port}"
    target = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._") + (
        f"?{quote(parts.query, safe='/%:@!$&()*+,;=?~-._')}" if parts.query else ""
    )
    authorization = ""
    if parts.username is not None:
        secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = f"Basic {b64encode(secret.encode()).decode()}"
    return HttpUrl(tls, name, port, f" {target} HTTP/1.1\r\nHost: {netloc}\r\n".encode(), authorization)


def encode_request(request: HttpRequest, url: HttpUrl, agent: str) -> bytes:
    """Encode a request. Raises ValueError for a header that would inject another."""
    head = _encode_headers(tuple(request.headers.items()), url.authorization, agent)
    body = request.body
    if body is None:
        return b"%b%b%b\r\n" % (request.method.encode(), url.request_line, head)
    return b"%b%b%bContent-Length: %d\r\n\r\n%b" % (request.method.encode(), url.request_line, head, len(body), body)


# Most requests of a client have the same headers as the previous one.
@lru_cache(256)
def _encode_headers(headers: tuple[tuple[str, str], ...], authorization: str, agent: str) -> bytes:
    lines: list[str] = []
    keys: set[str] = set()
    for name, value in headers:
        key = _header_key(name)
        if not key or _UNSAFE.search(value):
            raise ValueError(
                f"the header {name!r} cannot be sent: its name is not allowed, or its value has control characters"
            )
        keys.add(key)
        lines.append(f"{name}: {value}\r\n")
    if "user-agent" not in keys:
        lines.append(f"User-Agent: {agent}\r\n")
    if authorization and "authorization" not in keys:
        lines.append(f"Authorization: {authorization}\r\n")
    return "".join(lines).encode("latin-1")


@lru_cache(512)
def _header_key(name: str) -> str:
    """Return a header name in lower case; empty when it is invalid or a framing header."""
    key = name.lower()
    return key if _TOKEN.fullmatch(name) and key not in FRAMING else ""
