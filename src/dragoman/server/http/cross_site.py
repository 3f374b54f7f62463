"""Protection from cross-site requests and DNS rebinding, and CORS.

A page in a browser can send requests to any address its machine can reach, the browser adds cookies, Basic credentials
and client certificates by itself, and a DNS name can be pointed at 127.0.0.1. So a server on loopback accepts only its
own names as Host, and credentials that browsers add count only for pages of this server and of the origins in `cors`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Collection, Sequence
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from dragoman.model.error import Unauthorized
from dragoman.transports.http import REQUEST, respond, with_headers

if TYPE_CHECKING:
    from dragoman.server.http.limiter import Refuse
    from dragoman.transports.http import AsgiApp, AsgiScope, Header, Receive, Request, Send

_PREFLIGHT_SECONDS = 600
# Values of Sec-Fetch-Site for a page of the same origin, and for a user's action (a bookmark, a typed URL).
_OWN_SITES = (None, "same-origin", "none")
_DEFAULT_PORTS = {"http": 80, "https": 443}
# How much of a foreign Origin is quoted in an error.
_LONGEST_ORIGIN = 200


class PageOrigin(Enum):
    """The kind of page that made a request, according to its browser. Without a browser it is OWN."""

    OWN = "own"
    """A page of this server or of a listed origin, or no page: all credentials count."""
    GUEST = "guest"
    """Another page, allowed by `cors = "*"`: credentials that its browser adds do not count."""
    FOREIGN = "foreign"
    """A page that may not call, except with a credential that browsers do not add by themselves."""


class CrossSiteCheck:
    """Checks the Host of a request and the origin of the page that made it."""

    def __init__(self, url: str | None, allow_hosts: Sequence[str], cors: Sequence[str], *, open_list: bool) -> None:
        own = urlsplit(url).hostname if url else None
        self._hosts = {host.casefold() for host in (*allow_hosts, *([own] if own else []))}
        self._cors = frozenset(origin_of(origin) for origin in cors)
        self._open_list = open_list
        # Cached: few addresses and names recur with every request.
        self.host_problem = lru_cache(1024)(self._host_problem)
        self.may_list = lru_cache(1024)(self._may_list)

    @property
    def allows_cors(self) -> bool:
        """True when pages of other origins may read responses."""
        return bool(self._cors)

    def _host_problem(self, local: str, host: str) -> str | None:
        """Say why a request to this local address may not have that Host; None when it may."""
        if not _is_loopback(local):
            return None
        name = _hostname(host)
        if not name or name == "localhost" or _is_loopback(name) or name in self._hosts:
            return None
        return (
            f"this server listens on {local} and does not answer to {name!r}: "
            "set url to its public address, or add the name to allow_hosts"
        )

    def page_origin(self, request: Request, base: Callable[[Request], str]) -> PageOrigin:
        """Return the kind of page that made a request. `base` returns the public URL of a request.

        Browsers send `Origin` and `Sec-Fetch-Site`, which no page can set; where both are sent, both must match.
        """
        origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
        if origin is None:
            if site in _OWN_SITES or _is_navigation(request):
                return PageOrigin.OWN
        elif origin in self._cors or (site in _OWN_SITES and origin == origin_of(base(request))):
            return PageOrigin.OWN
        return PageOrigin.GUEST if "*" in self._cors else PageOrigin.FOREIGN

    @staticmethod
    def refusal(request: Request) -> Unauthorized:
        """Build the error for a request of a foreign page."""
        origin = request.headers.get("origin", "other sites")[:_LONGEST_ORIGIN]
        text = f"pages of {origin} may not use this agent: add that origin to cors, or authenticate with a token"
        if request.headers.get("sec-fetch-site") == "same-origin":
            text += "; if it is this server's own address, set url or trust_proxy"
        return Unauthorized(text)

    def _may_list(self, local: str) -> bool:
        """False when an anonymous caller at this local address would see everyone's tasks on an open network."""
        return self._open_list or not _is_address(local) or _is_loopback(local)

    def cors_headers(self, request: Request) -> list[Header]:
        """Return the headers that let an allowed page read the response."""
        origin = request.headers.get("origin")
        if origin is None or not self._is_allowed(origin):
            return []
        return [
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"access-control-expose-headers", b"a2a-extensions, idempotent-replayed, retry-after"),
            (b"vary", b"origin"),
        ]

    def preflight_headers(self, request: Request, *, is_public: bool) -> list[Header] | None:
        """Return the headers of a preflight response; None when the page is not allowed."""
        allowed = [(b"access-control-allow-origin", b"*")] if is_public else self.cors_headers(request)
        if not allowed:
            return None
        requested_headers = request.headers.get("access-control-request-headers", "content-type")
        return [
            *allowed,
            (b"access-control-allow-methods", b"GET, POST, DELETE"),
            (b"access-control-allow-headers", requested_headers.encode("latin-1")),
            (b"access-control-max-age", str(_PREFLIGHT_SECONDS).encode()),
        ]

    def _is_allowed(self, origin: str) -> bool:
        return origin in self._cors or "*" in self._cors


