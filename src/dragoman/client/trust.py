"""Whose card it is: which signatures count, and where their keys are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast
from urllib.parse import urlsplit

import msgspec

from dragoman.client.connection import asked_to_wait
from dragoman.client.discovery import TTL, lifetime_of
from dragoman.client.remote import RemoteConnection
from dragoman.dialects.cards.card import read_card
from dragoman.keys.card_signature import headers_of, verify_card
from dragoman.keys.errors import BadSignature
from dragoman.model.card import AgentCard
from dragoman.model.error import BadCard, BadResponse, CannotConnect, ConfigError, Overloaded
from dragoman.model.json import decode_any, encode
from dragoman.model.operation import Operation
from dragoman.net.exchange import HttpRequest, origin_of, redact_url

if TYPE_CHECKING:
    from dragoman.client.connection import Sender
    from dragoman.clock import Clock
    from dragoman.dialects.dialect import Result
    from dragoman.keys.card_signature import Verified
    from dragoman.keys.jws import Header
    from dragoman.model.operation import Request

Json = dict[str, Any]
# What a user may give, and what it means once it has been checked: the card's own origin, an address of keys, keys.
Trusted = bool | str | Path | Mapping[str, Any] | None
Keys = Literal[True] | str | Json

JWKS = "/.well-known/jwks.json"
MAX_BYTES = 1024 * 1024
# Each signature may name a place of its own, all of the same origin.
_MOST_PLACES = 3
_MOST_KNOWN = 16
_UNAVAILABLE = (502, 503, 504)
_UNKNOWN = "UNKNOWN_KEY"


def keys_of(trust: Trusted) -> Keys | None:
    """What `trust` means; a file is read now. None: signatures are not looked at.

    Raises:
        ConfigError: it is no address, no file and no key set.
    """
    if trust is None or isinstance(trust, bool):
        return trust or None
    if isinstance(trust, Mapping):
        return _key_set(dict(trust), "the dict")
    text = str(trust)
    if isinstance(trust, str) and "://" in text:
        if not _is_address(text):
            raise ConfigError(f"trust: {redact_url(text)} is not the address of a key set")
        return text
    try:
        return _key_set(decode_any(Path(trust).read_bytes()), text)
    except (OSError, msgspec.DecodeError, ValueError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not JSON"
        raise ConfigError(f"trust: the keys in {text} cannot be read: {why}") from None


def _key_set(found: Any, where: str) -> Json:
    if not isinstance(found, dict) or not isinstance(cast("Json", found).get("keys"), list):
        raise ConfigError(f'trust: {where} is no key set, which looks like {{"keys": [{{"kty": …, "kid": …}}]}}')
    return cast("Json", found)


def well_known(url: str) -> str:
    """Where the keys of a URL's origin are published."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{JWKS}"


def place_of(header: Header, url: str) -> str | None:
    """Where a signature's key is, for a card that was found at `url`; None when that is another origin."""
    if header.jku is None:
        return well_known(url)
    return header.jku if _is_address(header.jku) and origin_of(header.jku) == origin_of(url) else None


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    plain = url.isprintable() and " " not in url and "\\" not in url and "@" not in parts.netloc
    return plain and parts.scheme in ("http", "https") and bool(parts.hostname)


class _Known(NamedTuple):
    keys: Json
    until: float


