"""Follows the tasks of agents in the background, whoever waits for them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from dragoman.client.event import NumberedEvent, TaskAssembler
from dragoman.client.follow import poll_task
from dragoman.mcp.tools.tool import TIMEOUT, request_failed
from dragoman.mcp.webhooks import REFUSALS
from dragoman.model.error import A2AError, BadResponse, DragomanError, PushNotificationNotSupported, ResponseTooLarge
from dragoman.model.json import encode
from dragoman.model.message import Message
from dragoman.model.task import Task

if TYPE_CHECKING:
    from dragoman.client.client import Client, EventStream
    from dragoman.client.event import Event
    from dragoman.clock import Clock
    from dragoman.mcp.registry import Registry, TaskRecord

# So many bytes of a task are taken in from a stream.
MOST_BYTES = 32 * 1024 * 1024
# At least so many seconds pass between two times, and so many times as long as it took.
_PAUSE = 0.2
_SHARE = 10


class PendingUpdate:
    """Holds back what is new in a task: to put it together costs more, the longer the task is."""

    def __init__(self, learn: Callable[[Task], None]) -> None:
        self._learn = learn
        self._newest: Event | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._next = 0.0
        self._brought = 0

    def weigh(self, event: Event) -> None:
        """Count what an event brings. Raises ResponseTooLarge when the task has become too large."""
        self._brought += len(encode(event.raw))
        if self._brought <= MOST_BYTES:
            return
        # What came may have replaced what came before. Half of it counts: not every event is worth this look.
        weight = len(encode(event.task or event.raw))
        if weight > MOST_BYTES:
            self.forget()
            text = f"the task has grown beyond {MOST_BYTES >> 20} MB: call get_task to see how it is"
            raise ResponseTooLarge(text, limit=MOST_BYTES)
        self._brought = weight // 2

    def hold(self, event: Event) -> None:
        """Learn of an event a little later, together with those that come meanwhile."""
        self._newest = event
        if self._timer is None:
            pause = max(0.0, self._next - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(pause, self.settle)

    def forget(self) -> None:
        """Nothing is to be learned any more: all that was held is known, or too much."""
        self._newest = None

    def settle(self) -> None:
        """Learn what is held, now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        event, self._newest = self._newest, None
        begun = time.monotonic()
        task = None if event is None else event.task
        if task is not None:
            self._learn(task)
            ended = time.monotonic()
            self._next = ended + max(_PAUSE, _SHARE * (ended - begun))


logger = logging.getLogger("dragoman.mcp")
SILENT = "Nothing was heard of the task for too long, it is not followed any more: call get_task to see how it is."
DROPPED = "Too many tasks are under way, this one is not followed any more: call get_task to see how it is."
# After so long without an event nobody follows a task any more.
IDLE_SECONDS = 3600.0
# So many are followed, of one agent and in all; then the one whose last event is oldest gives way.
MOST_OF_ONE_AGENT = 100
MOST_IN_ALL = 500
# Of the text, progress tells only the end.
_TAIL = 1000
# For so long the end is put off for what a host left behind.
FINISH_SECONDS = 2.0
# Where a task can only be looked at, so many seconds pass between two looks at most.
_LONGEST_PAUSE = 3.0
OnEvent = Callable[["TaskRecord", "Event"], None]
Refused = Callable[[str], None]


