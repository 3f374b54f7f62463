"""The agent cards of remote agents, each kept for five minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dragoman.compat.remote.errors import ExternalServiceError, ValidationError
from dragoman.compat.remote.exchange import exchange, good, json_object, status_line, under
from dragoman.engine.clock import SystemClock
from dragoman.model.error import BadResponse, CannotConnect, DragomanError
from dragoman.net.exchange import HttpRequest

if TYPE_CHECKING:
    from dragoman.engine.clock import Clock

CARD_PATH = "/.well-known/agent-card.json"
TTL_MS = 5 * 60 * 1000
FETCH_SECONDS = 10.0
# Cards have a few kilobytes; what is larger is none.
MAX_CARD = 4 * 1024 * 1024
_REQUIRED = ("name", "version")


class CardCache:
    """Cards by their URL."""

    def __init__(self) -> None:
        # Bytes, so that a caller who changes the map it was given changes no one else's.
        self._kept: dict[str, tuple[int, bytes]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def clear(self) -> None:
        """Forget every card."""
        self._kept.clear()

    async def fetch(self, base_url: str, clock: Clock) -> dict[str, Any]:
        """See `fetch_agent_card`."""
        url = _card_url(base_url)
        self._prune(clock.now())
        kept = self._kept.get(url)
        if kept is not None:
            return _card(url, kept[1])
        body = await _body(url, clock)
        card = _card(url, body)
        self._kept[url] = (clock.now(), body)
        return card

    def _prune(self, now: int) -> None:
        # A card from the future was kept before the clock on the wall was set back.
        stale = [url for url, (since, _) in self._kept.items() if not 0 <= now - since <= TTL_MS]
        for url in stale:
            del self._kept[url]


_CARDS = CardCache()


async def fetch_agent_card(base_url: str, *, clock: Clock | None = None) -> dict[str, Any]:
    """The card at `/.well-known/agent-card.json` as a map; for five minutes the one that was fetched before.

    Raises:
        ExternalServiceError: nobody answers within ten seconds, or with another status than success.
        ValidationError: what came is no card: not a JSON object, or without name or version.
    """
    return await _CARDS.fetch(base_url, clock or SystemClock())


async def discover_agent(base_url: str, *, clock: Clock | None = None) -> dict[str, Any] | None:
    """Like `fetch_agent_card`, but None when there is no card to be had."""
    try:
        return await fetch_agent_card(base_url, clock=clock)
    except DragomanError:
        return None


def clear_agent_card_cache() -> None:
    """Forget every card: the next fetch goes to the network."""
    _CARDS.clear()


def _card_url(base_url: str) -> str:
    try:
        return under(base_url, CARD_PATH)
    except CannotConnect as error:
        raise _not_fetched(base_url, error) from error


async def _body(url: str, clock: Clock) -> bytes:
    request = HttpRequest("GET", url, {"Accept": "application/json"}, operation="card")
    try:
        status, body = await exchange(request, clock=clock, seconds=FETCH_SECONDS, most=MAX_CARD)
    except CannotConnect as error:
        raise _not_fetched(url, error) from error
    except BadResponse as error:
        raise ValidationError(f"A2A: Agent Card from {url} is invalid: {error}") from error
    if not good(status):
        raise ExternalServiceError(
            f"A2A: Failed to fetch Agent Card from {url}: {status_line(status)}", status=status, arrived=True
        )
    return body


def _not_fetched(url: str, error: CannotConnect) -> ExternalServiceError:
    text = f"A2A: Failed to fetch Agent Card from {url}: {error}"
    return ExternalServiceError(text, reason=error.reason, arrived=error.arrived)


def _card(url: str, body: bytes) -> dict[str, Any]:
    card = json_object(body)
    if card is None:
        raise ValidationError(f"A2A: Agent Card from {url} is invalid: it is not a JSON object")
    missing = [field for field in _REQUIRED if not (isinstance(card.get(field), str) and card[field].strip())]
    if missing:
        required = ", ".join(_REQUIRED)
        raise ValidationError(
            f"A2A: Agent Card from {url} is invalid: missing {', '.join(missing)} (required: {required})"
        )
    return card
