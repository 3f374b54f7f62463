"""Safe when open: who may talk to an agent that asks nobody for a name.

A page in a browser can make requests to any address its machine can reach, and a DNS name can be pointed at
127.0.0.1. So a server on loopback answers only to names that are its own, and a foreign page is refused unless it
is listed or brings credentials.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from dragoman.model.error import A2AError, Unauthorized

if TYPE_CHECKING:
    from dragoman.model.user import User
    from dragoman.transports.http import Header, Request

_PREFLIGHT_SECONDS = 600


class Misdirected(A2AError):
    """The request names a host that this server is not."""

    code = -32600
    reason = "MISDIRECTED_REQUEST"
    text = "This server does not answer to that name"


class Guard:
    """Checks where a request thinks it is going and which page it comes from."""

    def __init__(self, url: str | None, allow_hosts: Sequence[str], cors: Sequence[str], *, open_list: bool) -> None:
        own = urlsplit(url).hostname if url else None
        self._hosts = {host.casefold() for host in (*allow_hosts, *([own] if own else []))}
        self._cors = frozenset(origin.rstrip("/") for origin in cors)
        self._open_list = open_list

    def check_host(self, request: Request, *, trusted: bool) -> None:
        """Refuse a name that is not ours. A trusted proxy has checked it already.

        Raises:
            Misdirected: we listen on loopback and the request is meant for somebody else.
        """
        if trusted or not _is_loopback(_local(request)):
            return
        host = _hostname(request.headers.get("host", ""))
        if host and host != "localhost" and not _is_loopback(host) and host not in self._hosts:
            raise Misdirected(
                f"this server listens on {_local(request)} and does not answer to {host!r}: "
                "set url to its public address, or add the name to allow_hosts"
            )

    def check_origin(self, request: Request, base: str, user: User | None) -> None:
        """Refuse a foreign page, unless it is listed or its request is authenticated.

        Raises:
            Unauthorized: the page is foreign.
        """
        origin = request.headers.get("origin")
        if origin is None or user is not None or self._is_welcome(origin) or origin == _origin(base):
            return
        raise Unauthorized(f"pages of {origin} may not use this agent: add that origin to cors, or authenticate")

    def may_list(self, request: Request, user: User | None) -> bool:
        """False when a stranger on an open network would see the tasks of all other strangers."""
        local = _local(request)
        return user is not None or self._open_list or not _is_address(local) or _is_loopback(local)

    def cors_headers(self, request: Request) -> list[Header]:
        """What lets a welcome page read the answer."""
        origin = request.headers.get("origin")
        if origin is None or not self._is_welcome(origin):
            return []
        return [
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"access-control-expose-headers", b"a2a-extensions, idempotent-replayed, retry-after"),
            (b"vary", b"origin"),
        ]

    def preflight_headers(self, request: Request, *, anybody: bool) -> list[Header] | None:
        """The answer to a browser that asks before it sends; None when the page is not welcome."""
        allowed = [(b"access-control-allow-origin", b"*")] if anybody else self.cors_headers(request)
        if not allowed:
            return None
        wanted = request.headers.get("access-control-request-headers", "content-type")
        return [
            *allowed,
            (b"access-control-allow-methods", b"GET, POST, DELETE"),
            (b"access-control-allow-headers", wanted.encode("latin-1")),
            (b"access-control-max-age", str(_PREFLIGHT_SECONDS).encode()),
        ]

    def _is_welcome(self, origin: str) -> bool:
        return origin in self._cors or "*" in self._cors


def _local(request: Request) -> str:
    """The address the request came in on, as far as the server says."""
    server = request.scope.get("server")
    return str(server[0]) if server else ""


@lru_cache(maxsize=1024)
def _hostname(host: str) -> str:
    if not set(host).isdisjoint("@/?#\\"):  # part of a URL, and no host: read as one it may name us beside another
        return host
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".").casefold()
    except ValueError:
        return host


def _origin(base: str) -> str:
    parts = urlsplit(base)
    return f"{parts.scheme}://{parts.netloc}"


# Reading an address takes 5 µs, and a server hears few of them again and again.
@lru_cache(maxsize=1024)
def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=1024)
def _is_loopback(text: str) -> bool:
    return _is_address(text) and ipaddress.ip_address(text).is_loopback
