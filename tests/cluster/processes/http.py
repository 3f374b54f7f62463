"""The smallest HTTP client that does it: one request, one connection, so that each goes to the next node."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

SECONDS = 90
# A stream has a heartbeat, so that silence is the end of it.
IDLE_SECONDS = 20
_LIMIT = 1 << 24


class Lost(Exception):
    """There was no answer, or a part of one, or one that asks to try again: whether it was done is unknown."""


class Refused(Exception):
    """The request was refused, with an error of the protocol."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(f"{error.get('code')}: {error.get('message')}")
        self.code = int(error.get("code", 0))


class Answer(NamedTuple):
    """The result of a request, and when it was asked for."""

    result: Any
    asked_at: float


class StreamEvent(NamedTuple):
    """One event: its number, and the bytes of the JSON-RPC response."""

    id: int
    data: bytes

    @property
    def result(self) -> dict[str, Any]:
        """What it says."""
        return json.loads(self.data)["result"]


async def ask(url: str, method: str, params: dict[str, Any]) -> Answer:
    """Send one request. Raises Lost and Refused."""
    asked_at = time.monotonic()
    try:
        async with asyncio.timeout(SECONDS):
            reader, writer, status, headers = await _request(url, method, params, None)
            try:
                body = await reader.readexactly(int(headers["content-length"]))
                return Answer(_result(status, body), asked_at)
            finally:
                writer.close()
    except (OSError, asyncio.IncompleteReadError) as error:
        raise Lost(repr(error)) from error


async def stream(url: str, method: str, params: dict[str, Any], after: int | None = None) -> AsyncIterator[StreamEvent]:
    """The events of a stream, up to the end that the server gave it. Raises Lost and Refused."""
    try:
        reader, writer, status, headers = await _request(url, method, params, after)
        try:
            if not headers["content-type"].startswith("text/event-stream"):
                result = _result(status, await reader.readexactly(int(headers["content-length"])))
                raise AssertionError(f"this is no stream: {result}")
            text = b""
            async for chunk in _chunks(reader):
                *frames, text = (text + chunk).split(b"\n\n")
                for frame in frames:
                    if frame.startswith(b"id: "):
                        number, _, data = frame.partition(b"\n")
                        yield StreamEvent(int(number[4:]), data.removeprefix(b"data: "))
                    elif b"data: " in frame:
                        _fail_if_error(frame[frame.index(b"data: ") + 6 :])
        finally:
            writer.close()
    except (OSError, asyncio.IncompleteReadError) as error:
        raise Lost(repr(error)) from error


def _result(status: int, body: bytes) -> Any:
    if status in (429, 500, 502, 503, 504):
        raise Lost(f"{status} {body[:300]!r}")
    _fail_if_error(body)
    return json.loads(body)["result"]


def _fail_if_error(body: bytes) -> None:
    error = json.loads(body).get("error")
    if error is None:
        return
    if error["code"] == -32000:
        raise Lost(str(error.get("message")))
    raise Refused(error)


async def _request(
    url: str, method: str, params: dict[str, Any], after: int | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, int, dict[str, str]]:
    place = urlsplit(url)
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    head = [
        "POST / HTTP/1.1",
        f"Host: {place.netloc}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "A2A-Version: 1.0",
        *([] if after is None else [f"Last-Event-ID: {after}"]),
    ]
    reader, writer = await asyncio.open_connection(place.hostname, place.port, limit=_LIMIT)
    try:
        writer.write("\r\n".join(head).encode() + b"\r\n\r\n" + body)
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
    except BaseException:
        writer.close()
        raise
    headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
    return reader, writer, int(lines[0].split()[1]), headers


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while True:
        try:
            async with asyncio.timeout(IDLE_SECONDS):
                size = int((await reader.readuntil(b"\r\n")), 16)
        except TimeoutError:
            raise Lost(f"nothing came for {IDLE_SECONDS} s") from None
        if not size:
            return
        yield (await reader.readexactly(size + 2))[:-2]
