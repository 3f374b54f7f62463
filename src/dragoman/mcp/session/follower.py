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
MAX_TASK_BYTES = 32 * 1024 * 1024
# At least so many seconds pass between two times, and so many times as long as it took.
_MIN_PAUSE = 0.2
_PAUSE_FACTOR = 10


class PendingUpdate:
    """Holds back what is new in a task: to put it together costs more, the longer the task is."""

    def __init__(self, apply: Callable[[Task], None]) -> None:
        self._apply = apply
        self._newest: Event | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._next = 0.0
        self._size = 0

    def check_size(self, event: Event) -> None:
        """Count what an event brings. Raises ResponseTooLarge when the task has become too large."""
        self._size += len(encode(event.raw))
        if self._size <= MAX_TASK_BYTES:
            return
        # What came may have replaced what came before. Half of it counts: not every event is worth this look.
        size = len(encode(event.task or event.raw))
        if size > MAX_TASK_BYTES:
            self.discard()
            text = f"the task has grown beyond {MAX_TASK_BYTES >> 20} MB: call get_task to see how it is"
            raise ResponseTooLarge(text, limit=MAX_TASK_BYTES)
        self._size = size // 2

    def schedule(self, event: Event) -> None:
        """Learn of an event a little later, together with those that come meanwhile."""
        self._newest = event
        if self._timer is None:
            pause = max(0.0, self._next - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(pause, self.flush)

    def discard(self) -> None:
        """Nothing is to be learned any more: all that was held is known, or too much."""
        self._newest = None

    def flush(self) -> None:
        """Learn what is held, now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        event, self._newest = self._newest, None
        started = time.monotonic()
        task = None if event is None else event.task
        if task is not None:
            self._apply(task)
            finished = time.monotonic()
            self._next = finished + max(_MIN_PAUSE, _PAUSE_FACTOR * (finished - started))


logger = logging.getLogger("dragoman.mcp")
SILENT = "Nothing was heard of the task for too long, it is not followed any more: call get_task to see how it is."
DROPPED = "Too many tasks are under way, this one is not followed any more: call get_task to see how it is."
# After so long without an event nobody follows a task any more.
IDLE_SECONDS = 3600.0
# So many are followed, of one agent and in all; then the one whose last event is oldest gives way.
MAX_FOLLOWED_PER_AGENT = 100
MAX_FOLLOWED = 500
# Of the text, progress tells only the end.
_TAIL = 1000
# For so long the end is put off for what a host left behind.
FINISH_SECONDS = 2.0
# Where a task can only be looked at, so many seconds pass between two looks at most.
_MAX_POLL_PAUSE = 3.0
OnEvent = Callable[["TaskRecord", "Event"], None]
OnWebhookRefused = Callable[[str], None]


class TaskFollower:
    """One task that is followed until it ends or asks. It goes on when nobody waits for it."""

    def __init__(
        self,
        registry: Registry,
        record: TaskRecord,
        on_event: OnEvent,
        answer_seconds: float,
        on_webhook_refused: OnWebhookRefused,
    ) -> None:
        self._registry = registry
        self._on_event = on_event
        self._on_webhook_refused = on_webhook_refused
        self._answer_seconds = answer_seconds
        self.record = record
        # The answer, where it is a bare message and no task.
        self.reply: Message | None = None
        self.problem: str = ""
        # True when the task brought more than the limit: to follow it again would end the same.
        self.is_too_large = False
        # True once the agent has taken the message in: what goes wrong later is only that nobody learns of it.
        self.is_accepted = False
        # How the user turned the question down, if so: nobody is asked again.
        self.refusal: str = ""
        self.events = 0
        # When its last event came.
        self.last_event_at = time.monotonic()
        self._limit: asyncio.Timeout | None = None
        # The end of the answer's text so far.
        self.text = ""
        # True when the agent has made another task of the message: once may be.
        self._has_switched_task = False
        self._pending = PendingUpdate(self._update_record)
        # True while the message is on its way again without the webhook: if it is taken, that was refused.
        self._retries_without_webhook = False
        self._changes = 0
        self._changed = asyncio.Event()
        self._work: asyncio.Task[None] | None = None

    # -- beginning -----------------------------------------------------------------------------------------------------

    def send(self, client: Client, **message: Any) -> TaskFollower:
        """Send a message, do not ask the agent to wait, and follow the task it becomes."""
        self._work = asyncio.create_task(self._run(lambda: self._send_and_follow(client, message)))
        return self

    def stream(self, stream: EventStream, without_webhook: Callable[[], EventStream] | None = None) -> TaskFollower:
        """Follow a stream. If it is a message with a webhook, `again` sends that without, should it be refused."""
        self._work = asyncio.create_task(self._run(lambda: self._stream_message(stream, without_webhook)))
        return self

    def follow(self, client: Client, *, previous: Task | None = None) -> TaskFollower:
        """Follow a task that is known already, however long it says nothing; `past` a question as it is there."""
        self.is_accepted = True
        task_id = self.record.remote_id or self.record.id
        self._work = asyncio.create_task(self._run(lambda: self._resume(client, task_id, previous)))
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
            self._changed.set()

    def _fail(self, problem: str) -> None:
        self.problem = problem
        self._registry.set_problem(self.record, problem)

    async def _send_and_follow(self, client: Client, message: dict[str, Any]) -> None:
        previous = self.record.task
        async with asyncio.timeout(self._answer_seconds):
            response = await self._send_message(client, message)
        if isinstance(response, Message):
            self._handle_reply(response)
            return
        self._handle_task(response)
        # Some show the task as it was before they have read the answer to its question.
        if not _is_settled(response) or _same_question(response, previous):
            await self._follow_task(client, response.id, previous)

    async def _resume(self, client: Client, task_id: str, previous: Task | None) -> None:
        # A look first: it may have ended, and until then nobody knows how this agent is to be followed.
        with contextlib.suppress(A2AError):
            task = await client.get_task(task_id)
            if task != self.record.task:
                self._handle_task(task)
            if _is_settled(task) and not _same_question(task, previous):
                return
        await self._follow_task(client, task_id, previous)

    async def _follow_task(self, client: Client, task_id: str, previous: Task | None = None) -> None:
        connection = await client._open()  # pyright: ignore[reportPrivateUsage]
        if not connection.can_resubscribe:
            await self._poll(client, connection.clock, task_id, previous)
            return
        problem: A2AError | None = None
        try:
            await self._consume(client.subscribe(task_id), None, previous)
        except A2AError as error:
            problem = error  # also when it has just ended
        # What streams do not tell, such as history, the task itself does. Who cannot say has told enough.
        with contextlib.suppress(DragomanError, TimeoutError):
            async with asyncio.timeout(self._answer_seconds):
                self._handle_task(await client.get_task(task_id))
        if problem is not None and not _is_settled(self.record.task):
            raise problem

    async def _poll(self, client: Client, clock: Clock, task_id: str, previous: Task | None) -> None:
        """Look at a task now and then, where a further stream of it may do harm."""
        last_task = self.record.task
        async with aclosing(poll_task(lambda: client.get_task(task_id), clock, _MAX_POLL_PAUSE)) as tasks:
            async for task in tasks:
                if task != last_task:
                    last_task = task
                    self.events += 1
                    self.text = task.text[-_TAIL:] if task.artifacts else ""
                    self._handle_task(task)
                if task.state.final or (task.state.waiting and not _same_question(task, previous)):
                    return

    async def _send_message(self, client: Client, message: dict[str, Any]) -> Task | Message:
        try:
            return await client.send(**message, wait=False)
        except REFUSALS:
            if message.get("push") is None:
                raise
        # If it is taken without the webhook, the webhook was what the agent refused.
        plain = {key: value for key, value in message.items() if key != "push"}
        response = await client.send(**plain, wait=False)
        self._on_webhook_refused(self.record.agent_id)
        return response

    async def _stream_message(self, stream: EventStream, without_webhook: Callable[[], EventStream] | None) -> None:
        try:
            await self._consume(stream, self._answer_seconds)
        except REFUSALS as error:
            if isinstance(error, PushNotificationNotSupported):
                self._on_webhook_refused(self.record.agent_id)
            if without_webhook is None or self.events:
                raise
            self._retries_without_webhook = True
            await self._consume(without_webhook(), self._answer_seconds)

    async def _consume(self, stream: EventStream, seconds: float | None, previous: Task | None = None) -> None:
        try:
            async with aclosing(stream.__aiter__()) as events:
                while True:
                    try:
                        async with asyncio.timeout(seconds):
                            event = await anext(events)
                    except StopAsyncIteration:
                        break
                    seconds = None  # it has answered
                    if self._retries_without_webhook:
                        self._retries_without_webhook = False
                        self._on_webhook_refused(self.record.agent_id)
                    self.events += 1
                    self._handle_event(event)
                    self._on_event(self.record, event)
                    self._notify()
                    asks = event.state.waiting and event.kind in ("task", "status")
                    if event.state.final or (asks and not _same_question(event.task, previous)):
                        break
        finally:
            self._pending.flush()

    def _handle_event(self, event: Event) -> None:
        """Take in an event of a stream. Raises ResponseTooLarge when that is too much."""
        self.text = (event.text if event.replaces else self.text + event.text)[-_TAIL:]
        self._pending.check_size(event)
        has_remote_task = self.record.remote_id is not None and self.is_accepted and self.reply is None
        if has_remote_task and event.kind in ("artifact", "message"):
            self._pending.schedule(event)
            return
        self._pending.discard()
        task = event.task
        if task is not None:
            self._update(task)
        elif isinstance(event.raw, Message):
            self._handle_reply(event.raw)

    def _handle_task(self, task: Task) -> None:
        """A task that was not streamed is news as well."""
        self._update(task)
        self._on_event(self.record, TaskAssembler().add(NumberedEvent(0, task)))

    def _update(self, task: Task) -> None:
        if not task.id and self.record.remote_id is not None:
            raise BadResponse("the agent does not say how its task is")
        if self.record.remote_id not in (None, task.id):
            if self._has_switched_task:
                raise BadResponse("the agent tells of ever other tasks on one stream")
            # The agent has made another task of the message.
            self._has_switched_task = True
            self.record = self._registry.start_task(self.record.agent_id)
        self.is_accepted = True
        self._update_record(task)

    def _update_record(self, task: Task) -> None:
        self.record = self._registry.update_task(self.record, task)
        self._notify()

    def _notify(self) -> None:
        """Wake who waits."""
        self.last_event_at = time.monotonic()
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(asyncio.get_running_loop().time() + IDLE_SECONDS)
        self._changes += 1
        self._changed.set()

    def _handle_reply(self, message: Message) -> None:
        self.is_accepted, self.reply = True, message
        self._registry.complete_with_message(self.record, message)

    # -- for who waits -------------------------------------------------------------------------------------------------

    @property
    def is_done(self) -> bool:
        """True when nothing more will come: it has ended, asks, or failed."""
        return self._work is None or self._work.done()

    async def wait_for_id(self, seconds: float) -> bool:
        """Wait until the remote's id is known, or there is an answer or a problem."""
        return await self._wait_until(lambda: self.record.remote_id is not None or self.is_done, seconds)

    async def wait(self, seconds: float, on_change: Callable[[TaskFollower], Awaitable[None]] | None = None) -> bool:
        """Wait until it is over; `on_change` is called whenever there is news. False when time is up."""
        reported = 0

        async def report() -> None:
            nonlocal reported
            if on_change is not None and self._changes != reported:
                reported = self._changes
                await on_change(self)

        return await self._wait_until(lambda: self.is_done, seconds, report)

    async def _wait_until(
        self, done: Callable[[], bool], seconds: float, report: Callable[[], Awaitable[None]] | None = None
    ) -> bool:
        deadline = asyncio.get_running_loop().time() + seconds
        while not done():
            remaining = deadline - asyncio.get_running_loop().time()
            if remaining <= 0:
                return False
            # Before the news are told: what happens meanwhile is not missed.
            self._changed.clear()
            if report is not None:
                await report()
            try:
                async with asyncio.timeout(remaining):
                    await self._changed.wait()
            except TimeoutError:
                return done()
        if report is not None:
            await report()
        return True

    async def drop(self) -> None:
        """Follow it no more, and say so to who waits."""
        self.problem = DROPPED
        await self.close()
        # Now, when nothing more is learned of it.
        self._registry.set_problem(self.record, DROPPED)

    async def close(self) -> None:
        """Follow it no more; the task goes on."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.wait((self._work,))


def _is_settled(task: Task | None) -> bool:
    """True when nothing more comes of a task by itself."""
    return task is not None and (task.state.final or task.state.waiting)


def _same_question(task: Task | None, previous: Task | None) -> bool:
    """True when it is known to be the same; of an agent that tells no two apart, nobody can know."""
    if task is None or previous is None or task.state is not previous.state:
        return False
    # Some have put the question into the history already: then the time is the same still.
    return any(
        key and key == before for key, before in zip(_question_keys(task), _question_keys(previous), strict=True)
    )


def _question_keys(task: Task) -> tuple[str | None, str | None]:
    message = task.status.message
    return message.message_id if message is not None else None, task.status.timestamp


def question_key(task: Task) -> str:
    """What tells one question of a task from the next, as far as the agent does."""
    return f"{task.state.name} {next(filter(None, _question_keys(task)), '')}"


class Followers:
    """All tasks that are being followed, by their record.

    `refused` is called with the id of an agent that does not take the webhook it was given.
    """

    def __init__(
        self, registry: Registry, on_event: OnEvent, on_webhook_refused: OnWebhookRefused, answer_seconds: float
    ) -> None:
        self._registry = registry
        self._on_event = on_event
        self._on_webhook_refused = on_webhook_refused
        self._answer_seconds = answer_seconds
        self._active: set[TaskFollower] = set()
        self._finishing: set[asyncio.Task[None]] = set()

    def new(self, record: TaskRecord) -> TaskFollower:
        """A follower for a task, to be started. If there are too many, it takes the place of the most silent one."""
        self._active = {each for each in self._active if not each.is_done}
        same = [each for each in self._active if each.record.agent_id == record.agent_id]
        candidates = same if len(same) >= MAX_FOLLOWED_PER_AGENT else self._active
        if candidates is same or len(candidates) >= MAX_FOLLOWED:
            idle = min(candidates, key=lambda each: each.last_event_at)
            self._active.discard(idle)
            self.finish_later(idle.drop())
        follower = TaskFollower(self._registry, record, self._on_event, self._answer_seconds, self._on_webhook_refused)
        self._active.add(follower)
        return follower

    @property
    def active_count(self) -> int:
        """How many are being followed."""
        return sum(not each.is_done for each in self._active)

    def get(self, record: TaskRecord) -> TaskFollower | None:
        """Who follows a task, if anybody does."""
        return next((each for each in self._active if each.record is record and not each.is_done), None)

    async def close(self) -> None:
        """Follow nothing any more."""
        if self._finishing:
            await asyncio.wait([*self._finishing], timeout=FINISH_SECONDS)
        for each in self._finishing:
            each.cancel()
        await asyncio.gather(*(each.close() for each in [*self._active]), return_exceptions=True)
        await asyncio.gather(*self._finishing, return_exceptions=True)

    def finish_later(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something for a host that is gone already."""
        task = asyncio.create_task(work)
        self._finishing.add(task)
        task.add_done_callback(self._finishing.discard)
