"""HTTP/2 by hand, as far as a caller of gRPC needs it who does not keep to the rules: frames, and fields of headers."""

from __future__ import annotations

import socket
from collections.abc import Iterable

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, CONTINUATION = 0, 1, 3, 4, 6, 7, 9
ACK, END_STREAM, END_HEADERS = 1, 1, 4
# Entries of the static table of HPACK: their values are given, or only their names.
POST, HTTP, PATH, AUTHORITY = b"\x83", b"\x86", 4, 1
# The first entry of the table that a connection adds to.
FIRST_ADDED = b"\xbe"


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Give one frame."""
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def field(name: int | bytes, value: bytes, *, added: bool = False) -> bytes:
    """Give one field of headers, whose name may be that of an entry; with `added`, later ones may refer to it."""
    first = b"\x40" if added else b"\x00"
    start = bytes((first[0] | name,)) if isinstance(name, int) else first + _text(name)
    return start + _text(value)


def _text(text: bytes) -> bytes:
    if len(text) < 127:
        return bytes((len(text),)) + text
    rest, digits = len(text) - 127, b"\x7f"
    while rest >= 128:
        digits += bytes((rest % 128 + 128,))
        rest //= 128
    return digits + bytes((rest,)) + text


def call_fields(path: bytes, authority: bytes) -> bytes:
    """Give the fields with which every call of gRPC begins."""
    plain = [(b"te", b"trailers"), (b"content-type", b"application/grpc")]
    return POST + HTTP + field(PATH, path) + field(AUTHORITY, authority) + b"".join(field(*each) for each in plain)


class Http2Connection:
    """A connection whose frames are written by hand. `close` ends it."""

    def __init__(self, port: int, seconds: float) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=seconds)
        self._received = b""
        self._socket.sendall(PREFACE + frame(SETTINGS, 0, 0))

    def __enter__(self) -> Http2Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, frames: Iterable[bytes]) -> bool:
        """Send frames; False when the server has closed the connection before it took all of them."""
        block = bytearray()
        try:
            for each in frames:
                block += each
                if len(block) > 60_000:
                    self._socket.sendall(block)
                    block.clear()
            self._socket.sendall(block)
        except ConnectionError:
            return False
        return True

    def until(self, *kinds: int, stream: int | None = None) -> tuple[int, int, bytes] | None:
        """Give the kind, flags and payload of the next frame of these kinds; None when the connection has ended."""
        while True:
            head = self._read(9)
            if head is None:
                return None
            payload = self._read(int.from_bytes(head[:3], "big"))
            if payload is None:
                return None
            kind, flags, number = head[3], head[4], int.from_bytes(head[5:], "big") & 0x7FFFFFFF
            if kind in (SETTINGS, PING) and not flags & ACK:
                self.send([frame(kind, ACK, 0, payload if kind == PING else b"")])
            if kind in kinds and (stream is None or number == stream):
                return kind, flags, payload

    def _read(self, size: int) -> bytes | None:
        while len(self._received) < size:
            try:
                chunk = self._socket.recv(65536)
            except ConnectionError:
                return None
            if not chunk:
                return None
            self._received += chunk
        taken, self._received = self._received[:size], self._received[size:]
        return taken
