"""Records the bodies of card responses, for those who show a card as its server has it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from dragoman.dialects.v1.dialect import V1_0
from dragoman.model.error import BadCard
from dragoman.model.operation import Operation

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.client.client import Client
    from dragoman.net.exchange import CallNext, HttpRequest, HttpResponse


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
