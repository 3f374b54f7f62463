"""Writes and reads server-sent events. The id of an event is the generation of its record."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Iterable, MutableMapping, Sequence
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any

from dragoman.model.error import A2AError, InternalError, ResponseTooLarge, ServerError
from dragoman.net.exchange import MAX_RESPONSE, format_size
from dragoman.transports.http import send_large
from dragoman.transports.limits import LARGE_BODY

if TYPE_CHECKING:
    from dragoman.dialects.dialect import Dialect
    from dragoman.engine.journal.follow import Batch
    from dragoman.model.record import Record
    from dragoman.transports.http import Header, Receive, Request, Send

logger = logging.getLogger("dragoman.http")
HEARTBEAT = b": keep-alive\n\n"
# When an EventSource connects again, in milliseconds. Left to themselves, browsers wait for 3 seconds, all alike. Only
# streams that are opened with GET say so: no EventSource can open others.
RETRY_MS = (1000, 5000)
# How many encoded frames of one record are cached.
MAX_CACHED_FRAMES = 8


def last_event_id(headers: dict[str, str]) -> int | None:
    """Parse Last-Event-ID; None when it is absent or not a generation."""
    text = headers.get("last-event-id", "").strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None


class SseWriter:
    """Writes one stream to one client: events in a dialect, each between `before` and `after`.

    `encode_error` encodes a failure in the middle of the stream. `headers` are added to those of the response;
    `artifacts` are the ids of the artifacts that the task already has, for `Dialect.event_writer`.
    """

    def __init__(
        self,
        dialect: Dialect,
        encode_error: Callable[[A2AError], bytes],
        headers: Iterable[Header] = (),
        *,
        before: bytes = b"",
        after: bytes = b"",
        artifacts: Sequence[str] = (),
    ) -> None:
        self._event_writer = dialect.event_writer(artifacts)
        # A stateless writer encodes a record alike for all clients, so the frames can be cached.
        self._cacheable = self._event_writer is dialect
        self._cache_keys = ((before, dialect, False), (before, dialect, True))
        self._encode_error = encode_error
        self._headers = headers
        self._before = before
        self._after = after

    async def write(self, batches: AsyncIterator[Batch], request: Request, send: Send) -> None:
        """Send the stream until it ends or the client leaves. Raises A2AError if it fails before its first event."""
        async with aclosing(batches):  # pyright: ignore[reportArgumentType] - every stream is a generator
            first = await anext(batches, None)
            if first is None:
                raise ServerError("the server is stopping: subscribe again when it is back")
            await send(_start(self._headers))
            # Passed in a list and popped: a stream can be open for days, and its first event can be large.
            first_batches = [first]
            del first
            pump = asyncio.ensure_future(self._pump(first_batches, batches, request, send))
            disconnect = asyncio.ensure_future(_wait_for_disconnect(request.receive))
            try:
                await asyncio.wait((pump, disconnect), return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (pump, disconnect):
                    task.cancel()
                    with suppress(asyncio.CancelledError):
                        await task

    async def _pump(
        self, first_batches: list[Batch], batches: AsyncIterator[Batch], request: Request, send: Send
    ) -> None:
        try:
            is_last = first_batches[0].ended
            message = self._encode_batch(first_batches.pop())
            if request.method == "GET" and message["body"].startswith(b"id:"):
                message["body"] = _retry_hint() + message["body"]
            await self._send(message, request, send)
            del message
            if not is_last:
                async for batch in batches:
                    message = self._encode_batch(batch)
                    del batch
                    if len(message["body"]) > LARGE_BODY:
                        await self._send(message, request, send)
                    else:
                        await send(message)
                    del message
        except OSError:
            return
        except A2AError as error:
            await send(_chunk(b"data: " + self._encode_error(error) + b"\n\n"))
        except Exception:
            logger.exception("a stream failed")
            await send(_chunk(b"data: " + self._encode_error(InternalError()) + b"\n\n"))
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    @staticmethod
    async def _send(message: MutableMapping[str, Any], request: Request, send: Send) -> None:
        size = len(message["body"])
        if size <= LARGE_BODY:
            await send(message)
            return
        with request.covering(size):
            await send_large(send, message["body"])

    def _encode_batch(self, batch: Batch) -> MutableMapping[str, Any]:
        records = batch.records
        if not records:
            return _chunk(HEARTBEAT if not batch.ended else b"")
        if len(records) == 1:
            return _chunk(self._encode_frame(records[0], batch.ended))
        frames = [self._encode_frame(record, False) for record in records[:-1]]
        return _chunk(b"".join((*frames, self._encode_frame(records[-1], batch.ended))))

    def _encode_frame(self, record: Record, last: bool) -> bytes:
        key = self._cache_keys[last]
        frame = record.encodings.get(key) if self._cacheable else None
        if frame is None:
            number = b"id: %d\n" % record.generation if record.generation else b""
            frame = b"%bdata: %b%b%b\n\n" % (number, self._before, self._encode_event(record, last), self._after)
            # `before` may hold a request id and differ for every client, so the cache is limited.
            if self._cacheable and len(record.encodings) < MAX_CACHED_FRAMES:
                record.encodings[key] = frame
        return frame

    def _encode_event(self, record: Record, last: bool) -> bytes:
        if not self._cacheable:
            return self._event_writer.write_event(record, last=last)
        key = (self._event_writer, last)
        body = record.encodings.get(key)
        if body is None:
            body = record.encodings[key] = self._event_writer.write_event(record, last=last)
        return body


async def send_single_event(send: Send, data: bytes, headers: Iterable[Header] = ()) -> None:
    """Send a stream of one event without an id."""
    await send(_start(headers))
    await send({"type": "http.response.body", "body": b"data: %b\n\n" % data})


def _start(headers: Iterable[Header]) -> MutableMapping[str, Any]:
    return {
        "type": "http.response.start",
        "status": 200,
        "headers": [
            (b"content-type", b"text/event-stream"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
            *headers,
        ],
    }


def _retry_hint() -> bytes:
    """Say when to come back after the connection was lost: to each client something else, or all would come at once."""
    return b"retry: %d\n" % random.randint(*RETRY_MS)  # noqa: S311 - nothing secret


def _chunk(body: bytes) -> MutableMapping[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": True}


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


_BOM = b"\xef\xbb\xbf"
# No task has more events than this; a longer id is a timestamp or another kind of number.
_MAX_DIGITS = 9

Event = tuple[bytes, int]


class SseReader:
    """An incremental parser: takes chunks, returns events as (data, id). The id is 0 unless it is a short number.

    Comments, event names and retry hints are skipped.
    """

    __slots__ = ("_buffer", "_ended_with_cr", "_limit", "_started")

    def __init__(self, limit: int = MAX_RESPONSE) -> None:
        self._buffer = bytearray()
        self._limit = limit
        self._started = False
        self._ended_with_cr = False

    def feed(self, chunk: bytes) -> list[Event]:
        """Take a chunk and return the events that are complete now.

        Raises:
            ResponseTooLarge: an event exceeds the limit.
        """
        if not self._started:
            chunk = self._strip_bom(chunk)
        if self._ended_with_cr or b"\r" in chunk:
            chunk = self._normalize_newlines(chunk)
        if self._buffer:
            searched = len(self._buffer)
            self._buffer += chunk
            # The searched part is not searched again, so that the cost is linear in the size of an event.
            if self._buffer.find(b"\n\n", searched - 1) < 0:
                self._check()
                return []
            chunk = bytes(self._buffer)
        blocks = chunk.split(b"\n\n")
        self._buffer = bytearray(blocks.pop())
        self._check()
        return [event for block in blocks if (event := _parse_event(block)) is not None]

    @property
    def pending(self) -> bool:
        """True when the stream has stopped in the middle of an event."""
        return b"data:" in self._buffer

    def _check(self) -> None:
        if len(self._buffer) > self._limit:
            self._buffer.clear()
            size = format_size(self._limit)
            raise ResponseTooLarge(
                f"an event is larger than {size}: nothing more of the stream is read", limit=self._limit
            )

    def _strip_bom(self, chunk: bytes) -> bytes:
        """Remove a byte order mark at the beginning of the stream, which may be split over chunks."""
        chunk = bytes(self._buffer) + chunk
        if len(chunk) < len(_BOM) and _BOM.startswith(chunk):
            self._buffer = bytearray(chunk)
            return b""
        self._started = True
        self._buffer.clear()
        return chunk.removeprefix(_BOM)

    def _normalize_newlines(self, chunk: bytes) -> bytes:
        """Convert CR and CRLF to LF. A CR at the end of a chunk may be half of a CRLF."""
        if not chunk:
            return chunk
        splits_crlf = self._ended_with_cr and chunk.startswith(b"\n")
        self._ended_with_cr = chunk.endswith(b"\r")
        return (chunk[1:] if splits_crlf else chunk).replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _parse_event(block: bytes) -> Event | None:
    # Nearly every event is one line of data, or an id and one line of data.
    if block.startswith(b"id: "):
        first, _, rest = block.partition(b"\n")
        if rest.startswith(b"data: ") and b"\n" not in rest:
            return rest[6:], _number(first[4:])
    elif block.startswith(b"data: ") and b"\n" not in block:
        return block[6:], 0
    lines: list[bytes] = []
    number = 0
    for line in block.split(b"\n"):
        name, _, value = line.partition(b":")
        if name == b"data":
            lines.append(value.removeprefix(b" "))
        elif name == b"id":
            number = _number(value.removeprefix(b" "))
    return (b"\n".join(lines), number) if lines else None


def _number(text: bytes) -> int:
    return int(text) if text.isdigit() and len(text) <= _MAX_DIGITS else 0