@lru_cache(maxsize=1024)
def _hostname(host: str) -> str:
    if not set(host).isdisjoint("@/?#\\"):  # not a bare host: parsed as part of a URL it could match our name
        return host
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".").casefold()
    except ValueError:
        return host


def _is_navigation(request: Request) -> bool:
    """True for a followed link: it is safe, and the page that has the link sees no response."""
    return request.method in ("GET", "HEAD") and request.headers.get("sec-fetch-mode") == "navigate"


@lru_cache(maxsize=1024)
def origin_of(address: str) -> str:
    """Return the origin of a URL as browsers send it; anything else is returned as it is."""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        return address
    if not host or not parts.scheme:
        return address.rstrip("/")
    host_part = f"[{host}]" if ":" in host else host
    is_default_port = port is None or _DEFAULT_PORTS.get(parts.scheme) == port
    return f"{parts.scheme}://{host_part}" if is_default_port else f"{parts.scheme}://{host_part}:{port}"


# Cached: parsing an address takes 5 µs, and few addresses recur.
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


# -- middleware --------------------------------------------------------------------------------------------------------


def check_host(
    app: AsgiApp, cross_site: CrossSiteCheck, is_trusted: Callable[[Request], bool] | None = None
) -> AsgiApp:
    """Respond 421 to a request for a foreign Host. Trusted proxies have checked the Host already."""
    problem_of = cross_site.host_problem

    def middleware(scope: AsgiScope, receive: Receive, send: Send) -> Awaitable[None]:
        server = scope.get("server")
        problem = problem_of(server[0] if server else "", scope[REQUEST].headers.get("host", ""))
        if problem is not None and not (is_trusted is not None and is_trusted(scope[REQUEST])):
            return respond(send, 421, msgspec.json.encode({"error": problem}))
        return app(scope, receive, send)

    return middleware


def check_page(app: AsgiApp, cross_site: CrossSiteCheck, base: Callable[[Request], str], refuse: Refuse) -> AsgiApp:
    """Refuse requests from pages of other origins. `base` returns the public URL of a request."""

    def middleware(scope: AsgiScope, receive: Receive, send: Send) -> Awaitable[None]:
        request: Request = scope[REQUEST]
        headers = request.headers
        # Without these headers it is not a browser page.
        if ("origin" in headers or "sec-fetch-site" in headers) and cross_site.page_origin(
            request, base
        ) is PageOrigin.FOREIGN:
            return refuse(request, send, cross_site.refusal(request))
        return app(scope, receive, send)

    return middleware


def add_cors_headers(app: AsgiApp, cross_site: CrossSiteCheck) -> AsgiApp:
    """Let pages of the listed origins read the responses."""

    def middleware(scope: AsgiScope, receive: Receive, send: Send) -> Awaitable[None]:
        allowed = cross_site.cors_headers(scope[REQUEST])
        return app(scope, receive, with_headers(send, allowed) if allowed else send)

    return middleware


def answer_preflight(cross_site: CrossSiteCheck, open_paths: Collection[str]) -> AsgiApp:
    """Build an app that responds to CORS preflights; `open_paths` are readable from any page."""

    def preflight_app(scope: AsgiScope, receive: Receive, send: Send) -> Awaitable[None]:
        request: Request = scope[REQUEST]
        headers = cross_site.preflight_headers(request, is_public=request.path in open_paths)
        if headers is not None:
            return respond(send, 204, b"", headers=headers)
        body = msgspec.json.encode({"error": "pages of this origin may not use this agent: add it to cors"})
        return respond(send, 403, body)

    return preflight_app
