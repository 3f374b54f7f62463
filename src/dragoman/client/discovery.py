"""Agent card discovery: fetches and caches cards."""

from __future__ import annotations

import re
import threading
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import urlsplit

from dragoman.client.connection import with_response
from dragoman.dialects.cards.card import parse_card
from dragoman.dialects.v1.dialect import V1_0
from dragoman.model.error import (
    BadCard,
    BadResponse,
    CannotConnect,
    DragomanError,
    Overloaded,
    as_received,
)
from dragoman.model.json import decode_any
from dragoman.model.operation import Operation
from dragoman.net.exchange import HttpRequest, redact_url
from dragoman.telemetry.printable import one_line
from dragoman.transports.binding import auth_error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dragoman.client.client import Client
    from dragoman.client.connection import Sender
    from dragoman.client.trust import CardVerifier
    from dragoman.clock import Clock
    from dragoman.model.card import AgentCard
    from dragoman.net.exchange import CallNext, HttpResponse

WELL_KNOWN = ("/.well-known/agent-card.json", "/.well-known/agent.json")
TTL = 300
# An expired card is kept this long, to be revalidated with its ETag.
_REVALIDATE_SECONDS = 3600
_MAX_CARD_BYTES = 4 * 1024 * 1024
_MAX_HINT_BYTES = 4096
_MAX_ENTRIES = 256
_MAX_AGE = re.compile(r"\bmax-age\s*=\s*\"?(\d{1,9})", re.IGNORECASE)
_BOM = b"\xef\xbb\xbf"
_UNAVAILABLE = (502, 503, 504)


class ResolvedCard(NamedTuple):
    """A parsed card, its bytes and its URL."""

    card: AgentCard
    body: bytes
    url: str
    # Whether the server showed it only to the credentials of the caller.
    is_private: bool = False


class _CardEntry(NamedTuple):
    resolved: ResolvedCard
    etag: str
    expires_at: float


class CardCache:
    """A thread-safe cache of cards by target URL, kept as long as their servers allow, five minutes at most."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._entries: dict[str, _CardEntry] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def fresh(self, key: str) -> ResolvedCard | None:
        """Return the card unless it has expired."""
        entry = self._entries.get(key)
        # The lower bound guards against a clock that was set back.
        return (
            entry.resolved if entry is not None and entry.expires_at - TTL <= self._now() < entry.expires_at else None
        )

    def stale(self, url: str) -> _CardEntry | None:
        """Return the entry for exactly this card URL if it has an ETag to revalidate it with."""
        with self._lock:
            return next((entry for entry in self._entries.values() if entry.resolved.url == url and entry.etag), None)

    def store(self, key: str, resolved: ResolvedCard, etag: str, cache_control: str) -> None:
        """Store a card as long as its server allows, and drop entries that can no longer be used."""
        lifetime = parse_max_age(cache_control)
        with self._lock:
            self._prune()
            self._entries.pop(key, None)
            if "no-store" in cache_control.lower() or (not lifetime and not etag):
                return
            while len(self._entries) >= _MAX_ENTRIES:
                self._entries.pop(next(iter(self._entries)))
            self._entries[key] = _CardEntry(resolved, etag, self._now() + lifetime)

    def clear(self) -> None:
        """Drop all entries."""
        with self._lock:
            self._entries.clear()

    def _prune(self) -> None:
        now = self._now()
        for key, entry in list(self._entries.items()):
            if now >= (entry.expires_at + _REVALIDATE_SECONDS if entry.etag else entry.expires_at):
                del self._entries[key]

    def _now(self) -> float:
        return self.clock.now() / 1000


class ClientCardCache(CardCache):
    """The cache of one client. A card whose server says how long it may be kept is shared with other clients.

    A server that says nothing about that may change its card at any time: its card is kept for this client alone.
    """

    def __init__(self, shared: CardCache) -> None:
        super().__init__(shared.clock)
        self._shared = shared

    def fresh(self, key: str) -> ResolvedCard | None:
        """Return the card unless it has expired, a shared one first."""
        return self._shared.fresh(key) or super().fresh(key)

    def stale(self, url: str) -> _CardEntry | None:
        """Return the entry for exactly this card URL if it has an ETag to revalidate it with."""
        return self._shared.stale(url)

    def store(self, key: str, resolved: ResolvedCard, etag: str, cache_control: str) -> None:
        """Store a card for this client, or for all if its server says how long it may be kept."""
        if cache_control:
            self._shared.store(key, resolved, etag, cache_control)
            return
        super().store(key, resolved, etag, cache_control)
        if etag:  # other clients ask whether it is still the same
            self._shared.store(key, resolved, etag, "no-cache")


def parse_max_age(cache_control: str) -> int:
    """Return for how many seconds a response stays fresh, at most `TTL`; 0 when it must be revalidated."""
    control = cache_control.lower()
    if "no-cache" in control or "no-store" in control:
        return 0
    age = _MAX_AGE.search(control)
    return min(TTL, int(age[1])) if age else TTL


def is_card_url(url: str) -> bool:
    """True when a URL is that of a card and not an agent's base URL."""
    path = urlsplit(url).path
    return "/.well-known/" in path or path.endswith(".json")


