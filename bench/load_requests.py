"""Load of requests and answers: a fixed number of callers, each asking again as soon as it is answered."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from functools import partial

from bench import replies, stored, wire
from bench.http1 import Connection, ask
from bench.job import Job
from bench.replies import Wrong
from bench.tally import Tally

Question = tuple[bytes, Callable[[bytes], object]]
# fasta2a answers before the work is done: this many of its tasks are looked at afterwards.
SAMPLE = 20


class Caller(Connection):
    """One caller on one connection."""

    def __init__(self, tally: Tally, questions: Iterator[Question]) -> None:
        super().__init__()
        self._tally = tally
        self._questions = questions
        self._chunks: list[bytes] = []
        self._check: Callable[[bytes], object] | None = None
        self._asked = 0.0
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def opened(self) -> None:
        """Ask at once."""
        self._next()

    def body(self, chunk: bytes) -> None:
        """Keep."""
        self._chunks.append(chunk)

    def answered(self, status: int) -> None:
        """Check, count, ask again."""
        self._tally.answered(time.perf_counter() - self._asked)
        body = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        check, self._check = self._check, None
        assert check is not None
        try:
            if status != 200:
                raise Wrong(f"HTTP {status}: {body[:200]!r}")
            check(body)
        except Wrong as error:
            self._tally.wrong(error)
        self._next()

    def _next(self) -> None:
        question = None if self._tally.stopped else next(self._questions, None)
        if question is None:
            self.close()
            return
        request, self._check = question
        self._asked = time.perf_counter()
        self.send(request)

    def lost(self) -> None:
        """Say so when an answer is missing."""
        if self._check is not None:
            self._tally.wrong("the server closed the connection")
        if not self.finished.done():
            self.finished.set_result(None)


async def load_requests(job: Job, tally: Tally) -> None:
    """Ask for `seconds` after the warm-up; parking asks as often as there are tasks to park."""
    loop = asyncio.get_running_loop()
    accepted: list[str] = []
    questions = _questions(job, accepted)
    if job.kind == "park":
        tally.begin()
    else:
        loop.call_later(job.warmup, tally.begin)
        loop.call_later(job.warmup + job.seconds, tally.end)
    ports = [job.port, *(port for port, _ in job.nodes)]
    callers = [
        (await loop.create_connection(lambda: Caller(tally, questions), "127.0.0.1", ports[number % len(ports)]))[1]
        for number in range(job.concurrency)
    ]
    _, late = await asyncio.wait([caller.finished for caller in callers], timeout=job.seconds + job.limit)
    tally.end()
    tally.received = sum(caller.received for caller in callers)
    for _ in late:
        tally.wrong(f"no answer within {job.limit:g} s")
    if not job.blocks:
        await _look_after(job, tally, accepted)


async def _look_after(job: Job, tally: Tally, accepted: list[str]) -> None:
    for task_id in random.sample(accepted, min(SAMPLE, len(accepted))):
        _, body = await ask(job.port, wire.call("GetTask", {"id": task_id}))
        try:
            replies.check_task(body, task_id, replies.COMPLETED)
        except Wrong as error:
            tally.wrong(error)


def _questions(job: Job, accepted: list[str]) -> Iterator[Question]:
    if job.kind == "get":
        return _gets(job.tasks)
    if job.kind == "list":
        return _lists(job)
    if job.kind == "park":
        return _parks(job)
    return _echoes(job, accepted)


def _echoes(job: Job, accepted: list[str]) -> Iterator[Question]:
    messages = wire.Messages(job.ids, job.header)
    while True:
        request, text = messages.echo()
        if job.blocks:
            yield request, partial(replies.check_echo, text=text)
        else:
            yield request, lambda body: accepted.append(replies.check_accepted(body))


def _parks(job: Job) -> Iterator[Question]:
    messages = wire.Messages(job.ids)
    for _ in range(job.tasks):
        yield messages.tool("ask"), replies.check_parked


def _gets(tasks: int) -> Iterator[Question]:
    while True:
        number = random.randrange(tasks)
        task_id = stored.task_id(number)
        check = partial(replies.check_task, task_id=task_id, state=stored.state(number))
        yield wire.call("GetTask", {"id": task_id}), check


def _lists(job: Job) -> Iterator[Question]:
    params: dict[str, object] = {}
    total = job.tasks
    if job.filter == "status":
        params["status"] = "TASK_STATE_FAILED"
        total = job.tasks // stored.ONE_IN
    elif job.filter == "since":
        params["statusTimestampAfter"] = stored.timestamp(stored.recent_from(job.tasks))
        total = job.tasks - stored.recent_from(job.tasks)
    while True:
        if job.filter == "context":
            params["contextId"] = stored.context_id(random.randrange(job.tasks))
            total = stored.PER_CONTEXT
        check = partial(replies.check_page, size=min(total, stored.PAGE), total=total)
        yield wire.call("ListTasks", params), check
