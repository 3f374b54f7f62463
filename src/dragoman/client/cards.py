"""Reads the card of an agent: finds it over HTTP or gRPC, verifies its signature, and caches it."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec.structs import replace

from dragoman.client.connection import with_response
from dragoman.dialects.cards.card import parse_card, read_card
from dragoman.dialects.negotiate import dialect_of
from dragoman.dialects.table import GRPC, GRPC_ROWS, Row, row_of
from dragoman.dialects.v1.dialect import V1_0
from dragoman.keys.errors import BadSignature
from dragoman.model.card import AgentCapabilities, AgentCard, AgentInterface
from dragoman.model.error import (
    BadCard,
    BadResponse,
    CannotConnect,
    ConfigError,
    DragomanError,
    MethodNotFound,
    Overloaded,
    ServerError,
    as_received,
)
from dragoman.model.json import decode_any, encode
from dragoman.model.operation import GetExtendedAgentCardRequest, Operation
from dragoman.net.exchange import HttpRequest, origin_of, redact_url
from dragoman.net.grpc.address import grpc_url
from dragoman.net.grpc.library import has_grpc, no_grpc_error
from dragoman.telemetry.printable import one_line
from dragoman.transports.binding import auth_error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dragoman.client.connection import Sender
    from dragoman.clock import Clock
    from dragoman.keys.card_signature import VerifiedSignature
    from dragoman.keys.jws import Header
    from dragoman.net.exchange import HttpResponse

Json = dict[str, Any]
# The `trust` option as users write it, and checked: True for the card's own origin, the URL of a key set, or keys.
TrustOption = bool | str | Path | Mapping[str, Any] | None
Keys = Literal[True] | str | Json

WELL_KNOWN = ("/.well-known/agent-card.json", "/.well-known/agent.json")
JWKS = "/.well-known/jwks.json"
# How long a card or a key set is kept, in seconds.
TTL = 300
# An expired card is kept this long, to be revalidated with its ETag.
_REVALIDATE_SECONDS = 3600
_MAX_CARD_BYTES = 4 * 1024 * 1024
_MAX_HINT_BYTES = 4096
_MAX_ENTRIES = 256
MAX_KEY_BYTES = 1024 * 1024
# Each signature may name a key URL of its own, all of the same origin.
_MAX_KEY_URLS = 3
_MAX_KEY_SETS = 16
_MAX_AGE = re.compile(r"\bmax-age\s*=\s*\"?(\d{1,9})", re.IGNORECASE)
_BOM = b"\xef\xbb\xbf"
_UNAVAILABLE = (502, 503, 504)
_UNKNOWN_KEY = "UNKNOWN_KEY"


class ResolvedCard(NamedTuple):
    """A parsed card, its bytes and its URL."""

    card: AgentCard
    body: bytes
    url: str
    # Whether the server showed it only to the credentials of the caller.
    is_private: bool = False


class CardReader:
    """Reads the card of one agent, from its address or as it was given.

    A card over HTTP is public: credentials are sent only when the server requires them. A server of gRPC is asked in
    one version after the other; one that shows no card is called as if it had everything.
    With `verifier`, a card must carry a trusted signature, and only its signed members are used. The cache must then
    not be shared with clients that trust other keys. A `given` card is not fetched, only verified.
    """

    def __init__(
        self,
        sender: Sender,
        cache: CardCache,
        *,
        timeout: float | None,
        verifier: CardVerifier | None = None,
        given: Json | None = None,
        grpc_rows: Sequence[Row] = (),
    ) -> None:
        self._sender = sender
        self._cache = cache
        self._timeout = timeout
        self._verifier = verifier
        self._given = given
        self._grpc_rows = grpc_rows
        # Whether cards that are not public stay out of the cache, which callers with other credentials use too.
        self._public_only = False

    def with_sender(self, sender: Sender) -> CardReader:
        """Return a reader for other credentials: of the cached cards, it uses those that are public."""
        other = copy(self)
        other._sender, other._public_only = sender, True
        return other

    async def find(self, target: str) -> ResolvedCard:
        """Return the card of an agent, by its base URL, its card's URL or its gRPC address.

        Raises:
            CannotConnect: the server cannot be reached.
            BadCard: there is no card, it cannot be parsed, or it is not trusted.
            AuthError: the card is not public and the credentials are missing or wrong.
            BadResponse: the server redirects to another origin.
            Overloaded: the server limits the rate of requests.
        """
        if self._given is not None and self._verifier is not None:
            return ResolvedCard(await self._verifier.read(self._given, None), b"", target)
        cached = self._cache.fresh(target)
        if cached is not None and not (self._public_only and cached.is_private):
            return cached
        if self._grpc_rows:
            return await self._find_over_grpc(target)
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

    async def trusted(self, card: AgentCard, source: str) -> AgentCard:
        """Return another card of the agent, such as the extended one, with what of it is trusted. Raises BadCard."""
        return card if self._verifier is None else await self._verifier.read(decode_any(encode(card)), source)

    # -- over HTTP ---------------------------------------------------------------------------------------------------

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
                resolved = stale.resolved if self._verifier is None else await self._parse(stale.resolved.body, url)
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
            if self._verifier is not None:
                card = await self._verifier.read(decode_any(body), url)
        except BadCard as error:
            raise BadCard(f"{error} (at {redact_url(url)})", reason=error.reason) from None
        return ResolvedCard(card, body, url)

    # -- over gRPC ---------------------------------------------------------------------------------------------------

    async def _find_over_grpc(self, target: str) -> ResolvedCard:
        """Return the card of a server of gRPC. Only its interfaces over gRPC count, and they are at this address.

        The address is `grpc://host:port` or `grpcs://host:port`, with the tenant as its path where the server has
        several agents. Raises CannotConnect or Overloaded.
        """
        url, tenant = grpc_url(target, secure=False), unquote(urlsplit(target).path.strip("/")) or None
        card, spoken = await self._ask_over_grpc(url, tenant)
        if card is None:
            # A server may have all but this method.
            return _resolved(_assumed_card(url, spoken or self._grpc_rows, tenant), target)
        resolved = _resolved(_with_address(card, url, spoken, tenant), target)
        resolved = resolved._replace(is_private=self._sender.credential is not None)
        if not (resolved.is_private and self._public_only):
            self._cache.store(target, resolved, "", "")
        return resolved

    async def _ask_over_grpc(self, url: str, tenant: str | None) -> tuple[AgentCard | None, list[Row]]:
        """Ask for the card in one package after the other. Returns it, if there is one, and what the server speaks."""
        spoken: list[Row] = []
        for row in self._grpc_rows:
            try:
                card = await self._ask_in_version(url, row, tenant)
            except MethodNotFound:
                continue
            except (CannotConnect, Overloaded, ServerError):
                raise
            except DragomanError:  # it speaks this version, and has no card for us: perhaps in the other
                spoken.append(row)
            else:
                return card, [*spoken, row]
        return None, spoken

    async def _ask_in_version(self, url: str, row: Row, tenant: str | None) -> AgentCard:
        from dragoman.transports.grpc.call import GrpcBinding

        dialect = dialect_of(row.version, GRPC)
        assert dialect is not None
        binding, operation = GrpcBinding(url, dialect), Operation.EXTENDED_CARD
        request = binding.build_request(operation, GetExtendedAgentCardRequest(tenant))
        request.connect_timeout = request.read_timeout = self._timeout
        response = await self._sender.send(request)
        body = await response.read(_MAX_CARD_BYTES)
        card = binding.read_result(operation, response.status, response.headers, body)
        assert isinstance(card, AgentCard)
        return card


def is_card_url(url: str) -> bool:
    """True when a URL is that of a card and not an agent's base URL."""
    path = urlsplit(url).path
    return "/.well-known/" in path or path.endswith(".json")