class Discovery:
    """Fetches cards. A card is public: credentials are sent only when the server requires them.

    With `verifier`, a card must carry a trusted signature, and only its signed members are used. The cache must then
    not be shared with clients that trust other keys.
    """

    def __init__(
        self, sender: Sender, cache: CardCache, *, timeout: float | None, verifier: CardVerifier | None = None
    ) -> None:
        self._sender = sender
        self._cache = cache
        self._timeout = timeout
        self.verifier = verifier
        # Whether cards that are not public stay out of the cache, which callers with other credentials use too.
        self._public_only = False

    def with_sender(self, sender: Sender) -> Discovery:
        """Return a discovery for other credentials: of the cached cards, it uses those that are public."""
        other = copy(self)
        other._sender, other._public_only = sender, True
        return other

    async def find(self, target: str) -> ResolvedCard:
        """Return the card of an agent, by its base URL or its card's URL.

        Raises:
            CannotConnect: the server cannot be reached.
            BadCard: there is no card, it cannot be parsed, or it is not trusted.
            AuthError: the card is not public and the credentials are missing or wrong.
            BadResponse: the server redirects to another origin.
            Overloaded: the server limits the rate of requests.
        """
        cached = self._cache.fresh(target)
        if cached is not None and not (self._public_only and cached.is_private):
            return cached
        if is_card_url(target):
            try:
                return await self._fetch(target, target)
            except _CardNotFound as error:
                raise _no_card(target, [error]) from None
        base = target.partition("?")[0].partition("#")[0].rstrip("/")
        tried: list[_CardNotFound] = []
        for path in WELL_KNOWN:
            resolved = await self._try(base + path, target, tried)
            if resolved is not None:
                return resolved
        return await self._find_at_root(base, target, tried)

    async def _find_at_root(self, base: str, target: str, tried: list[_CardNotFound]) -> ResolvedCard:
        """Find the card at the root of the host, if it lists `base` as the URL of an interface."""
        parts = urlsplit(base)
        if parts.path:
            for path in WELL_KNOWN:
                resolved = await self._try(f"{parts.scheme}://{parts.netloc}{path}", target, tried)
                if resolved is not None and any(
                    each.url.rstrip("/") == base for each in resolved.card.supported_interfaces
                ):
                    return resolved
        raise _no_card(base, tried)

    async def _try(self, url: str, key: str, tried: list[_CardNotFound]) -> ResolvedCard | None:
        try:
            return await self._fetch(url, key)
        except _CardNotFound as error:
            tried.append(error)
            return None

    async def _fetch(self, url: str, key: str) -> ResolvedCard:
        stale = self._cache.stale(url)
        if stale is not None and self._public_only and stale.resolved.is_private:
            stale = None
        headers = {"Accept": "application/json"}
        if stale is not None:
            headers["If-None-Match"] = stale.etag
        request = HttpRequest(
            "GET", url, headers, operation="GetAgentCard", connect_timeout=self._timeout, read_timeout=self._timeout
        )
        # The card says how credentials are sent, so the first request carries none.
        response = await self._sender.send(request, anonymous=True)
        is_private = response.status in (401, 403) and self._sender.credential is not None
        if is_private:
            await response.close()
            response = await self._sender.send(request)
        status, response_headers = response.status, response.headers
        etag, control = response_headers.get("ETag", ""), response_headers.get("Cache-Control", "")
        if status != 200:
            hint = await _read_hint(response) if status == 404 else ""
            await response.close()
            if status == 304 and stale is not None:
                # The card is unchanged, but its signing key may have been revoked.
                resolved = stale.resolved if self.verifier is None else await self._parse(stale.resolved.body, url)
                self._cache.store(key, resolved, etag or stale.etag, control)
                return resolved
            raise with_response(
                _fetch_error(status, response_headers, url, hint), status, response_headers, self._cache.clock
            )
        try:
            body = await response.read(_MAX_CARD_BYTES)
        except BadResponse as error:
            raise BadCard(f"{redact_url(url)} is no agent card: {error}") from None
        body = body.removeprefix(_BOM)
        if body.lstrip()[:1] != b"{":
            media_type = response_headers.get("Content-Type", "nothing").partition(";")[0]
            raise _CardNotFound(f"{media_type} instead of JSON at {redact_url(url)}")
        resolved = (await self._parse(body, url))._replace(is_private=is_private)
        if not (is_private and self._public_only):
            self._cache.store(key, resolved, etag, control)
        return resolved

    async def _parse(self, body: bytes, url: str) -> ResolvedCard:
        try:
            card = parse_card(body)
            if self.verifier is not None:
                card = await self.verifier.read(decode_any(body), url)
        except BadCard as error:
            raise BadCard(f"{error} (at {redact_url(url)})", reason=error.reason) from None
        return ResolvedCard(card, body, url)


