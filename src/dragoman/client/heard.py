"""Cards as they were sent, for those who look at their bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.model.error import BadCard

if TYPE_CHECKING:
    from dragoman.client.client import Client
    from dragoman.net.exchange import CallNext, HttpRequest, HttpResponse


class Heard:
    """An interceptor that keeps the cards that pass, also those that cannot be read."""

    def __init__(self) -> None:
        self.bodies: dict[str, bytes] = {}

    async def __call__(self, request: HttpRequest, call_next: CallNext) -> HttpResponse:
        """Let an exchange pass."""
        response = await call_next(request)
        return _Kept(response, request.url, self.bodies) if request.operation == "GetAgentCard" else response

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


class _Kept:
    """An answer whose body is kept when it is read; see `HttpResponse`."""

    def __init__(self, response: HttpResponse, url: str, bodies: dict[str, bytes]) -> None:
        self._response = response
        self._url = url
        self._bodies = bodies
        self.status = response.status
        self.headers = response.headers
        self.chunks = response.chunks
        self.close = response.close

    async def read(self, limit: int = 0) -> bytes:
        """See `HttpResponse.read`."""
        body = self._bodies[self._url] = await self._response.read(limit)
        return body
