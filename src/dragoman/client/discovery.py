"""Finding an agent's card, and remembering it for a while."""

from __future__ import annotations

import re
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from dragoman.client.connection import with_retry_after
from dragoman.dialects.cards.card import parse_card
from dragoman.dialects.negotiate import dialect_of
from dragoman.dialects.table import GRPC, JSONRPC, REST, ROWS, VERSIONS, nearest_version
from dragoman.model.error import BadCard, BadResponse, CannotConnect, ConfigError, DragomanError, Overloaded
from dragoman.model.json import decode_any
from dragoman.net.exchange import HttpRequest, redact_url
from dragoman.transports.binding import auth_error
from dragoman.transports.jsonrpc.call import JsonRpcBinding
from dragoman.transports.rest.call import RestBinding

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dragoman.client.client import Client
    from dragoman.client.connection import Sender
    from dragoman.client.trust import CardVerifier
    from dragoman.clock import Clock
    from dragoman.model.card import AgentCard, AgentInterface
    from dragoman.net.exchange import CallNext, HttpResponse
    from dragoman.transports.binding import Binding

WELL_KNOWN = ("/.well-known/agent-card.json", "/.well-known/agent.json")
TTL = 300
# A card that has run out can still be asked after with its tag, for so long.
_REVALIDATE_SECONDS = 3600
_MAX_CARD_BYTES = 4 * 1024 * 1024
_MAX_ENTRIES = 256
_MAX_AGE = re.compile(r"\bmax-age\s*=\s*\"?(\d{1,9})", re.IGNORECASE)
_BOM = b"\xef\xbb\xbf"
_UNAVAILABLE = (502, 503, 504)


class ResolvedCard(NamedTuple):
    """A card, its bytes and where it was found."""

    card: AgentCard
    body: bytes
    url: str


class _CardEntry(NamedTuple):
    resolved: ResolvedCard
    etag: str
    expires_at: float


class CardCache:
    """Cards by address, for as long as their servers say and five minutes at most. Threads may share it."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._entries: dict[str, _CardEntry] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def fresh(self, key: str) -> ResolvedCard | None:
        """The card, if it need not be asked for again."""
        entry = self._entries.get(key)
        # A clock that was set back would make it young for ever.
        return (
            entry.resolved if entry is not None and entry.expires_at - TTL <= self._now() < entry.expires_at else None
        )

    def stale(self, url: str) -> _CardEntry | None:
        """The card found at exactly this address, with a tag to ask after it."""
        with self._lock:
            return next((entry for entry in self._entries.values() if entry.resolved.url == url and entry.etag), None)

    def store(self, key: str, resolved: ResolvedCard, etag: str, cache_control: str) -> None:
        """Remember a card as long as its server allows; forget those nobody can use any more."""
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
        """Forget all."""
        with self._lock:
            self._entries.clear()

    def _prune(self) -> None:
        now = self._now()
        for key, entry in list(self._entries.items()):
            if now >= (entry.expires_at + _REVALIDATE_SECONDS if entry.etag else entry.expires_at):
                del self._entries[key]

    def _now(self) -> float:
        return self.clock.now() / 1000


def parse_max_age(cache_control: str) -> int:
    """For how many seconds an answer need not be asked for again; 0 when it must be."""
    control = cache_control.lower()
    if "no-cache" in control or "no-store" in control:
        return 0
    age = _MAX_AGE.search(control)
    return min(TTL, int(age[1])) if age else TTL


def is_card_url(url: str) -> bool:
    """True when a URL names a card and not an agent's base."""
    path = urlsplit(url).path
    return "/.well-known/" in path or path.endswith(".json")


