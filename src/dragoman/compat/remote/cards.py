"""Fetches the cards of remote agents and caches them for five minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dragoman.clock import SystemClock
from dragoman.compat.remote.exchange import guard_of, is_success, join_url, json_object, status_line
from dragoman.compat.sessions.errors import ExternalServiceError, ValidationError
from dragoman.model.error import BadResponse, CannotConnect, DragomanError
from dragoman.net.aio import fetch
from dragoman.net.exchange import HttpRequest, redact_url
from dragoman.net.guard import AddressForbidden, AddressGuard

if TYPE_CHECKING:
    from dragoman.clock import Clock

CARD_PATH = "/.well-known/agent-card.json"
TTL_MS = 5 * 60 * 1000
FETCH_SECONDS = 10.0
# Cards have a few kilobytes; anything larger is rejected.
MAX_CARD = 4 * 1024 * 1024
_REQUIRED = ("name", "version")


class RemoteCardCache:
    """A cache of cards by URL and guard.

    A card that was fetched without a guard may come from the internal network: guarded calls never see it.
    """

    def __init__(self) -> None:
        # Bytes, so that callers cannot change each other's maps.
        self._entries: dict[tuple[str, AddressGuard | None], tuple[int, bytes]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def clear(self) -> None:
        """Forget every card."""
        self._entries.clear()

    async def fetch(self, base_url: str, clock: Clock, guard: AddressGuard | None = None) -> dict[str, Any]:
        """Return the card, cached or fetched. Raises what `fetch_agent_card` raises."""
        url = base_url
        try:
            if guard is not None:
                guard.check_url(base_url)
            url = join_url(base_url, CARD_PATH)
            self._prune(clock.now())
            entry = self._entries.get((url, guard))
            if entry is not None:
                return _parse_card(url, entry[1])
            request = HttpRequest("GET", url, {"Accept": "application/json"}, operation="card")
            status, body = await fetch(request, clock=clock, seconds=FETCH_SECONDS, limit=MAX_CARD, guard=guard)
        except AddressForbidden as error:
            raise ValidationError(f"Blocked URL: {error}") from error
        except CannotConnect as error:
            text = f"A2A: Failed to fetch Agent Card from {redact_url(url)}: {error}"
            raise ExternalServiceError(text, reason=error.reason, arrived=error.arrived) from error
        except BadResponse as error:
            raise ValidationError(f"A2A: Agent Card from {redact_url(url)} is invalid: {error}") from error
        if not is_success(status):
            text = f"A2A: Failed to fetch Agent Card from {redact_url(url)}: {status_line(status)}"
            raise ExternalServiceError(text, status=status, arrived=True)
        card = _parse_card(url, body)
        self._entries[url, guard] = (clock.now(), body)
        return card

    def _prune(self, now: int) -> None:
        # A negative age means that the clock was set back: nobody can say how old the entry is.
        stale = [key for key, (since, _) in self._entries.items() if not 0 <= now - since <= TTL_MS]
        for key in stale:
            del self._entries[key]


_CARDS = RemoteCardCache()


async def fetch_agent_card(
    base_url: str, *, clock: Clock | None = None, guard: AddressGuard | bool | None = None
) -> dict[str, Any]:
    """Fetch the card at `/.well-known/agent-card.json` as a map, cached for five minutes.

    With `guard=True` only the public internet is reached; an `AddressGuard` allows what it was configured for.

    Raises:
        ExternalServiceError: the base URL is invalid, there is no response within ten seconds, or its status is not
            2xx.
        ValidationError: the response is not a card (not a JSON object, over 4 MiB, or without name or version), or
            the guard blocks the URL.
    """
    return await _CARDS.fetch(base_url, clock or SystemClock(), guard_of(guard))


async def discover_agent(
    base_url: str, *, clock: Clock | None = None, guard: AddressGuard | bool | None = None
) -> dict[str, Any] | None:
    """Like `fetch_agent_card`, but returns None where that raises."""
    try:
        return await fetch_agent_card(base_url, clock=clock, guard=guard)
    except DragomanError:
        return None


def clear_agent_card_cache() -> None:
    """Clear the cache: the next fetch goes to the network."""
    _CARDS.clear()


def _parse_card(url: str, body: bytes) -> dict[str, Any]:
    card = json_object(body)
    if card is None:
        raise ValidationError(f"A2A: Agent Card from {redact_url(url)} is invalid: it is not a JSON object")
    missing = [field for field in _REQUIRED if not (isinstance(card.get(field), str) and card[field].strip())]
    if missing:
        required = ", ".join(_REQUIRED)
        raise ValidationError(
            f"A2A: Agent Card from {redact_url(url)} is invalid: missing {', '.join(missing)} (required: {required})"
        )
    return card
