"""Server-sent events: every record once, with its number as the id."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, MutableMapping, Sequence
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any

from dragoman.model.error import A2AError, InternalError, ResponseTooLarge, ServerError
from dragoman.net.exchange import MAX_ANSWER, size_in_words
from dragoman.transports.http import send_large
from dragoman.transports.limits import LARGE

if TYPE_CHECKING:
    from dragoman.dialects.dialect import Dialect
    from dragoman.engine.journal.follow import Batch
    from dragoman.model.record import Record
    from dragoman.transports.http import Header, Receive, Request, Send

logger = logging.getLogger("dragoman.http")
HEARTBEAT = b": keep-alive\n\n"
# In how many ways a record is kept as it was written.
SHARED = 8


def last_event_id(headers: dict[str, str]) -> int | None:
    """The number of the record a reader saw last, if it says so in a form we gave it."""
    text = headers.get("last-event-id", "").strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None


class EventWriter:
    """Writes one stream to one reader: events in a dialect, each between `before` and `after`.

    `error` spells a failure in the middle.
    """

    def __init__(
        self,
        dialect: Dialect,
        error: Callable[[A2AError], bytes],
        headers: Iterable[Header] = (),
        *,
        before: bytes = b"",
        after: bytes = b"",
        artifacts: Sequence[str] = (),
    ) -> None:
        self._spelling = dialect.stream(artifacts)
        # One that remembers nothing spells a record alike for all its readers: then once is enough.
        self._shares = self._spelling is dialect
        self._keys = ((before, dialect, False), (before, dialect, True))
        self._error = error
        self._headers = headers
        self._before = before
        self._after = after

    async def write(self, batches: AsyncIterator[Batch], request: Request, send: Send) -> None:
        """Send the stream until it ends or the reader leaves. Raises A2AError when it fails before its first event."""
        async with aclosing(batches):  # pyright: ignore[reportArgumentType] - every stream is a generator
            first = await anext(batches, None)
            if first is None:
                raise ServerError("the server is stopping: subscribe again when it is back")
            await send(
                {
                    "type": "http.response.start",
                    "status": 200,
                    "headers": [
                        (b"content-type", b"text/event-stream"),
                        (b"cache-control", b"no-store"),
                        (b"x-accel-buffering", b"no"),
                        *self._headers,
                    ],
                }
            )
            # Handed over and not held: a stream can be open for days, and its first event can be large.
            begins = [first]
            del first
            pump = asyncio.ensure_future(self._pump(begins, batches, request, send))
            gone = asyncio.ensure_future(_until_gone(request.receive))
            try:
                await asyncio.wait((pump, gone), return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (pump, gone):
                    task.cancel()
                    with suppress(asyncio.CancelledError):
                        await task

    async def _pump(self, begins: list[Batch], batches: AsyncIterator[Batch], request: Request, send: Send) -> None:
        try:
            ended = begins[0].ended
            await self._send(self._body(begins.pop()), request, send)
            if not ended:
                async for batch in batches:
                    message = self._body(batch)
                    del batch
                    if len(message["body"]) > LARGE:
                        await self._send(message, request, send)
                    else:
                        await send(message)
                    del message
        except OSError:
            return
        except A2AError as error:
            await send(_chunk(b"data: " + self._error(error) + b"\n\n"))
        except Exception:
            logger.exception("a stream broke")
            await send(_chunk(b"data: " + self._error(InternalError()) + b"\n\n"))
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    @staticmethod
    async def _send(message: MutableMapping[str, Any], request: Request, send: Send) -> None:
        size = len(message["body"])
        if size <= LARGE:
            await send(message)
            return
        with request.covering(size):
            await send_large(send, message["body"])

    def _body(self, batch: Batch) -> MutableMapping[str, Any]:
        records = batch.records
        if not records:
            return _chunk(HEARTBEAT if not batch.ended else b"")
        if len(records) == 1:
            return _chunk(self._frame(records[0], batch.ended))
        frames = [self._frame(record, False) for record in records[:-1]]
        return _chunk(b"".join((*frames, self._frame(records[-1], batch.ended))))

    def _frame(self, record: Record, last: bool) -> bytes:
        key = self._keys[last]
        frame = record.encodings.get(key) if self._shares else None
        if frame is None:
            number = b"id: %d\n" % record.generation if record.generation else b""
            frame = b"%bdata: %b%b%b\n\n" % (number, self._before, self._event(record, last), self._after)
            # What stands before an event may be different for every reader, and is then kept for none.
            if self._shares and len(record.encodings) < SHARED:
                record.encodings[key] = frame
        return frame

    def _event(self, record: Record, last: bool) -> bytes:
        if not self._shares:
            return self._spelling.event(record, last=last)
        key = (self._spelling, last)
        body = record.encodings.get(key)
        if body is None:
            body = record.encodings[key] = self._spelling.event(record, last=last)
        return body


def _chunk(body: bytes) -> MutableMapping[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": True}


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


_BOM = b"\xef\xbb\xbf"
# A task does not have so many events; what is longer is a time or a number of another kind.
_MOST_DIGITS = 9

Event = tuple[bytes, int]


class SseReader:
    """Takes chunks, gives events: the data of each and its own number, 0 when it has none that could be ours.

    Comments, event names and retry hints are skipped.
    """

    __slots__ = ("_buffer", "_limit", "_returned", "_started")

    def __init__(self, limit: int = MAX_ANSWER) -> None:
        self._buffer = bytearray()
        self._limit = limit
        self._started = False
        self._returned = False

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that are whole now.

        Raises:
            ResponseTooLarge: an event does not end.
        """
        if not self._started:
            chunk = self._without_mark(chunk)
        if self._returned or b"\r" in chunk:
            chunk = self._one_ending(chunk)
        if self._buffer:
            seen = len(self._buffer)
            self._buffer += chunk
            # What has been searched is not searched again: a large event costs what its length is.
            if self._buffer.find(b"\n\n", seen - 1) < 0:
                self._check()
                return []
            chunk = bytes(self._buffer)
        blocks = chunk.split(b"\n\n")
        self._buffer = bytearray(blocks.pop())
        self._check()
        return [event for block in blocks if (event := _event(block)) is not None]

    @property
    def pending(self) -> bool:
        """True when the stream has stopped in the middle of an event."""
        return b"data:" in self._buffer

    def _check(self) -> None:
        if len(self._buffer) > self._limit:
            self._buffer.clear()
            size = size_in_words(self._limit)
            raise ResponseTooLarge(
                f"an event is larger than {size}: nothing more of the stream is read", limit=self._limit
            )

    def _without_mark(self, chunk: bytes) -> bytes:
        """A stream may begin with a byte order mark, which may come in pieces."""
        chunk = bytes(self._buffer) + chunk
        if len(chunk) < len(_BOM) and _BOM.startswith(chunk):
            self._buffer = bytearray(chunk)
            return b""
        self._started = True
        self._buffer.clear()
        return chunk.removeprefix(_BOM)

    def _one_ending(self, chunk: bytes) -> bytes:
        """Lines may end in CR, LF or both: make it LF. A CR at the end may be half of both."""
        if not chunk:
            return chunk
        half = self._returned and chunk.startswith(b"\n")
        self._returned = chunk.endswith(b"\r")
        return (chunk[1:] if half else chunk).replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _event(block: bytes) -> Event | None:
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
    return int(text) if text.isdigit() and len(text) <= _MOST_DIGITS else 0