class Discovery:
    """Asks for cards. A card is public: credentials go along only when the server insists.

    With `trust` a card counts only if it is signed as that wants it, and only what is signed of it. The cache must
    then be one that nobody fills who trusts otherwise.
    """

    def __init__(
        self, sender: Sender, cache: CardCache, *, timeout: float | None, verifier: CardVerifier | None = None
    ) -> None:
        self._sender = sender
        self._cache = cache
        self._timeout = timeout
        self.verifier = verifier

    async def find(self, target: str) -> ResolvedCard:
        """The card of an agent by its base URL or its card's URL.

        Raises:
            CannotConnect: nobody answers.
            BadCard: there is no card, it cannot be read, or it is not trusted.
            AuthError: the card is not public and the credentials are missing or wrong.
        """
        cached = self._cache.fresh(target)
        if cached is not None:
            return cached
        if is_card_url(target):
            try:
                return await self._fetch(target, target)
            except _CardNotFound as error:
                raise BadCard(f"there is no agent card at {redact_url(target)}: {error}") from None
        base = target.partition("?")[0].partition("#")[0].rstrip("/")
        tried: list[str] = []
        for path in WELL_KNOWN:
            resolved = await self._try(base + path, target, tried)
            if resolved is not None:
                return resolved
        return await self._find_at_root(base, target, tried)

    async def _find_at_root(self, base: str, target: str, tried: list[str]) -> ResolvedCard:
        """What was given may be the address requests are sent to: then the card at the root says so."""
        parts = urlsplit(base)
        if parts.path:
            for path in WELL_KNOWN:
                resolved = await self._try(f"{parts.scheme}://{parts.netloc}{path}", target, tried)
                if resolved is not None and any(
                    each.url.rstrip("/") == base for each in resolved.card.supported_interfaces
                ):
                    return resolved
        raise BadCard(f"there is no agent card at {redact_url(base)}: {'; '.join(tried)}")

    async def _try(self, url: str, key: str, tried: list[str]) -> ResolvedCard | None:
        try:
            return await self._fetch(url, key)
        except _CardNotFound as error:
            tried.append(str(error))
            return None

    async def _fetch(self, url: str, key: str) -> ResolvedCard:
        stale = self._cache.stale(url)
        headers = {"Accept": "application/json"}
        if stale is not None:
            headers["If-None-Match"] = stale.etag
        request = HttpRequest(
            "GET", url, headers, operation="GetAgentCard", connect_timeout=self._timeout, read_timeout=self._timeout
        )
        # A card says where credentials go, so they cannot be put anywhere before it has been read.
        response = await self._sender.send(request, anonymous=True)
        if response.status in (401, 403) and self._sender.credential is not None:
            await response.close()
            response = await self._sender.send(request)
        status, response_headers = response.status, response.headers
        etag, control = response_headers.get("ETag", ""), response_headers.get("Cache-Control", "")
        if status != 200:
            await response.close()
            if status == 304 and stale is not None:
                # It is the same card, but its key may have been withdrawn.
                resolved = stale.resolved if self.verifier is None else await self._parse(stale.resolved.body, url)
                self._cache.store(key, resolved, etag or stale.etag, control)
                return resolved
            raise with_retry_after(
                _fetch_error(status, response_headers, url), status, response_headers, self._cache.clock
            )
        try:
            body = await response.read(_MAX_CARD_BYTES)
        except BadResponse as error:
            raise BadCard(f"{redact_url(url)} is no agent card: {error}") from None
        body = body.removeprefix(_BOM)
        if body.lstrip()[:1] != b"{":
            media_type = response_headers.get("Content-Type", "nothing").partition(";")[0]
            raise _CardNotFound(f"{media_type} instead of JSON at {redact_url(url)}")
        resolved = await self._parse(body, url)
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
    """A card that is at hand: it is not looked for, only checked."""

    def __init__(self, card: dict[str, Any], sender: Sender, cache: CardCache, verifier: CardVerifier) -> None:
        super().__init__(sender, cache, timeout=None, verifier=verifier)
        self._card = card
        self._static_verifier = verifier

    async def find(self, target: str) -> ResolvedCard:
        """The card. Raises BadCard when it is not trusted."""
        return ResolvedCard(await self._static_verifier.read(self._card, None), b"", target)


class _CardNotFound(BadCard):
    """There is something else at this address, or nothing."""


def _fetch_error(status: int, headers: Mapping[str, str], url: str) -> DragomanError:
    if status in (401, 403):
        return auth_error(status, headers, url)
    if status in _UNAVAILABLE:
        return CannotConnect(f"{redact_url(url)} is not available: HTTP {status}", reason="UNAVAILABLE", status=status)
    if status == 429:
        return Overloaded(f"{redact_url(url)} takes no more requests now: HTTP 429")
    return _CardNotFound(f"HTTP {status} at {redact_url(url)}")


class CardRecorder:
    """An interceptor that keeps the cards that pass, by their address, also those that cannot be read."""

    def __init__(self) -> None:
        self.bodies: dict[str, bytes] = {}

    async def __call__(self, request: HttpRequest, call_next: CallNext) -> HttpResponse:
        """Let an exchange pass."""
        response = await call_next(request)
        if request.operation != "GetAgentCard":
            return response
        return TappedResponse(response, partial(self._record, request.url))

    def _record(self, url: str, body: bytes) -> bytes:
        self.bodies[url] = body
        return body

    async def card(self, client: Client) -> tuple[str, bytes]:
        """Where the client's agent has its card, and its text; of several answers that are no card, the first.

        Raises:
            DragomanError: there is none at all.
        """
        try:
            await client.card()
        except BadCard:
            if not self.bodies:
                raise
            return next(iter(self.bodies.items()))
        return list(self.bodies.items())[-1]


