"""`--wire` over gRPC: each message as JSON, each call with its metadata and its status."""

from __future__ import annotations

from base64 import b64decode
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from dragoman.cli.printing import say
from dragoman.net.exchange import MAX_RESPONSE
from dragoman.net.grpc.frames import FrameReader, message_of, read_frames
from dragoman.net.grpc.status import status_name
from dragoman.transports.grpc.codec import MalformedMessage, codec_of
from dragoman.transports.grpc.method import METHODS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from dragoman.net.exchange import HttpRequest, HttpResponse
    from dragoman.net.grpc.frames import Frame

# Printed as the status, not as metadata.
STATUS_NAMES = frozenset(("grpc-status", "grpc-message", "grpc-status-details-bin", "content-type"))
_DETAILS = "grpc-status-details-bin"


def request_json(request: HttpRequest) -> str:
    """Return the message of a request as JSON."""
    method = METHODS[urlsplit(request.url).path]
    messages = (frame.data for frame in read_frames(request.body or b""))
    return "".join(_to_json(method.codec.decode, method.request, each) for each in messages)


def status_text(trailers: Mapping[str, str]) -> str:
    """Return the status of a call in one line, with its details as JSON."""
    text = status_name(trailers.get("grpc-status", ""))
    if message := message_of(trailers):
        text = f"{text}: {message}"
    if details := trailers.get(_DETAILS):
        status = b64decode(details + "=" * (-len(details) % 4))
        text = f"{text} {_to_json(codec_of('google.rpc').decode, 'Status', status)}"
    return text


class GrpcWireResponse:
    """An `HttpResponse` of gRPC whose messages are logged as they are read, each as a line of JSON."""

    def __init__(self, response: HttpResponse, url: str, show_line: Callable[[str], None]) -> None:
        self._response = response
        self._method = METHODS[urlsplit(url).path]
        self._show_line = show_line
        self.status = response.status
        self.headers = response.headers
        self._has_ended = False
        if "grpc-status" in response.headers:
            self._show_status(response.headers)

    async def read(self, limit: int = MAX_RESPONSE) -> bytes:
        """Read the body and log it."""
        body = await self._response.read(limit)
        for frame in read_frames(body):
            self._show(frame)
        return body

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the chunks, and log their messages."""
        reader = FrameReader()
        try:
            async for chunk in self._response.chunks():
                for frame in reader.feed(chunk):
                    self._show(frame)
                yield chunk
        finally:
            if not self._has_ended:
                say()

    async def close(self) -> None:
        """Close the response."""
        await self._response.close()

    def _show(self, frame: Frame) -> None:
        if frame.is_trailers:
            self._show_status(frame.trailers())
        else:
            self._show_line(_to_json(self._method.codec.decode, self._method.response, frame.data))

    def _show_status(self, trailers: Mapping[str, str]) -> None:
        self._has_ended = True
        self._show_line(status_text(trailers))
        say()


def _to_json(decode: Callable[[str, bytes], dict[str, Any]], message: str, data: bytes) -> str:
    try:
        return msgspec.json.encode(decode(message, data)).decode()
    except MalformedMessage as error:
        return f"{len(data)} bytes that are not a {message}: {error}"
