"""A message on its way to an agent, followed in the background whoever waits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from dragoman.mcp.problem import request_failed
from dragoman.model.error import DragomanError
from dragoman.model.message import Message
from dragoman.model.task import Task

if TYPE_CHECKING:
    from dragoman.client.client import Client, EventStream
    from dragoman.client.event import Event
    from dragoman.mcp.record import TaskRecord
    from dragoman.mcp.registry import Registry

logger = logging.getLogger("dragoman.mcp")
TIMEOUT = "Request failed: timeout"
Heard = Callable[["TaskRecord", "Event"], Awaitable[None]]


class Errand:
    """One task that is followed until it ends or asks. It goes on when nobody waits for it."""

    def __init__(self, registry: Registry, record: TaskRecord, heard: Heard, answer_seconds: float) -> None:
        self._registry = registry
        self._heard = heard
        self._seconds = answer_seconds
        self.record = record
        # The answer, where it is a bare message and no task.
        self.reply: Message | None = None
        self.problem: str = ""
        self.events = 0
        self._text = ""
        self._news = asyncio.Event()
        self._work: asyncio.Task[None] | None = None

    # -- beginning -----------------------------------------------------------------------------------------------------

    def send(self, client: Client, **message: Any) -> Errand:
        """Send a message, do not ask the agent to wait, and follow the task it becomes."""
        self._work = asyncio.create_task(self._run(self._sent(client, message)))
        return self

    def stream(self, stream: EventStream) -> Errand:
        """Follow a stream."""
        self._work = asyncio.create_task(self._run(self._streamed(stream, self._seconds)))
        return self

    async def _run(self, work: Awaitable[None]) -> None:
        try:
            await work
        except TimeoutError:
            self._fail(TIMEOUT)
        except DragomanError as error:
            self._fail(str(request_failed(error)))
        except Exception:
            logger.exception("a task could not be followed")
            self._fail("Request failed: internal error, the log says more")
        finally:
            self._news.set()

    def _fail(self, problem: str) -> None:
        self.problem = problem
        self._registry.lost(self.record, problem)

    async def _sent(self, client: Client, message: dict[str, Any]) -> None:
        async with asyncio.timeout(self._seconds):
            answer = await client.send(**message, wait=False)
        if isinstance(answer, Message):
            self.reply = answer
            return
        self._learn(answer)
        if not (answer.state.final or answer.state.waiting):
            await self._streamed(client.subscribe(answer), None)
            # What streams do not tell, such as history, the task itself does.
            self._learn(await client.get_task(answer.id))

    async def _streamed(self, stream: EventStream, seconds: float | None) -> None:
        async with aclosing(stream.__aiter__()) as events:
            while True:
                try:
                    async with asyncio.timeout(seconds):
                        event = await anext(events)
                except StopAsyncIteration:
                    break
                seconds = None  # it has answered
                self.events += 1
                self._text = event.text if event.replaces else self._text + event.text
                if isinstance(event.raw, Message) and event.task is None:
                    self.reply = event.raw
                elif event.task is not None:
                    self._learn(event.task)
                await self._heard(self.record, event)
                self._news.set()
                if event.state.final or event.state.waiting:
                    break

    def _learn(self, task: Task) -> None:
        self.record = self._registry.learn(self.record, task)
        self._news.set()

    # -- for who waits -------------------------------------------------------------------------------------------------

    @property
    def over(self) -> bool:
        """True when nothing more will come: it has ended, asks, or failed."""
        return self._work is None or self._work.done()

    @property
    def text(self) -> str:
        """The text of the answer so far."""
        return self._text

    async def known(self, seconds: float) -> bool:
        """Wait until the remote's id is known, or there is an answer or a problem."""
        return await self._until(lambda: self.record.remote_id is not None or self.over, seconds)

    async def settled(self, seconds: float, told: Callable[[Errand], Awaitable[None]] | None = None) -> bool:
        """Wait until it is over; `told` is called whenever there is news. False when time is up."""
        seen = -1

        async def news() -> None:
            nonlocal seen
            if told is not None and self.events != seen:
                seen = self.events
                await told(self)

        return await self._until(lambda: self.over, seconds, news)

    async def _until(
        self, done: Callable[[], bool], seconds: float, news: Callable[[], Awaitable[None]] | None = None
    ) -> bool:
        deadline = asyncio.get_running_loop().time() + seconds
        while not done():
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                return False
            self._news.clear()
            try:
                async with asyncio.timeout(left):
                    await self._news.wait()
            except TimeoutError:
                return done()
            if news is not None:
                await news()
        return True

    async def close(self) -> None:
        """Follow it no more; the task goes on."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.wait((self._work,))


class Errands:
    """All tasks that are being followed, by their record."""

    def __init__(self, registry: Registry, heard: Heard, answer_seconds: float) -> None:
        self._registry = registry
        self._heard = heard
        self._seconds = answer_seconds
        self._under_way: set[Errand] = set()

    def new(self, record: TaskRecord) -> Errand:
        """An errand for a task, to be begun."""
        self._under_way = {each for each in self._under_way if not each.over}
        errand = Errand(self._registry, record, self._heard, self._seconds)
        self._under_way.add(errand)
        return errand

    def of(self, record: TaskRecord) -> Errand | None:
        """Who follows a task, if anybody does."""
        return next((each for each in self._under_way if each.record is record and not each.over), None)

    async def close(self) -> None:
        """Follow nothing any more."""
        await asyncio.gather(*(each.close() for each in self._under_way))
