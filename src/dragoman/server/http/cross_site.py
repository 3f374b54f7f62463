"""Cross-site requests: which names this server answers to, and which pages may use it.

A page in a browser can make requests to any address its machine can reach, the browser adds cookies, Basic credentials
and client certificates to them by itself, and a DNS name can be pointed at 127.0.0.1. So a server on loopback answers
only to names that are its own, and what a browser adds by itself counts only for pages of this server and listed ones.
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
# Values of Sec-Fetch-Site for a page of the same origin, and for what a person did (a bookmark, a typed address).
_OWN_SITES = (None, "same-origin", "none")
_DEFAULT_PORTS = {"http": 80, "https": 443}
# How much of a foreign Origin is repeated in an error.
_LONGEST_ORIGIN = 200


class PageOrigin(Enum):
    """The page that made a request, as far as its browser says. Without a browser it is OWN."""

    OWN = "own"
    """A page of this server, a listed one, or none: all credentials count."""
    GUEST = "guest"
    """Any page may call, by `cors = "*"`: what its browser adds by itself does not count."""
    FOREIGN = "foreign"
    """A page that may not call, except with a credential that no browser adds by itself."""


class CrossSiteCheck:
    """Checks where a request thinks it is going and which page it comes from."""

    def __init__(self, url: str | None, allow_hosts: Sequence[str], cors: Sequence[str], *, open_list: bool) -> None:
        own = urlsplit(url).hostname if url else None
        self._hosts = {host.casefold() for host in (*allow_hosts, *([own] if own else []))}
        self._cors = frozenset(origin_of(origin) for origin in cors)
        self._open_list = open_list
        # Few addresses and names come again and again, with every request.
        self.host_problem = lru_cache(1024)(self._host_problem)
        self.may_list = lru_cache(1024)(self._may_list)

    @property
    def allows_cors(self) -> bool:
        """True when pages of other origins may read answers."""
        return bool(self._cors)

    def _host_problem(self, local: str, host: str) -> str | None:
        """Why a request that came in on this address may not name that host; None when it may."""
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
        """Which kind of page made a request. `base` gives the public address under which it reached us.

        Browsers say it in `Origin` and `Sec-Fetch-Site`, which no page can set; where both are sent, both must fit.
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
        """The error for a request of a foreign page."""
        origin = request.headers.get("origin", "other sites")[:_LONGEST_ORIGIN]
        text = f"pages of {origin} may not use this agent: add that origin to cors, or authenticate with a token"
        if request.headers.get("sec-fetch-site") == "same-origin":
            text += "; if it is this server's own address, set url or trust_proxy"
        return Unauthorized(text)

    def _may_list(self, local: str) -> bool:
        """False when a stranger who came in on this address would see the tasks of all others on an open network."""
        return self._open_list or not _is_address(local) or _is_loopback(local)

    def cors_headers(self, request: Request) -> list[Header]:
        """What lets a welcome page read the answer."""
        origin = request.headers.get("origin")
        if origin is None or not self._is_allowed(origin):
            return []
        return [
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"access-control-expose-headers", b"a2a-extensions, idempotent-replayed, retry-after"),
            (b"vary", b"origin"),
        ]

    def preflight_headers(self, request: Request, *, is_public: bool) -> list[Header] | None:
        """The answer to a browser that asks before it sends; None when the page is not welcome."""
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
    if not set(host).isdisjoint("@/?#\\"):  # part of a URL, and no host: read as one it may name us beside another
        return host
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".").casefold()
    except ValueError:
        return host


def _is_navigation(request: Request) -> bool:
    """True for a link that was followed: it changes nothing, and the page it stood on sees no answer."""
    return request.method in ("GET", "HEAD") and request.headers.get("sec-fetch-mode") == "navigate"


@lru_cache(maxsize=1024)
def origin_of(address: str) -> str:
    """The origin of an address, in the form in which browsers send it; what is no address stays as it is."""
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


# -- middleware --------------------------------------------------------------------------------------------------------


def check_host(
    app: AsgiApp, cross_site: CrossSiteCheck, is_trusted: Callable[[Request], bool] | None = None
) -> AsgiApp:
    """Answer 421 to a request for a name that is not ours. A trusted proxy has checked the name already."""
    problem_of = cross_site.host_problem

    def middleware(scope: AsgiScope, receive: Receive, send: Send) -> Awaitable[None]:
        server = scope.get("server")
        problem = problem_of(server[0] if server else "", scope[REQUEST].headers.get("host", ""))
        if problem is not None and not (is_trusted is not None and is_trusted(scope[REQUEST])):
            return respond(send, 421, msgspec.json.encode({"error": problem}))
        return app(scope, receive, send)

    return middleware


def check_page(app: AsgiApp, cross_site: CrossSiteCheck, base: Callable[[Request], str], refuse: Refuse) -> AsgiApp:
    """Refuse requests that a page of another origin made. `base` gives the address under which a request reached us."""

    def middleware(scope: AsgiScope, receive: Receive, send: Send) -> Awaitable[None]:
        request: Request = scope[REQUEST]
        headers = request.headers
        # Without these it was no page.
        if ("origin" in headers or "sec-fetch-site" in headers) and cross_site.page_origin(
            request, base
        ) is PageOrigin.FOREIGN:
            return refuse(request, send, cross_site.refusal(request))
        return app(scope, receive, send)

    return middleware


def add_cors_headers(app: AsgiApp, cross_site: CrossSiteCheck) -> AsgiApp:
    """Let pages of the listed origins read the answers."""

    def middleware(scope: AsgiScope, receive: Receive, send: Send) -> Awaitable[None]:
        allowed = cross_site.cors_headers(scope[REQUEST])
        return app(scope, receive, with_headers(send, allowed) if allowed else send)

    return middleware


def answer_preflight(cross_site: CrossSiteCheck, open_paths: Collection[str]) -> AsgiApp:
    """An app that tells browsers what they may send; everybody may read at `open_paths`."""

    def preflight_app(scope: AsgiScope, receive: Receive, send: Send) -> Awaitable[None]:
        request: Request = scope[REQUEST]
        headers = cross_site.preflight_headers(request, is_public=request.path in open_paths)
        if headers is not None:
            return respond(send, 204, b"", headers=headers)
        body = msgspec.json.encode({"error": "pages of this origin may not use this agent: add it to cors"})
        return respond(send, 403, body)

    return preflight_app