class TaskFollower:
    """One task that is followed until it ends or asks. It goes on when nobody waits for it."""

    def __init__(
        self, registry: Registry, record: TaskRecord, on_event: OnEvent, answer_seconds: float, refused: Refused
    ) -> None:
        self._registry = registry
        self._on_event = on_event
        self._refused = refused
        self._seconds = answer_seconds
        self.record = record
        # The answer, where it is a bare message and no task.
        self.reply: Message | None = None
        self.problem: str = ""
        # True when the task brought more than the limit: to follow it again would end the same.
        self.is_too_large = False
        # True once the agent has taken the message in: what goes wrong later is only that nobody learns of it.
        self.taken = False
        # How the user turned the question down, if so: nobody is asked again.
        self.turned_down: str = ""
        self.events = 0
        # When its last event came.
        self.last_event_at = time.monotonic()
        self._limit: asyncio.Timeout | None = None
        # The end of the answer's text so far.
        self.text = ""
        # True when the agent has made another task of the message: once may be.
        self._moved = False
        self._pending = PendingUpdate(self._learn_more)
        # True while the message is on its way again without the webhook: if it is taken, that was refused.
        self._doubts_webhook = False
        self._changes = 0
        self._news = asyncio.Event()
        self._work: asyncio.Task[None] | None = None

    # -- beginning -----------------------------------------------------------------------------------------------------

    def send(self, client: Client, **message: Any) -> TaskFollower:
        """Send a message, do not ask the agent to wait, and follow the task it becomes."""
        self._work = asyncio.create_task(self._run(lambda: self._sent(client, message)))
        return self

    def stream(self, stream: EventStream, again: Callable[[], EventStream] | None = None) -> TaskFollower:
        """Follow a stream. If it is a message with a webhook, `again` sends that without, should it be refused."""
        self._work = asyncio.create_task(self._run(lambda: self._begun(stream, again)))
        return self

    def follow(self, client: Client, *, past: Task | None = None) -> TaskFollower:
        """Follow a task that is known already, however long it says nothing; `past` a question as it is there."""
        self.taken = True
        task_id = self.record.remote_id or self.record.id
        self._work = asyncio.create_task(self._run(lambda: self._taken_up(client, task_id, past)))
        return self

    async def _run(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            async with asyncio.timeout(IDLE_SECONDS) as self._limit:
                await work()
        except TimeoutError:
            self._fail(SILENT if self._limit is not None and self._limit.expired() else TIMEOUT)
        except DragomanError as error:
            self.is_too_large = isinstance(error, ResponseTooLarge)
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
        past = self.record.task
        async with asyncio.timeout(self._seconds):
            answer = await self._answer(client, message)
        if isinstance(answer, Message):
            self._replied(answer)
            return
        self._take_task(answer)
        # Some show the task as it was before they have read the answer to its question.
        if not _rests(answer) or _same_question(answer, past):
            await self._followed(client, answer.id, past)

    async def _taken_up(self, client: Client, task_id: str, past: Task | None) -> None:
        # A look first: it may have ended, and until then nobody knows how this agent is to be followed.
        with contextlib.suppress(A2AError):
            task = await client.get_task(task_id)
            if task != self.record.task:
                self._take_task(task)
            if _rests(task) and not _same_question(task, past):
                return
        await self._followed(client, task_id, past)

    async def _followed(self, client: Client, task_id: str, past: Task | None = None) -> None:
        connection = await client._open()  # pyright: ignore[reportPrivateUsage]
        if not connection.can_resubscribe:
            await self._polled(client, connection.clock, task_id, past)
            return
        problem: A2AError | None = None
        try:
            await self._streamed(client.subscribe(task_id), None, past)
        except A2AError as error:
            problem = error  # also when it has just ended
        # What streams do not tell, such as history, the task itself does. Who cannot say has told enough.
        with contextlib.suppress(DragomanError, TimeoutError):
            async with asyncio.timeout(self._seconds):
                self._take_task(await client.get_task(task_id))
        if problem is not None and not _rests(self.record.task):
            raise problem

    async def _polled(self, client: Client, clock: Clock, task_id: str, past: Task | None) -> None:
        """Look at a task now and then, where a further stream of it may do harm."""
        seen = self.record.task
        async with aclosing(poll_task(lambda: client.get_task(task_id), clock, _LONGEST_PAUSE)) as looks:
            async for task in looks:
                if task != seen:
                    seen = task
                    self.events += 1
                    self.text = task.text[-_TAIL:] if task.artifacts else ""
                    self._take_task(task)
                if task.state.final or (task.state.waiting and not _same_question(task, past)):
                    return

    async def _answer(self, client: Client, message: dict[str, Any]) -> Task | Message:
        try:
            return await client.send(**message, wait=False)
        except REFUSALS:
            if message.get("push") is None:
                raise
        # If it is taken without the webhook, the webhook was what the agent refused.
        plain = {key: value for key, value in message.items() if key != "push"}
        answer = await client.send(**plain, wait=False)
        self._refused(self.record.agent_id)
        return answer

    async def _begun(self, stream: EventStream, again: Callable[[], EventStream] | None) -> None:
        try:
            await self._streamed(stream, self._seconds)
        except REFUSALS as error:
            if isinstance(error, PushNotificationNotSupported):
                self._refused(self.record.agent_id)
            if again is None or self.events:
                raise
            self._doubts_webhook = True
            await self._streamed(again(), self._seconds)

    async def _streamed(self, stream: EventStream, seconds: float | None, past: Task | None = None) -> None:
        try:
            async with aclosing(stream.__aiter__()) as events:
                while True:
                    try:
                        async with asyncio.timeout(seconds):
                            event = await anext(events)
                    except StopAsyncIteration:
                        break
                    seconds = None  # it has answered
                    if self._doubts_webhook:
                        self._doubts_webhook = False
                        self._refused(self.record.agent_id)
                    self.events += 1
                    self._take(event)
                    self._on_event(self.record, event)
                    self._changed()
                    asks = event.state.waiting and event.kind in ("task", "status")
                    if event.state.final or (asks and not _same_question(event.task, past)):
                        break
        finally:
            self._pending.settle()

    def _take(self, event: Event) -> None:
        """Take in an event of a stream. Raises ResponseTooLarge when that is too much."""
        self.text = (event.text if event.replaces else self.text + event.text)[-_TAIL:]
        self._pending.weigh(event)
        is_known = self.record.remote_id is not None and self.taken and self.reply is None
        if is_known and event.kind in ("artifact", "message"):
            self._pending.hold(event)
            return
        self._pending.forget()
        task = event.task
        if task is not None:
            self._learn(task)
        elif isinstance(event.raw, Message):
            self._replied(event.raw)

    def _take_task(self, task: Task) -> None:
        """A task that was not streamed is news as well."""
        self._learn(task)
        self._on_event(self.record, TaskAssembler().add(NumberedEvent(0, task)))

    def _learn(self, task: Task) -> None:
        if not task.id and self.record.remote_id is not None:
            raise BadResponse("the agent does not say how its task is")
        if self.record.remote_id not in (None, task.id):
            if self._moved:
                raise BadResponse("the agent tells of ever other tasks on one stream")
            # The agent has made another task of the message.
            self._moved = True
            self.record = self._registry.begin(self.record.agent_id)
        self.taken = True
        self._learn_more(task)

    def _learn_more(self, task: Task) -> None:
        self.record = self._registry.learn(self.record, task)
        self._changed()

    def _changed(self) -> None:
        """Wake who waits."""
        self.last_event_at = time.monotonic()
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(asyncio.get_running_loop().time() + IDLE_SECONDS)
        self._changes += 1
        self._news.set()

    def _replied(self, message: Message) -> None:
        self.taken, self.reply = True, message
        self._registry.reply(self.record, message)

    # -- for who waits -------------------------------------------------------------------------------------------------

    @property
    def over(self) -> bool:
        """True when nothing more will come: it has ended, asks, or failed."""
        return self._work is None or self._work.done()

    async def known(self, seconds: float) -> bool:
        """Wait until the remote's id is known, or there is an answer or a problem."""
        return await self._until(lambda: self.record.remote_id is not None or self.over, seconds)

    async def wait(self, seconds: float, on_change: Callable[[TaskFollower], Awaitable[None]] | None = None) -> bool:
        """Wait until it is over; `on_change` is called whenever there is news. False when time is up."""
        seen = 0

        async def news() -> None:
            nonlocal seen
            if on_change is not None and self._changes != seen:
                seen = self._changes
                await on_change(self)

        return await self._until(lambda: self.over, seconds, news)

    async def _until(
        self, done: Callable[[], bool], seconds: float, news: Callable[[], Awaitable[None]] | None = None
    ) -> bool:
        deadline = asyncio.get_running_loop().time() + seconds
        while not done():
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                return False
            # Before the news are told: what happens meanwhile is not missed.
            self._news.clear()
            if news is not None:
                await news()
            try:
                async with asyncio.timeout(left):
                    await self._news.wait()
            except TimeoutError:
                return done()
        if news is not None:
            await news()
        return True

    async def drop(self) -> None:
        """Follow it no more, and say so to who waits."""
        self.problem = DROPPED
        await self.close()
        # Now, when nothing more is learned of it.
        self._registry.lost(self.record, DROPPED)

    async def close(self) -> None:
        """Follow it no more; the task goes on."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.wait((self._work,))


def _rests(task: Task | None) -> bool:
    """True when nothing more comes of a task by itself."""
    return task is not None and (task.state.final or task.state.waiting)


def _same_question(task: Task | None, past: Task | None) -> bool:
    """True when it is known to be the same; of an agent that tells no two apart, nobody can know."""
    if task is None or past is None or task.state is not past.state:
        return False
    # Some have put the question into the history already: then the time is the same still.
    return any(mark and mark == before for mark, before in zip(_marks(task), _marks(past), strict=True))


def _marks(task: Task) -> tuple[str | None, str | None]:
    message = task.status.message
    return message.message_id if message is not None else None, task.status.timestamp


def question_of(task: Task) -> str:
    """What tells one question of a task from the next, as far as the agent does."""
    return f"{task.state.name} {next(filter(None, _marks(task)), '')}"


class Followers:
    """All tasks that are being followed, by their record.

    `refused` is called with the id of an agent that does not take the webhook it was given.
    """

    def __init__(self, registry: Registry, on_event: OnEvent, refused: Refused, answer_seconds: float) -> None:
        self._registry = registry
        self._on_event = on_event
        self._refused = refused
        self._seconds = answer_seconds
        self._under_way: set[TaskFollower] = set()
        self._finishing: set[asyncio.Task[None]] = set()

    def new(self, record: TaskRecord) -> TaskFollower:
        """A follower for a task, to be started. If there are too many, it takes the place of the most silent one."""
        self._under_way = {each for each in self._under_way if not each.over}
        same = [each for each in self._under_way if each.record.agent_id == record.agent_id]
        crowd = same if len(same) >= MOST_OF_ONE_AGENT else self._under_way
        if crowd is same or len(crowd) >= MOST_IN_ALL:
            idle = min(crowd, key=lambda each: each.last_event_at)
            self._under_way.discard(idle)
            self.finish_later(idle.drop())
        follower = TaskFollower(self._registry, record, self._on_event, self._seconds, self._refused)
        self._under_way.add(follower)
        return follower

    @property
    def under_way(self) -> int:
        """How many are being followed."""
        return sum(not each.over for each in self._under_way)

    def of(self, record: TaskRecord) -> TaskFollower | None:
        """Who follows a task, if anybody does."""
        return next((each for each in self._under_way if each.record is record and not each.over), None)

    async def close(self) -> None:
        """Follow nothing any more."""
        if self._finishing:
            await asyncio.wait([*self._finishing], timeout=FINISH_SECONDS)
        for each in self._finishing:
            each.cancel()
        await asyncio.gather(*(each.close() for each in [*self._under_way]), return_exceptions=True)
        await asyncio.gather(*self._finishing, return_exceptions=True)

    def finish_later(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something for a host that is gone already."""
        task = asyncio.create_task(work)
        self._finishing.add(task)
        task.add_done_callback(self._finishing.discard)
