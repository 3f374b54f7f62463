"""Load of streams: each reader takes a whole stream, then the next."""

from __future__ import annotations

import asyncio
import time

from bench import wire
from bench.http1 import Connection
from bench.job import Job
from bench.replies import StreamCheck, Wrong
from bench.sse import EventCutter
from bench.tally import Tally

# Enough to have every line of the server run before anything is measured.
WARM_UP_CHUNKS = 50


class Reader(Connection):
    """One reader on one connection. It begins no stream after `until`."""

    def __init__(self, tally: Tally, messages: wire.Messages, job: Job, chunks: int, until: float) -> None:
        super().__init__()
        self._tally = tally
        self._messages = messages
        self._job = job
        self._chunks = chunks
        self._until = until
        self._began = 0.0
        self._check: StreamCheck | None = None
        self._cutter = EventCutter()
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def opened(self) -> None:
        """Ask at once."""
        self._next()

    def body(self, chunk: bytes) -> None:
        """Check each event."""
        check = self._check
        if check is None:
            return
        before = check.seen
        try:
            for number, data in self._cutter.feed(chunk):
                check.take(number, data)
        except Wrong as error:
            self._fail(error)
            return
        if self._tally.open:
            self._tally.events += check.seen - before

    def answered(self, status: int) -> None:
        """Check the end, begin the next."""
        check, self._check = self._check, None
        if check is None:
            return
        try:
            if status != 200:
                raise Wrong(f"HTTP {status}")
            check.finish()
        except Wrong as error:
            self._fail(error)
            return
        self._tally.answered(time.perf_counter() - self._began)
        self._next()

    def _next(self) -> None:
        began = time.perf_counter()
        if began >= self._until and self._began:
            self.close()
            return
        self._began = began
        self._cutter = EventCutter()
        self._check = StreamCheck(self._chunks, numbered=self._job.numbered)
        self.send(self._messages.tool("count", stream=True, n=self._chunks))

    def _fail(self, error: Wrong) -> None:
        self._tally.wrong(error)
        self._check = None
        self.close()

    def lost(self) -> None:
        """Say so when a stream was cut, unless we cut it."""
        if self._check is not None and not self._tally.stopped:
            self._tally.wrong("the server closed the connection")
        if not self.finished.done():
            self.finished.set_result(None)


async def load_streams(job: Job, tally: Tally) -> None:
    """Read short streams to warm up, then streams until the time is up and the last has ended, or has been given up."""
    messages = wire.Messages(job.ids)
    await _read(job, Tally([job.pid]), messages, WARM_UP_CHUNKS, time.perf_counter() + job.warmup)
    tally.begin()
    await _read(job, tally, messages, job.chunks, time.perf_counter() + job.seconds)


async def _read(job: Job, tally: Tally, messages: wire.Messages, chunks: int, until: float) -> None:
    loop = asyncio.get_running_loop()
    readers = [
        (await loop.create_connection(lambda: Reader(tally, messages, job, chunks, until), "127.0.0.1", job.port))[1]
        for _ in range(job.concurrency)
    ]
    _, late = await asyncio.wait([reader.finished for reader in readers], timeout=job.limit)
    tally.end()
    tally.unfinished = len(late)
    tally.received = sum(reader.received for reader in readers)
    for reader in readers:
        reader.close()
