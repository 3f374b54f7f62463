"""Many readers of one task: all are there before the first chunk."""

from __future__ import annotations

import asyncio

from bench import replies, wire
from bench.http1 import Connection, ask
from bench.job import Job
from bench.replies import StreamCheck, Wrong
from bench.sse import EventCutter
from bench.tally import Tally

CONNECT_AT_ONCE = 50


class Subscriber(Connection):
    """One reader of the task."""

    def __init__(self, tally: Tally, request: bytes, job: Job) -> None:
        super().__init__()
        self._tally = tally
        self._request = request
        self._cutter = EventCutter()
        self._check = StreamCheck(job.chunks, numbered=job.numbered, whole=False)
        loop = asyncio.get_running_loop()
        self.began: asyncio.Future[None] = loop.create_future()
        self.finished: asyncio.Future[None] = loop.create_future()

    def opened(self) -> None:
        """Subscribe."""
        self.send(self._request)

    def body(self, chunk: bytes) -> None:
        """Check each event."""
        before = self._check.seen
        try:
            for number, data in self._cutter.feed(chunk):
                self._check.take(number, data)
        except Wrong as error:
            self._tally.wrong(error)
            self.close()
            return
        self._tally.events += self._check.seen - before
        if not self.began.done():
            self.began.set_result(None)

    def answered(self, status: int) -> None:
        """Check the end."""
        try:
            if status != 200:
                raise Wrong(f"HTTP {status}")
            self._check.finish()
        except Wrong as error:
            self._tally.wrong(error)
        else:
            self._tally.answered(0.0)
        self.close()

    def lost(self) -> None:
        """Let nobody wait."""
        for future in (self.began, self.finished):
            if not future.done():
                future.set_result(None)


async def load_fanout(job: Job, tally: Tally) -> None:
    """Subscribe with everybody, let the task begin, read to its end."""
    loop = asyncio.get_running_loop()
    messages = wire.Messages(job.ids)
    _, body = await ask(job.port, messages.tool("parade", wait=False, n=job.chunks, pace=job.pace))
    request = wire.call("SubscribeToTask", {"id": replies.check_accepted(body)})
    readers: list[Subscriber] = []
    while len(readers) < job.concurrency:
        # All at once would overflow the listener's backlog.
        more = [
            (await loop.create_connection(lambda: Subscriber(tally, request, job), "127.0.0.1", job.port))[1]
            for _ in range(min(CONNECT_AT_ONCE, job.concurrency - len(readers)))
        ]
        await asyncio.wait([reader.began for reader in more], timeout=job.limit)
        readers.extend(more)
    before = sum(reader.received for reader in readers)
    tally.begin()
    await ask(job.port, messages.tool("go"))
    _, late = await asyncio.wait([reader.finished for reader in readers], timeout=job.limit)
    tally.end()
    tally.unfinished = len(late)
    tally.received = sum(reader.received for reader in readers) - before