class StaticDiscovery(Discovery):
    """Discovery for a card given by the caller: no card is fetched, the given one is only verified."""

    def __init__(self, card: dict[str, Any], sender: Sender, cache: CardCache, verifier: CardVerifier) -> None:
        super().__init__(sender, cache, timeout=None, verifier=verifier)
        self._card = card
        self._static_verifier = verifier

    async def find(self, target: str) -> ResolvedCard:
        """Return the given card. Raises BadCard when it is not trusted, CannotConnect when keys cannot be fetched."""
        return ResolvedCard(await self._static_verifier.read(self._card, None), b"", target)


class _CardNotFound(BadCard):
    """There is no card at this URL. `hint` is what the server says about that, if anything."""

    def __init__(self, text: str, hint: str = "") -> None:
        super().__init__(text)
        self.hint = hint


def _no_card(target: str, tried: Sequence[_CardNotFound]) -> BadCard:
    hint = next((f". The server says: {error.hint}" for error in tried if error.hint), "")
    return BadCard(f"there is no agent card at {redact_url(target)}: {'; '.join(map(str, tried))}{hint}")


async def _read_hint(response: HttpResponse) -> str:
    """Return what a server says about a card that is not there: `hint` of its JSON, as Dragoman's servers have it."""
    try:
        body = decode_any(await response.read(_MAX_HINT_BYTES))
    except (DragomanError, ValueError):
        return ""
    hint: Any = cast("dict[str, Any]", body).get("hint") if isinstance(body, dict) else None
    return one_line(hint) if isinstance(hint, str) else ""


def _fetch_error(status: int, headers: Mapping[str, str], url: str, hint: str = "") -> DragomanError:
    if status in (401, 403):
        return auth_error(status, headers, url)
    if status in _UNAVAILABLE:
        return CannotConnect(f"{redact_url(url)} is not available: HTTP {status}", reason="UNAVAILABLE", status=status)
    if status == 429:
        return as_received(Overloaded(f"{redact_url(url)} takes no more requests now: HTTP 429"))
    return _CardNotFound(f"HTTP {status} at {redact_url(url)}", hint)


class CardRecorder:
    """An interceptor that records the bodies of card responses by URL, even those that cannot be parsed."""

    def __init__(self) -> None:
        self.bodies: dict[str, bytes] = {}

    async def __call__(self, request: HttpRequest, call_next: CallNext) -> HttpResponse:
        """Pass the request on and record the body of a card response when it is read."""
        response = await call_next(request)
        if request.operation != "GetAgentCard" or response.status != 200:  # a body that says why is not a card
            return response
        return TappedResponse(response, partial(self._record, request.url))

    def _record(self, url: str, body: bytes) -> bytes:
        self.bodies[url] = body
        return body

    async def card(self, client: Client) -> tuple[str, bytes]:
        """Return the URL and body of the client's card; if no response was a valid card, the first recorded one.

        Raises:
            BadCard: no card response was recorded.
            CannotConnect: the agent cannot be reached.
            AuthError: the card is not public and the credentials are missing or wrong.
        """
        try:
            card = await client.card()
        except BadCard:
            if not self.bodies:
                raise
            return next(iter(self.bodies.items()))
        if not self.bodies:  # it came over gRPC, or is one that is only assumed
            return card.supported_interfaces[0].url, V1_0.write_result(Operation.EXTENDED_CARD, card)
        return list(self.bodies.items())[-1]


class TappedResponse:
    """An `HttpResponse` whose body passes through `tap` when it is read."""

    def __init__(self, response: HttpResponse, tap: Callable[[bytes], bytes]) -> None:
        self._response = response
        self._tap = tap
        self.status = response.status
        self.headers = response.headers
        self.chunks = response.chunks
        self.close = response.close

    async def read(self, limit: int = 0) -> bytes:
        """Read the body, at most `limit` bytes if that is not 0, and return what `tap` makes of it."""
        return self._tap(await self._response.read(limit))