def grpc_rows(protocol: str | None) -> tuple[Row, ...]:
    """Return the versions in which a server is asked over gRPC: `protocol`, or all.

    Raises ConfigError when gRPC is not installed, or that version has none.
    """
    if not has_grpc():
        raise no_grpc_error()
    if protocol is not None and dialect_of(protocol, GRPC) is None:
        raise ConfigError(f"A2A {protocol} has no gRPC: leave protocol out, or call the agent's http:// address")
    return tuple(GRPC_ROWS) if protocol is None else (row_of(protocol, GRPC),)


def _with_address(card: AgentCard, url: str, spoken: Sequence[Row], tenant: str | None) -> AgentCard:
    """Return a card whose interfaces are at this address: in what the server speaks, and what it names for gRPC."""
    named = [each.protocol_version for each in card.supported_interfaces if each.protocol_binding.upper() == GRPC]
    versions = dict.fromkeys([*(row.version for row in spoken), *named])
    interfaces = tuple(AgentInterface(url, GRPC, version, tenant) for version in versions)
    return replace(card, supported_interfaces=interfaces)


def _assumed_card(url: str, rows: Sequence[Row], tenant: str | None) -> AgentCard:
    return AgentCard(
        name=url.partition("://")[2],
        description="",
        version="",
        capabilities=AgentCapabilities(streaming=True, push_notifications=True),
        supported_interfaces=tuple(AgentInterface(url, GRPC, row.version, tenant) for row in rows),
        default_input_modes=(),
        default_output_modes=(),
        skills=(),
    )


