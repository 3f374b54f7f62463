"""Finding an agent's card, and remembering it for a while."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from dragoman.client.backoff import asked_to_wait
from dragoman.dialects.cards import parse_card
from dragoman.model.error import BadCard, BadResponse, CannotConnect, DragomanError, Overloaded
from dragoman.model.json import decode_any
from dragoman.net.exchange import HttpRequest, shown
from dragoman.transports.calling import refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dragoman.client.sender import Sender
    from dragoman.client.trust import Trust
    from dragoman.engine.clock import Clock
    from dragoman.model.card import AgentCard

WELL_KNOWN = ("/.well-known/agent-card.json", "/.well-known/agent.json")
TTL = 300
# A card that has run out can still be asked after with its tag, for so long.
_ASKED_AFTER = 3600
_MAX_CARD = 4 * 1024 * 1024
_MOST = 256
_MAX_AGE = re.compile(r"\bmax-age\s*=\s*\"?(\d{1,9})", re.IGNORECASE)
_BOM = b"\xef\xbb\xbf"
_UNAVAILABLE = (502, 503, 504)


class Found(NamedTuple):
    """A card, its bytes and where it was found."""

    card: AgentCard
    body: bytes
    url: str


class _Entry(NamedTuple):
    found: Found
    etag: str
    until: float


class CardCache:
    """Cards by address, for as long as their servers say and five minutes at most. Threads may share it."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._entries: dict[str, _Entry] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def fresh(self, key: str) -> Found | None:
        """The card, if it need not be asked for again."""
        entry = self._entries.get(key)
        # A clock that was set back would make it young for ever.
        return entry.found if entry is not None and entry.until - TTL <= self._now() < entry.until else None

    def stale(self, url: str) -> _Entry | None:
        """The card found at exactly this address, with a tag to ask after it."""
        with self._lock:
            return next((entry for entry in self._entries.values() if entry.found.url == url and entry.etag), None)

    def keep(self, key: str, found: Found, etag: str, cache_control: str) -> None:
        """Remember a card as long as its server allows; forget those nobody can use any more."""
        lifetime = lifetime_of(cache_control)
        with self._lock:
            self._prune()
            self._entries.pop(key, None)
            if "no-store" in cache_control.lower() or (not lifetime and not etag):
                return
            while len(self._entries) >= _MOST:
                self._entries.pop(next(iter(self._entries)))
            self._entries[key] = _Entry(found, etag, self._now() + lifetime)

    def prune(self) -> None:
        """Forget cards that have run out and have no tag, or ran out long ago."""
        with self._lock:
            self._prune()

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._entries.clear()

    def _prune(self) -> None:
        now = self._now()
        for key, entry in list(self._entries.items()):
            if now >= (entry.until + _ASKED_AFTER if entry.etag else entry.until):
                del self._entries[key]

    def _now(self) -> float:
        return self.clock.now() / 1000


def lifetime_of(cache_control: str) -> int:
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

    def __init__(self, sender: Sender, cache: CardCache, *, timeout: float | None, trust: Trust | None = None) -> None:
        self._sender = sender
        self._cache = cache
        self._timeout = timeout
        self.trust = trust

    async def find(self, target: str) -> Found:
        """The card of an agent by its base URL or its card's URL.

        Raises:
            CannotConnect: nobody answers.
            BadCard: there is no card, it cannot be read, or it is not trusted.
            AuthError: the card is not public and the credentials are missing or wrong.
        """
        known = self._cache.fresh(target)
        if known is not None:
            return known
        if is_card_url(target):
            try:
                return await self._fetch(target, target)
            except _NoCard as error:
                raise BadCard(f"there is no agent card at {shown(target)}: {error}") from None
        base = target.partition("?")[0].partition("#")[0].rstrip("/")
        tried: list[str] = []
        for path in WELL_KNOWN:
            found = await self._try(base + path, target, tried)
            if found is not None:
                return found
        return await self._at_root(base, target, tried)

    async def _at_root(self, base: str, target: str, tried: list[str]) -> Found:
        """What was given may be the address requests are sent to: then the card at the root says so."""
        parts = urlsplit(base)
        if parts.path:
            for path in WELL_KNOWN:
                found = await self._try(f"{parts.scheme}://{parts.netloc}{path}", target, tried)
                if found is not None and any(each.url.rstrip("/") == base for each in found.card.supported_interfaces):
                    return found
        raise BadCard(f"there is no agent card at {shown(base)}: {'; '.join(tried)}")

    async def _try(self, url: str, key: str, tried: list[str]) -> Found | None:
        try:
            return await self._fetch(url, key)
        except _NoCard as error:
            tried.append(str(error))
            return None

    async def _fetch(self, url: str, key: str) -> Found:
        stale = self._cache.stale(url)
        headers = {"Accept": "application/json"}
        if stale is not None:
            headers["If-None-Match"] = stale.etag
        request = HttpRequest(
            "GET", url, headers, operation="GetAgentCard", connect=self._timeout, silence=self._timeout
        )
        # A card says where credentials go, so they cannot be put anywhere before it has been read.
        response = await self._sender.send(request, anonymous=True)
        if response.status in (401, 403) and self._sender.credential is not None:
            await response.close()
            response = await self._sender.send(request)
        status, said = response.status, response.headers
        etag, control = said.get("ETag", ""), said.get("Cache-Control", "")
        if status != 200:
            await response.close()
            if status == 304 and stale is not None:
                # It is the same card, but its key may have been withdrawn.
                found = stale.found if self.trust is None else await self._read(stale.found.body, url)
                self._cache.keep(key, found, etag or stale.etag, control)
                return found
            raise asked_to_wait(_not_found(status, said, url), status, said, self._cache.clock)
        try:
            body = await response.read(_MAX_CARD)
        except BadResponse as error:
            raise BadCard(f"{shown(url)} is no agent card: {error}") from None
        body = body.removeprefix(_BOM)
        if body.lstrip()[:1] != b"{":
            raise _NoCard(f"{said.get('Content-Type', 'nothing').partition(';')[0]} instead of JSON at {shown(url)}")
        found = await self._read(body, url)
        self._cache.keep(key, found, etag, control)
        return found

    async def _read(self, body: bytes, url: str) -> Found:
        try:
            card = parse_card(body)
            if self.trust is not None:
                card = await self.trust.read(decode_any(body), url)
        except BadCard as error:
            raise BadCard(f"{error} (at {shown(url)})", reason=error.reason) from None
        return Found(card, body, url)


class GivenCard(Discovery):
    """A card that is at hand: it is not looked for, only checked."""

    def __init__(self, card: dict[str, Any], sender: Sender, cache: CardCache, trust: Trust) -> None:
        super().__init__(sender, cache, timeout=None, trust=trust)
        self._given = card
        self._trust = trust

    async def find(self, target: str) -> Found:
        """The card. Raises BadCard when it is not trusted."""
        return Found(await self._trust.read(self._given, None), b"", target)


class _NoCard(BadCard):
    """There is something else at this address, or nothing."""


def _not_found(status: int, headers: Mapping[str, str], url: str) -> DragomanError:
    if status in (401, 403):
        return refused(status, headers, url)
    if status in _UNAVAILABLE:
        return CannotConnect(f"{shown(url)} is not available: HTTP {status}", reason="UNAVAILABLE", status=status)
    if status == 429:
        return Overloaded(f"{shown(url)} takes no more requests now: HTTP 429")
    return _NoCard(f"HTTP {status} at {shown(url)}")