class TappedResponse:
    """A response whose body passes through `tap` when it is read; see `HttpResponse`."""

    def __init__(self, response: HttpResponse, tap: Callable[[bytes], bytes]) -> None:
        self._response = response
        self._tap = tap
        self.status = response.status
        self.headers = response.headers
        self.chunks = response.chunks
        self.close = response.close

    async def read(self, limit: int = 0) -> bytes:
        """See `HttpResponse.read`."""
        return self._tap(await self._response.read(limit))


TRANSPORTS = {"jsonrpc": JSONRPC, "rest": REST, "grpc": GRPC}
_BINDINGS: dict[str, type[JsonRpcBinding | RestBinding]] = {JSONRPC: JsonRpcBinding, REST: RestBinding}


class Interface:
    """A binding with the tenant its card names."""

    __slots__ = ("binding", "proven", "tenant")

    def __init__(self, binding: Binding, tenant: str | None) -> None:
        self.binding = binding
        self.tenant = tenant
        # True once it has answered in A2A: then nothing else is tried any more.
        self.proven = False

    def __repr__(self) -> str:
        return f"{self.binding.name} {self.binding.dialect.version} at {self.binding.url}"


def check_options(protocol: str | None, transport: str | None) -> None:
    """Look whether these can be asked for at all. Raises ConfigError."""
    if protocol is not None and protocol not in VERSIONS:
        raise ConfigError(f"protocol {protocol!r} is not spoken here; these are: {', '.join(VERSIONS)}")
    if transport is not None and transport not in TRANSPORTS:
        raise ConfigError(f"there is no transport {transport!r}; there are: {', '.join(TRANSPORTS)}")
    if transport == "grpc":
        raise ConfigError("gRPC is not there yet: use transport='jsonrpc' or 'rest'")


def interfaces_of(card: AgentCard, protocol: str | None = None, transport: str | None = None) -> list[Interface]:
    """The interfaces to try, the card's favourite first; `protocol` and `transport` narrow the choice.

    A version the card does not offer is tried at the addresses it does: who asks for it may know better.

    Raises:
        ConfigError: nothing the card offers fits.
        BadCard: the card offers nothing that is spoken here.
    """
    supported = _supported(card)
    if not supported:
        offered = ", ".join(sorted({each.protocol_binding or "nothing it names" for each in card.supported_interfaces}))
        raise BadCard(f"the agent {card.name!r} speaks only {offered}, and that is not spoken here")
    if transport is not None:
        binding = TRANSPORTS[transport]
        supported = [each for each in supported if each.protocol_binding.upper() == binding]
        if not supported:
            raise ConfigError(f"the agent {card.name!r} offers no {binding}: leave transport out")
    if protocol is not None:
        matching = [each for each in supported if nearest_version(each.protocol_version) == protocol]
        candidates = [_build_interface(each, protocol) for each in matching or supported]
    else:
        candidates = [_build_interface(each, nearest_version(each.protocol_version)) for each in supported]
        # A card of 0.1 or 0.2 does not say which: the other is worth a try when the first is not understood.
        candidates += [
            _build_interface(each, other) for each in supported if (other := _alternative_version(each)) is not None
        ]
    usable = [each for each in candidates if each is not None]
    if not usable:
        raise ConfigError(
            f"A2A {protocol or supported[0].protocol_version} has no such transport: leave one of them out"
        )
    return usable


def main_url(card: AgentCard) -> str | None:
    """Where a card's favourite among what is spoken here is; None when there is none."""
    return next((each.url for each in _supported(card)), None)


def _supported(card: AgentCard) -> list[AgentInterface]:
    return [each for each in card.supported_interfaces if each.url and each.protocol_binding.upper() in _BINDINGS]


def _build_interface(offered: AgentInterface, version: str) -> Interface | None:
    name = offered.protocol_binding.upper()
    dialect = dialect_of(version, name)
    return None if dialect is None else Interface(_BINDINGS[name](offered.url, dialect), offered.tenant)


def _alternative_version(offered: AgentInterface) -> str | None:
    row = ROWS.get((nearest_version(offered.protocol_version), offered.protocol_binding.upper()))
    return None if row is None else row.alternative