def _resolved(card: AgentCard, target: str) -> ResolvedCard:
    return ResolvedCard(card, V1_0.write_result(Operation.EXTENDED_CARD, card), target)


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


# -- the cache -------------------------------------------------------------------------------------------------------


class _CardEntry(NamedTuple):
    resolved: ResolvedCard
    etag: str
    expires_at: float


class CardCache:
    """A thread-safe cache of cards by target URL, kept as long as their servers allow, five minutes at most.

    With `shared`, this is the cache of one client. A card whose server says how long it may be kept goes to the shared
    one. A server that says nothing about that may change its card at any time: its card is kept for this client alone.
    """

    def __init__(self, clock: Clock, shared: CardCache | None = None) -> None:
        self.clock = clock
        self._shared = shared
        self._entries: dict[str, _CardEntry] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def fresh(self, key: str) -> ResolvedCard | None:
        """Return the card unless it has expired, a shared one first."""
        if self._shared is not None and (shared := self._shared.fresh(key)) is not None:
            return shared
        entry = self._entries.get(key)
        # The lower bound guards against a clock that was set back.
        return (
            entry.resolved if entry is not None and entry.expires_at - TTL <= self._now() < entry.expires_at else None
        )

    def stale(self, url: str) -> _CardEntry | None:
        """Return the entry for exactly this card URL if it has an ETag to revalidate it with."""
        if self._shared is not None:
            return self._shared.stale(url)
        with self._lock:
            return next((entry for entry in self._entries.values() if entry.resolved.url == url and entry.etag), None)

    def store(self, key: str, resolved: ResolvedCard, etag: str, cache_control: str) -> None:
        """Store a card as long as its server allows, and drop entries that can no longer be used."""
        if self._shared is not None:
            if cache_control:
                self._shared.store(key, resolved, etag, cache_control)
                return
            if etag:  # other clients ask whether it is still the same
                self._shared.store(key, resolved, etag, "no-cache")
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


def parse_max_age(cache_control: str) -> int:
    """Return for how many seconds a response stays fresh, at most `TTL`; 0 when it must be revalidated."""
    control = cache_control.lower()
    if "no-cache" in control or "no-store" in control:
        return 0
    age = _MAX_AGE.search(control)
    return min(TTL, int(age[1])) if age else TTL


# -- trust -----------------------------------------------------------------------------------------------------------


