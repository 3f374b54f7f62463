"""The stdio transport to the MCP host: exclusive use of standard input and output, and interruptible I/O."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Any, NamedTuple

import msgspec

from dragoman.model.error import ConfigError

_CHUNK = 1 << 16
# How long pending responses are awaited after the host has closed its end. It may be waiting for our exit.
_DRAIN_SECONDS = 1.0


class HostStreams(NamedTuple):
    """The file descriptors that the host writes to and reads from."""

    incoming: int
    outgoing: int


@contextmanager
def host_streams() -> Generator[HostStreams]:
    """Reserve standard input and output for the host.

    Meanwhile all other code, child processes too, reads an empty standard input and prints to stderr.

    Raises:
        ConfigError: one of them is closed.
    """
    try:
        wire = HostStreams(os.dup(0), os.dup(1))
    except OSError:
        raise ConfigError("standard input or output is closed: an MCP host keeps both open, or use --http") from None
    nowhere = os.open(os.devnull, os.O_RDWR)
    try:
        os.dup2(nowhere, 0)
        try:
            os.dup2(2, 1)
        except OSError:
            os.dup2(nowhere, 1)
        yield wire
    finally:
        # Buffered output must not reach the host after standard output is restored.
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        os.dup2(wire.incoming, 0)
        os.dup2(wire.outgoing, 1)
        os.close(nowhere)
        # The duplicates stay open: a thread may still use them, and the numbers must not be reused for other files.


class _MessageHead(msgspec.Struct):
    """The members that distinguish requests from responses."""

    id: Any = None
    method: str | None = None


_head_decoder = msgspec.json.Decoder(_MessageHead)


class PendingRequests:
    """Tracks the requests that have not been answered yet."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._change = asyncio.Event()

    def add_request(self, line: bytes) -> None:
        """Record a line from the host, if it is a request."""
        with suppress(msgspec.MsgspecError, RecursionError):
            head = _head_decoder.decode(line)
            if head.id is not None and head.method is not None:
                self._ids.add(repr(head.id))

    def add_response(self, line: bytes) -> None:
        """Record a line to the host, if it is a response."""
        with suppress(msgspec.MsgspecError, RecursionError):
            head = _head_decoder.decode(line)
            if head.method is None:
                self._ids.discard(repr(head.id))
                self._change.set()

    async def drain(self) -> None:
        """Wait until all requests are answered, at most `_DRAIN_SECONDS`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_SECONDS):
                while self._ids:
                    self._change.clear()
                    await self._change.wait()


class StdinReader:
    """Reads the host's lines in a daemon thread, which is abandoned when the server stops."""

    def __init__(self, file: int, pending: PendingRequests) -> None:
        self._file = file
        self._pending = pending
        self._loop = asyncio.get_running_loop()
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue()
        # Backpressure for a host that writes faster than its requests are handled.
        self._slots = threading.Semaphore(16)
        threading.Thread(target=self._read, name="mcp-incoming", daemon=True).start()

    def _read(self) -> None:
        chunk = b"-"
        while chunk:
            self._slots.acquire()
            try:
                chunk = os.read(self._file, _CHUNK)
            except OSError:
                chunk = b""
            try:
                self._loop.call_soon_threadsafe(self._chunks.put_nowait, chunk)
            except RuntimeError:  # the loop has ended
                return

    async def __aiter__(self) -> AsyncGenerator[str]:
        """Yield every non-empty line until the host closes its end and its requests are answered."""
        pieces: list[bytes] = []
        while chunk := await self._chunks.get():
            self._slots.release()
            first, *rest = chunk.split(b"\n")
            pieces.append(first)
            for piece in rest:
                if line := b"".join(pieces).strip():
                    self._pending.add_request(line)
                    yield line.decode("utf-8", "replace")
                pieces = [piece]
        if line := b"".join(pieces).strip():
            self._pending.add_request(line)
            yield line.decode("utf-8", "replace")
        # The SDK cancels running requests at the end of input.
        await self._pending.drain()


class StdoutWriter:
    """Writes to the host in a daemon thread, which is abandoned when the host stops reading."""

    def __init__(self, file: int, pending: PendingRequests, on_closed: Callable[[], object]) -> None:
        self._file = file
        self._pending = pending
        self._on_closed = on_closed
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[tuple[bytes, asyncio.Future[None]]] = SimpleQueue()
        threading.Thread(target=self._write, name="mcp-outgoing", daemon=True).start()

    async def write(self, text: str) -> None:
        """Write a text. When the host has closed its end, `on_closed` is called and nothing is raised."""
        written = self._loop.create_future()
        data = text.encode("utf-8", "replace")
        self._queue.put((data, written))
        await written
        self._pending.add_response(data)

    async def flush(self) -> None:
        """Do nothing: `write` does not buffer."""

    def _write(self) -> None:
        while True:
            data, written = self._queue.get()
            remaining = memoryview(data)
            try:
                while remaining:
                    remaining = remaining[os.write(self._file, remaining) :]
            except OSError:
                self._call_in_loop(self._on_closed)
            if not self._call_in_loop(_set_done, written):
                return

    def _call_in_loop(self, function: Callable[..., object], *arguments: object) -> bool:
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:  # the loop has ended
            return False
        return True


def _set_done(written: asyncio.Future[None]) -> None:
    if not written.done():
        written.set_result(None)
