"""Verification of signed cards: which keys are trusted, and where they are fetched from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast
from urllib.parse import urlsplit

import msgspec

from dragoman.client.connection import with_response
from dragoman.client.discovery import TTL, parse_max_age
from dragoman.client.remote import RemoteConnection
from dragoman.dialects.cards.card import read_card
from dragoman.keys.card_signature import headers_of, verify_card
from dragoman.keys.errors import BadSignature
from dragoman.model.card import AgentCard
from dragoman.model.error import BadCard, BadResponse, CannotConnect, ConfigError, Overloaded, as_received
from dragoman.model.json import decode_any, encode
from dragoman.model.operation import Operation
from dragoman.net.exchange import HttpRequest, origin_of, redact_url

if TYPE_CHECKING:
    from dragoman.client.connection import Sender
    from dragoman.client.streams.backoff import Backoff
    from dragoman.clock import Clock
    from dragoman.dialects.dialect import Result
    from dragoman.keys.card_signature import VerifiedSignature
    from dragoman.keys.jws import Header
    from dragoman.model.operation import Request

Json = dict[str, Any]
# The `trust` option as users write it, and checked: True for the card's own origin, the URL of a key set, or keys.
TrustOption = bool | str | Path | Mapping[str, Any] | None
Keys = Literal[True] | str | Json

JWKS = "/.well-known/jwks.json"
MAX_BYTES = 1024 * 1024
# Each signature may name a key URL of its own, all of the same origin.
_MAX_KEY_URLS = 3
_MAX_CACHED = 16
_UNAVAILABLE = (502, 503, 504)
_UNKNOWN_KEY = "UNKNOWN_KEY"


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
        if len(self._cache) >= _MAX_CACHED:
            self._cache.clear()
        try:
            response = await self._sender.send(request, anonymous=True)
            status, headers = response.status, response.headers
            if status != 200:
                await response.close()
                raise with_response(_fetch_error(status, url), status, headers, self._clock)
            body = await response.read(MAX_BYTES)
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


def _fetch_error(status: int, url: str) -> CannotConnect | Overloaded | BadSignature:
    if status in _UNAVAILABLE:
        return CannotConnect(f"{redact_url(url)} is not available: HTTP {status}", reason="UNAVAILABLE", status=status)
    if status == 429:
        return as_received(Overloaded(f"{redact_url(url)} takes no more requests now: HTTP 429"))
    return BadSignature(f"its keys cannot be fetched: HTTP {status} at {redact_url(url)}", reason=_UNKNOWN_KEY)


class VerifiedConnection(RemoteConnection):
    """A connection that verifies the extended card like the public one."""

    async def perform(self, operation: Operation, request: Request, backoff: Backoff | None = None) -> Result:
        """Perform an operation; a card in its response is verified. Raises BadCard when it is not trusted."""
        result = await super().perform(operation, request, backoff)
        verifier = self._discovery.verifier
        if verifier is None or not isinstance(result, AgentCard):
            return result
        return await verifier.read(decode_any(encode(result)), str(self._target))
