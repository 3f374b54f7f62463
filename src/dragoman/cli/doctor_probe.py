"""Single questions to an agent, as they are, and their answers, as they come."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from dragoman.auth.outbound.choose import credential_of
from dragoman.client.connection import Sender
from dragoman.net.aio import AioClient
from dragoman.transports.sse import SseReader

if TYPE_CHECKING:
    from dragoman.cli.remote import Options
    from dragoman.model.card import AgentCard
    from dragoman.net.exchange import HttpRequest, HttpResponse

# What starts no work is answered at once.
_PATIENCE = 20.0
_LARGEST = 4 * 1024 * 1024
STREAM = "text/event-stream"


class Reply(NamedTuple):
    """An answer. Of a stream, `body` is the first event."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    seconds: float

    @property
    def kind(self) -> str:
        """The media type of the body, without its parameters."""
        return self.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    @property
    def shown(self) -> str:
        """What came, in a few words."""
        return f"HTTP {self.status}, {self.kind or 'no content type'}"

    def json(self) -> Any:
        """The body decoded. Raises ValueError when it is not JSON."""
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ValueError(str(error)) from None


class Probe:
    """Asks. `card` is what credentials are chosen by, once it is known."""

    def __init__(self, options: Options) -> None:
        self.card: AgentCard | None = None
        self._http = AioClient(verify=not options.insecure)
        self._sender = Sender(
            self._http,
            origin=options.address.url,
            credential=credential_of(options.token),
            headers=options.headers,
            interceptors=options.interceptors(),
        )

    async def ask(self, request: HttpRequest) -> Reply:
        """Send a request and read the answer.

        Raises:
            CannotConnect: nobody answers.
            BadResponse: it redirects elsewhere, or does not end.
            AuthError: the credentials cannot be had, or are not meant for that address.
        """
        request.silence = _PATIENCE
        start = time.perf_counter()
        response = await self._sender.send(request, self.card)
        body = await _first_event(response) if _streams(response) else await response.read(_LARGEST)
        return Reply(response.status, response.headers, body, time.perf_counter() - start)

    async def close(self) -> None:
        """Close every connection."""
        await self._http.close()


def _streams(response: HttpResponse) -> bool:
    return response.headers.get("Content-Type", "").startswith(STREAM)


async def _first_event(response: HttpResponse) -> bytes:
    reader = SseReader()
    try:
        async for chunk in response.chunks():
            for data, _ in reader.feed(chunk):
                if data:
                    return bytes(data)
        return b""
    finally:
        await response.close()
