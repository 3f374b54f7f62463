"""Readers of streams: plain ones, which know no more than a browser's EventSource, and those of our own client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dragoman import Client
from dragoman.model.event import StatusUpdate
from dragoman.model.json import encode

if TYPE_CHECKING:
    from scale.streams.audience import Audience, Seat

# Chrome waits so long before it connects again, unless the stream has said something else.
RETRY_SECONDS = 3.0


class PlainReader:
    """Follows a task with GET and `Last-Event-ID`. It tries the nodes in turn, beginning with the one it had last."""

    def __init__(self, audience: Audience, task_id: str, ports: Sequence[int], retry: float = RETRY_SECONDS) -> None:
        self._audience = audience
        self._ports = list(ports)
        self.retry = retry
        self.seat: Seat = audience.seat(task_id)

    async def read(self) -> None:
        """Read to the end of the task, over as many connections as it takes."""
        while not self.seat.is_over:
            response = await self._connect()
            if response is not None:
                await response.closed
            if not self.seat.is_over:
                await asyncio.sleep(self.retry)

    async def _connect(self) -> _Response | None:
        loop = asyncio.get_running_loop()
        for _ in self._ports:
            self._audience.attempts += 1
            try:
                _, response = await loop.create_connection(
                    lambda: _Response(self, self._audience), "127.0.0.1", self._ports[0]
                )
            except OSError as error:
                self._audience.count_failure(type(error).__name__)
                self._ports.append(self._ports.pop(0))
                continue
            return response
        return None

    @property
    def request(self) -> bytes:
        """The request for what follows."""
        position = f"Last-Event-ID: {self.seat.generation}\r\n" if self.seat.generation else ""
        path = f"/tasks/{self.seat.task_id}:subscribe"
        head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n{position}\r\n"
        return head.encode()


class _Response(asyncio.Protocol):
    """One response: its head, its chunks, and the events in them."""

    def __init__(self, reader: PlainReader, audience: Audience) -> None:
        self._reader = reader
        self._audience = audience
        self._bytes = b""
        self._text = b""
        self._is_open = False
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        self._transport.write(self._reader.request)

    def data_received(self, data: bytes) -> None:
        self._bytes += data
        if not self._is_open:
            head, blank, rest = self._bytes.partition(b"\r\n\r\n")
            if not blank:
                return
            if b" 200 " not in head[:16]:
                self._audience.count_failure(head.split(b"\r\n")[0].decode())
                self._transport.abort()
                return
            self._is_open, self._bytes = True, rest
            self._audience.open += 1
            self._audience.look()
        self._take_chunks()

    def _take_chunks(self) -> None:
        while True:
            line, newline, rest = self._bytes.partition(b"\r\n")
            size = int(line, 16) if newline else 0
            if not newline or len(rest) < size + 2:
                return
            self._bytes = rest[size + 2 :]
            if not size:
                self._transport.close()
                return
            *frames, self._text = (self._text + rest[:size]).split(b"\n\n")
            for frame in frames:
                self._take_frame(frame)

    def _take_frame(self, frame: bytes) -> None:
        generation, data = None, None
        for line in frame.split(b"\n"):
            name, _, value = line.partition(b": ")
            if name == b"id":
                generation = int(value)
            elif name == b"data":
                data = value
            elif name == b"retry":
                self._reader.retry = int(value) / 1000
        if data is not None and generation is not None:
            self._reader.seat.take(generation, data)
        elif data is not None:
            self._reader.seat.fail(f"an event without a number: {data[:200]!r}")

    def connection_lost(self, error: Exception | None) -> None:
        if self._is_open:
            self._audience.open -= 1
            self._audience.look()
        elif error is not None:
            self._audience.count_failure(type(error).__name__)
        if not self.closed.done():
            self.closed.set_result(None)


class ClientReader:
    """Follows a task with our client, which does by itself what there is to do."""

    def __init__(self, audience: Audience, task_id: str, client: Client) -> None:
        self._client = client
        self.seat: Seat = audience.seat(task_id)

    async def read(self) -> None:
        """Read to the end of the task."""
        try:
            async for event in self._client.subscribe(self.seat.task_id):
                raw = event.raw
                # The state of a task that is sent as a whole is that of its snapshot.
                data = encode(raw) if isinstance(raw, StatusUpdate) else b""
                self.seat.take(event.id, data)
        except Exception as error:  # noqa: BLE001 - whatever it is, the reader has lost its stream
            self.seat.fail(f"{time.time():.3f} {error!r}")