class Trust:
    """Checks cards. `keys` is True for those published where a card comes from; else only the given ones count.

    Keys are fetched without credentials, and remembered as long as cards are.
    """

    def __init__(self, keys: Keys, sender: Sender, clock: Clock, *, timeout: float | None) -> None:
        self._keys: Keys = keys
        self._sender = sender
        self._clock = clock
        self._timeout = timeout
        self._known: dict[str, _Known] = {}

    async def read(self, card: Json, url: str | None) -> AgentCard:
        """A card that was found at `url`, from what is signed of it and nothing else.

        Raises:
            BadCard: it is not signed, not by a key that counts, or was changed; `reason` says which.
            CannotConnect: the keys cannot be asked for.
        """
        try:
            verified = await self.verified(card, url)
        except BadSignature as error:
            raise BadCard(f"the agent card is not trusted: {error}", reason=error.reason) from None
        return read_card(verified.card)

    async def verified(self, card: Json, url: str | None) -> Verified:
        """The signature that holds.

        Raises:
            BadSignature: there is none; `reason` says why.
            CannotConnect: the keys cannot be asked for.
        """
        try:
            if not headers_of(card):  # whatever the keys are
                return verify_card(card, {"keys": []})
            if self._keys is True:
                assert url is not None
                return await self._by_origin(card, url)
            if isinstance(self._keys, str):
                return await self._by_keys_at(self._keys, card)
            return verify_card(card, self._keys)
        except BadSignature as error:
            if error.reason == "NOT_SIGNED" or card.get("supportedInterfaces"):
                raise
            old = "it is a card of A2A 0.3 alone, and signatures are verified in the form of 1.0"
            raise BadSignature(f"{error}; {old}", reason=error.reason) from None

    async def _by_origin(self, card: Json, url: str) -> Verified:
        headers = headers_of(card)
        places = dict.fromkeys(place for header in headers if (place := place_of(header, url)) is not None)
        problem: BadSignature | None = None
        for place in list(places)[:_MOST_PLACES]:
            try:
                # Keys from one place speak for no other.
                return await self._by_keys_at(place, card, lambda header, at=place: place_of(header, url) == at)
            except BadSignature as error:
                if problem is None or problem.reason == _UNKNOWN:
                    problem = error
        if problem is not None:
            raise problem
        said = redact_url(headers[0].jku or "")[:200]
        raise BadSignature(f"its keys are at {said!r}, and only those of {origin_of(url)} count", reason=_UNKNOWN)

    async def _by_keys_at(self, place: str, card: Json, accept: Callable[[Header], bool] | None = None) -> Verified:
        known = self._known.get(place)
        # A clock that was set back would make them young for ever.
        if known is not None and known.until - TTL <= self._now() < known.until:
            try:
                return verify_card(card, known.keys, accept=accept)
            except BadSignature:
                pass  # there may be new ones
        return verify_card(card, await self._fetch(place), accept=accept)

    async def _fetch(self, url: str) -> Json:
        request = HttpRequest(
            "GET",
            url,
            {"Accept": "application/json"},
            operation="GetKeySet",
            connect_timeout=self._timeout,
            read_timeout=self._timeout,
        )
        self._known.pop(url, None)
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        try:
            response = await self._sender.send(request, anonymous=True)
            status, headers = response.status, response.headers
            if status != 200:
                await response.close()
                raise asked_to_wait(_not_there(status, url), status, headers, self._clock)
            body = await response.read(MAX_BYTES)
        except BadResponse as error:
            raise BadSignature(f"its keys cannot be had: {error}", reason=_UNKNOWN) from None
        try:
            found = decode_any(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            found = None
        if not isinstance(found, dict) or not isinstance(cast("Json", found).get("keys"), list):
            raise BadSignature(f"its keys cannot be had: {redact_url(url)} is no key set", reason=_UNKNOWN)
        self._known[url] = _Known(cast("Json", found), self._now() + lifetime_of(headers.get("Cache-Control", "")))
        return cast("Json", found)

    def _now(self) -> float:
        return self._clock.now() / 1000


def _not_there(status: int, url: str) -> CannotConnect | Overloaded | BadSignature:
    if status in _UNAVAILABLE:
        return CannotConnect(f"{redact_url(url)} is not available: HTTP {status}", reason="UNAVAILABLE", status=status)
    if status == 429:
        return Overloaded(f"{redact_url(url)} takes no more requests now: HTTP 429")
    return BadSignature(f"its keys cannot be had: HTTP {status} at {redact_url(url)}", reason=_UNKNOWN)


class TrustingConnection(RemoteConnection):
    """A connection whose extended card is checked like the other one."""

    async def perform(self, operation: Operation, request: Request) -> Result:
        """See `Connection.perform`. Raises BadCard when a card is not trusted."""
        result = await super().perform(operation, request)
        trust = self._discovery.trust
        if trust is None or not isinstance(result, AgentCard):
            return result
        return await trust.read(decode_any(encode(result)), str(self._target))
