"""The problems of a card that this server serves, as `dragoman card --validate` lists them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dragoman.console.api import ApiResponse
from dragoman.dialects.cards.rules.validate import card_problems
from dragoman.dialects.reading.invalid import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dragoman.console.access import Viewer
    from dragoman.model.user import User
    from dragoman.transports.http import Request

    # Returns the URL of an agent's card and its body, as a caller who is that user gets them.
    ServedCard = Callable[[Request, User | None], tuple[str, bytes]]


class CardsView:
    """`GET console/api/cards/NAME`. `cards` are those of the agents, by name."""

    def __init__(self, cards: Mapping[str, ServedCard]) -> None:
        self._cards = cards

    async def show(self, viewer: Viewer, request: Request, segments: Sequence[str]) -> dict[str, Any] | ApiResponse:
        """Return the problems of an agent's card, in its order."""
        name = segments[-1]
        card = self._cards.get(name)
        if card is None:
            return ApiResponse(404, {"error": f"agent {quoted(name)} is not here", "reason": "NOT_FOUND"})
        url, body = card(request, viewer.user)
        await request.wait_for_turn()  # anybody may ask, and a card may have many skills
        return {"problems": problems_of(url, body)}


def problems_of(url: str, body: bytes) -> list[dict[str, str]]:
    """List the problems of the card that is served at a URL."""
    return [
        {"level": each.level, "path": each.field, "rule": each.rule, "message": each.found}
        for each in card_problems(body, url=url)
    ]