def load_keys(trust: TrustOption) -> Keys | None:
    """Check the `trust` option; a file is read now. None means that signatures are not verified.

    Raises:
        ConfigError: the option is not a URL, a file or a key set.
    """
    if trust is None or isinstance(trust, bool):
        return trust or None
    if isinstance(trust, Mapping):
        return _check_key_set(dict(trust), "the dict")
    text = str(trust)
    if isinstance(trust, str) and "://" in text:
        if not _is_address(text):
            raise ConfigError(f"trust: {redact_url(text)} is not the address of a key set")
        return text
    try:
        return _check_key_set(decode_any(Path(trust).read_bytes()), text)
    except (OSError, msgspec.DecodeError, ValueError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not JSON"
        raise ConfigError(f"trust: the keys in {text} cannot be read: {why}") from None


def _check_key_set(key_set: Any, where: str) -> Json:
    if not isinstance(key_set, dict) or not isinstance(cast("Json", key_set).get("keys"), list):
        raise ConfigError(f'trust: {where} is no key set, which looks like {{"keys": [{{"kty": …, "kid": …}}]}}')
    return cast("Json", key_set)


def jwks_url_of(url: str) -> str:
    """Return where the origin of a URL publishes its keys."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{JWKS}"


def key_url_of(header: Header, url: str) -> str | None:
    """Return the URL of a signature's key, for a card from `url`; None when it is on another origin."""
    if header.jku is None:
        return jwks_url_of(url)
    return header.jku if _is_address(header.jku) and origin_of(header.jku) == origin_of(url) else None


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    plain = url.isprintable() and " " not in url and "\\" not in url and "@" not in parts.netloc
    return plain and parts.scheme in ("http", "https") and bool(parts.hostname)


class _CachedKeys(NamedTuple):
    keys: Json
    expires_at: float


class CardVerifier:
    """Verifies the signatures of cards. `keys` is True to trust the keys that the card's own origin publishes.

    Keys are fetched without credentials, and cached as long as cards are.
    """

    def __init__(self, keys: Keys, sender: Sender, clock: Clock, *, timeout: float | None) -> None:
        self._keys: Keys = keys
        self._sender = sender
        self._clock = clock
        self._timeout = timeout
        self._cache: dict[str, _CachedKeys] = {}

    async def read(self, card: Json, url: str | None) -> AgentCard:
        """Parse a card from `url`, using only its signed members.

        Raises:
            BadCard: it cannot be parsed, or has no valid signature of a trusted key; `reason` says which.
            CannotConnect: the server of the keys cannot be reached.
            Overloaded: that server limits the rate of requests.
        """
        try:
            verified = await self.verify(card, url)
        except BadSignature as error:
            raise BadCard(f"the agent card is not trusted: {error}", reason=error.reason) from None
        return read_card(verified.card)

    async def verify(self, card: Json, url: str | None) -> VerifiedSignature:
        """Return the first valid signature of a card with what it covers.

        Raises:
            BadSignature: no signature is valid, or there are no keys; `reason` says why.
            CannotConnect: the server of the keys cannot be reached.
            Overloaded: that server limits the rate of requests.
        """
        from dragoman.keys.card_signature import headers_of, verify_card

        try:
            if not headers_of(card):  # raises NOT_SIGNED without fetching keys
                return verify_card(card, {"keys": []})
            if self._keys is True:
                assert url is not None
                return await self._verify_by_origin(card, url)
            if isinstance(self._keys, str):
                return await self._verify_with_keys_at(self._keys, card)
            return verify_card(card, self._keys)
        except BadSignature as error:
            if error.reason == "NOT_SIGNED" or card.get("supportedInterfaces"):
                raise
            old = "it is a card of A2A 0.3 alone, and signatures are verified in the form of 1.0"
            raise BadSignature(f"{error}; {old}", reason=error.reason) from None

    async def _verify_by_origin(self, card: Json, url: str) -> VerifiedSignature:
        from dragoman.keys.card_signature import headers_of

        headers = headers_of(card)
        key_urls = dict.fromkeys(key_url for header in headers if (key_url := key_url_of(header, url)) is not None)
        problem: BadSignature | None = None
        for key_url in list(key_urls)[:_MAX_KEY_URLS]:
            try:
                # Keys from one URL verify only the signatures that name it.
                return await self._verify_with_keys_at(
                    key_url, card, lambda header, at=key_url: key_url_of(header, url) == at
                )
            except BadSignature as error:
                if problem is None or problem.reason == _UNKNOWN_KEY:
                    problem = error
        if problem is not None:
            raise problem
        named_url = redact_url(headers[0].jku or "")[:200]
        raise BadSignature(
            f"its keys are at {named_url!r}, and only those of {origin_of(url)} count", reason=_UNKNOWN_KEY
        )

    async def _verify_with_keys_at(
        self, key_url: str, card: Json, accept: Callable[[Header], bool] | None = None
    ) -> VerifiedSignature:
        from dragoman.keys.card_signature import verify_card

        cached = self._cache.get(key_url)
        # The lower bound guards against a clock that was set back.
        if cached is not None and cached.expires_at - TTL <= self._now() < cached.expires_at:
            try:
                return verify_card(card, cached.keys, accept=accept)
            except BadSignature:
                pass  # the keys may have been rotated: fetch them again
        return verify_card(card, await self._fetch(key_url), accept=accept)

    async def _fetch(self, url: str) -> Json:
        request = HttpRequest(
            "GET",
            url,
            {"Accept": "application/json"},
            operation="GetKeySet",
            connect_timeout=self._timeout,
            read_timeout=self._timeout,
        )
        self._cache.pop(url, None)
        if len(self._cache) >= _MAX_KEY_SETS:
            self._cache.clear()
        try:
            response = await self._sender.send(request, anonymous=True)
            status, headers = response.status, response.headers
            if status != 200:
                await response.close()
                raise with_response(_key_error(status, url), status, headers, self._clock)
            body = await response.read(MAX_KEY_BYTES)
        except BadResponse as error:
            raise BadSignature(f"its keys cannot be fetched: {error}", reason=_UNKNOWN_KEY) from None
        try:
            key_set = decode_any(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            key_set = None
        if not isinstance(key_set, dict) or not isinstance(cast("Json", key_set).get("keys"), list):
            raise BadSignature(f"its keys cannot be fetched: {redact_url(url)} is no key set", reason=_UNKNOWN_KEY)
        self._cache[url] = _CachedKeys(
            cast("Json", key_set), self._now() + parse_max_age(headers.get("Cache-Control", ""))
        )
        return cast("Json", key_set)

    def _now(self) -> float:
        return self._clock.now() / 1000


def _key_error(status: int, url: str) -> CannotConnect | Overloaded | BadSignature:
    if status in _UNAVAILABLE:
        return CannotConnect(f"{redact_url(url)} is not available: HTTP {status}", reason="UNAVAILABLE", status=status)
    if status == 429:
        return as_received(Overloaded(f"{redact_url(url)} takes no more requests now: HTTP 429"))
    return BadSignature(f"its keys cannot be fetched: HTTP {status} at {redact_url(url)}", reason=_UNKNOWN_KEY)
