"""One node writes the time, another is read: how old is what arrives?"""

from __future__ import annotations

import asyncio
import time

from bench import replies, wire
from bench.http1 import Connection, ask
from bench.job import Job
from bench.replies import Wrong
from bench.sse import EventCutter
from bench.tally import Tally


class TimeReader(Connection):
    """Reads the stream of a task that writes the time, and compares it with the time of the same clock."""

    def __init__(self, tally: Tally, request: bytes) -> None:
        super().__init__()
        self._tally = tally
        self._request = request
        self._cutter = EventCutter()
        self._last = 0
        self.seen = 0
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def opened(self) -> None:
        """Subscribe."""
        self.send(self._request)

    def body(self, chunk: bytes) -> None:
        """Count each time in each event; those in the task itself, which comes first, are old."""
        now = time.monotonic_ns()
        try:
            for _, data in self._cutter.feed(chunk):
                times, new = replies.times_in(data)
                for written in times:
                    if written <= self._last:
                        raise Wrong("the times are not in order")
                    self._last = written
                    self.seen += 1
                    if new and self._tally.open:
                        self._tally.events += 1
                        self._tally.answered((now - written) / 1e9)
        except Wrong as error:
            self._tally.wrong(error)
            self.close()

    def answered(self, status: int) -> None:
        """Check the end."""
        if status != 200:
            self._tally.wrong(Wrong(f"HTTP {status}"))
        self.close()

    def lost(self) -> None:
        """Let nobody wait."""
        if not self.finished.done():
            self.finished.set_result(None)


async def load_cross(job: Job, tally: Tally) -> None:
    """Let one node begin, and read from the other to the end."""
    loop = asyncio.get_running_loop()
    messages = wire.Messages(job.ids)
    request = messages.tool("tick", wait=False, n=job.chunks, pace=job.pace)
    _, body = await ask(job.writer_port, request)
    subscribe = wire.call("SubscribeToTask", {"id": replies.check_accepted(body)})
    _, reader = await loop.create_connection(lambda: TimeReader(tally, subscribe), "127.0.0.1", job.port)
    await asyncio.sleep(job.warmup)
    tally.begin()
    _, late = await asyncio.wait([reader.finished], timeout=job.seconds + job.limit)
    tally.end()
    tally.unfinished = len(late)
    if reader.seen != job.chunks:
        tally.wrong(f"{reader.seen} of {job.chunks} times arrived")
