"""The body of a gRPC exchange: messages with their length before them, and the trailers as the last frame.

That is how gRPC-Web carries trailers. HTTP/2 has a place of its own for them, but an `HttpResponse` has none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from struct import Struct
from typing import NamedTuple
from urllib.parse import quote, unquote

from dragoman.model.error import BadResponse, ResponseTooLarge
from dragoman.net.exchange import MAX_RESPONSE, Headers, format_size

MEDIA_TYPE = "application/grpc+proto"
_HEAD = Struct(">BI")
_COMPRESSED, _TRAILERS = 0x01, 0x80
_UNPRINTABLE = re.compile(r"[\r\n\0]+")
_PRINTABLE = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")


class Frame(NamedTuple):
    """One frame: a message, or the trailers, which end the body."""

    data: bytes
    is_trailers: bool = False

    def trailers(self) -> Headers:
        """Return the trailers of a frame that has them."""
        return parse_trailers(self.data)


def write_message(message: bytes) -> bytes:
    """Return the frame of a message."""
    return _HEAD.pack(0, len(message)) + message


def write_trailers(trailers: Mapping[str, str]) -> bytes:
    """Return the frame of the trailers."""
    lines = "".join(f"{name}: {_UNPRINTABLE.sub(' ', value)}\r\n" for name, value in trailers.items())
    data = lines.encode("utf-8", "replace")
    return _HEAD.pack(_TRAILERS, len(data)) + data


def parse_trailers(data: bytes) -> Headers:
    """Parse the content of the frame of the trailers."""
    lines = (line.partition(":") for line in data.decode("utf-8", "replace").split("\r\n") if line)
    return Headers({name.strip().lower(): value.strip() for name, _, value in lines})


def read_frames(body: bytes) -> list[Frame]:
    """Return the frames of a whole body.

    Raises:
        BadResponse: it ends within a frame, or has a frame of another kind.
    """
    reader = FrameReader(max(len(body), 1))
    frames = reader.feed(body)
    if reader.pending:
        raise BadResponse("the answer ends within a message")
    return frames


class FrameReader:
    """An incremental parser: takes chunks, returns the frames that are complete. `limit` is for one message."""

    __slots__ = ("_buffer", "_limit")

    def __init__(self, limit: int = MAX_RESPONSE) -> None:
        self._buffer = bytearray()
        self._limit = limit

    def feed(self, chunk: bytes) -> list[Frame]:
        """Take a chunk and return the frames that are complete now.

        Raises:
            ResponseTooLarge: a message exceeds the limit.
            BadResponse: a frame is of a kind that was not agreed on.
        """
        buffer = self._buffer
        buffer += chunk
        frames: list[Frame] = []
        start = 0
        while len(buffer) - start >= _HEAD.size:
            flags, size = _HEAD.unpack_from(buffer, start)
            if flags & ~_TRAILERS:
                what = "compressed" if flags & _COMPRESSED else "of an unknown kind"
                raise BadResponse(f"a gRPC message is {what}, and that was not agreed on")
            if size > self._limit and not flags:
                size = format_size(self._limit)
                raise ResponseTooLarge(
                    f"a message is larger than {size}: nothing more of the stream is read", limit=self._limit
                )
            end = start + _HEAD.size + size
            if len(buffer) < end:
                break
            frames.append(Frame(bytes(buffer[start + _HEAD.size : end]), bool(flags & _TRAILERS)))
            start = end
        del buffer[:start]
        return frames

    @property
    def pending(self) -> bool:
        """True when the body has stopped within a frame."""
        return bool(self._buffer)


def write_text(text: str) -> str:
    """Return a text as the trailer `grpc-message` carries it: percent-encoded where it is not printable ASCII."""
    return quote(text, safe=_PRINTABLE)


def message_of(trailers: Mapping[str, str]) -> str:
    """Return the text of a status."""
    return unquote(trailers.get("grpc-message", ""))
