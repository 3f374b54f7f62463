"""Requests as bytes: JSON-RPC of A2A 1.0, the same for every server."""

from __future__ import annotations

from itertools import count
from typing import Literal
from uuid import uuid4

import msgspec

from bench.agents.words import echo_text

_HEAD = (
    b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nA2A-Version: 1.0\r\n"
    b"Accept: application/json, text/event-stream\r\nContent-Length: %d\r\n%b\r\n%b"
)
_MESSAGE = (
    b'{"jsonrpc":"2.0","id":%d,"method":"%b","params":{"message":{"messageId":"%b","role":"ROLE_USER","parts":[%b]}%b}}'
)
_IMMEDIATELY = b',"configuration":{"returnImmediately":true,"acceptedOutputModes":[]}'


def http(body: bytes, header: bytes = b"") -> bytes:
    """A request with that body; `header` is a line with its end."""
    return _HEAD % (len(body), header, body)


def call(method: str, params: dict[str, object], number: int = 1) -> bytes:
    """Any operation."""
    return http(msgspec.json.encode({"jsonrpc": "2.0", "id": number, "method": method, "params": params}))


def get(path: str) -> bytes:
    """A plain GET."""
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()


class Messages:
    """Makes messages whose ids nobody has used: UUIDs, by which a server may know repeats, or ids typed by hand.

    `header` goes with each of them, like `Name: value`.
    """

    def __init__(self, ids: Literal["uuid", "typed"], header: str = "") -> None:
        self._header = f"{header}\r\n".encode() if header else b""
        # uuid4 for each message would cost the generator more than the rest of the request.
        self._prefix = f"{uuid4()}"[:24] if ids == "uuid" else f"m-{uuid4().hex[:6]}-"
        self._numbers = count(1)

    def echo(self) -> tuple[bytes, str]:
        """A message to be echoed, and its text."""
        number = next(self._numbers)
        text = echo_text(number)
        return self._message(number, b"SendMessage", b'{"text":"%b"}' % text.encode()), text

    def tool(self, name: str, *, stream: bool = False, wait: bool = True, **arguments: float) -> bytes:
        """A message that names a skill."""
        part = msgspec.json.encode({"data": {"tool": name, "arguments": arguments}})
        method = b"SendStreamingMessage" if stream else b"SendMessage"
        return self._message(next(self._numbers), method, part, b"" if wait else _IMMEDIATELY)

    def _message(self, number: int, method: bytes, part: bytes, more: bytes = b"") -> bytes:
        message_id = f"{self._prefix}{number:012x}".encode()
        return http(_MESSAGE % (number, method, message_id, part, more), self._header)
