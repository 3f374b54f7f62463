"""Follows remote tasks in the background, whether or not a tool call waits for them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from dragoman.client.client import follow
from dragoman.client.event import NumberedEvent, TaskAssembler
from dragoman.mcp.tools.tool import TIMEOUT, request_failed
from dragoman.mcp.webhooks import REFUSALS
from dragoman.model.error import A2AError, BadResponse, DragomanError, PushNotificationNotSupported, ResponseTooLarge
from dragoman.model.json import encode
from dragoman.model.message import Message
from dragoman.model.task import Task

if TYPE_CHECKING:
    from dragoman.client.client import Client
    from dragoman.client.event import Event
    from dragoman.client.follow import Events
    from dragoman.client.streams.stream import EventStream
    from dragoman.mcp.registry import Registry, TaskRecord

logger = logging.getLogger("dragoman.mcp")

# How many bytes of one task are accepted from a stream.
MAX_TASK_BYTES = 32 * 1024 * 1024
# The pause between two updates of a record: at least so many seconds, and a multiple of what the last one took.
_MIN_PAUSE = 0.2
_PAUSE_FACTOR = 10
SILENT = "Nothing was heard of the task for too long, it is not followed any more: call get_task to see how it is."
DROPPED = "Too many tasks are under way, this one is not followed any more: call get_task to see how it is."
# After so many seconds without an event a task is no longer followed.
IDLE_SECONDS = 3600.0
# How many tasks are followed, per agent and in all; beyond that the longest idle one is dropped.
MAX_FOLLOWED_PER_AGENT = 100
MAX_FOLLOWED = 500
# How many characters of the text are kept for progress reports.
_TAIL = 1000
# How many seconds `close` waits for background work.
FINISH_SECONDS = 2.0
# The longest pause between two polls, in seconds.
_MAX_POLL_PAUSE = 3.0
OnEvent = Callable[["TaskRecord", "Event"], None]
OnWebhookRefused = Callable[[str], None]


class PendingUpdate:
    """Batches updates of a task: assembling it costs more, the longer the task is."""

    def __init__(self, apply: Callable[[Task], None]) -> None:
        self._apply = apply
        self._newest: Event | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._not_before = 0.0
        self._size = 0

    def check_size(self, event: Event) -> None:
        """Count the size of an event. Raises ResponseTooLarge when the task has become too large."""
        self._size += len(encode(event.raw))
        if self._size <= MAX_TASK_BYTES:
            return
        # Events may have replaced earlier ones, so measure the task itself. Half of its size is counted from here on,
        # so that this is not repeated for every event.
        size = len(encode(event.task or event.raw))
        if size > MAX_TASK_BYTES:
            self.discard()
            text = f"the task has grown beyond {MAX_TASK_BYTES >> 20} MB: call get_task to see how it is"
            raise ResponseTooLarge(text, limit=MAX_TASK_BYTES)
        self._size = size // 2

    def schedule(self, event: Event) -> None:
        """Apply an event a little later, together with those that arrive meanwhile."""
        self._newest = event
        if self._timer is None:
            pause = max(0.0, self._not_before - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(pause, self.flush)

    def discard(self) -> None:
        """Drop what is pending: it has been applied otherwise, or is too large."""
        self._newest = None

    def flush(self) -> None:
        """Apply what is pending now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        event, self._newest = self._newest, None
        started = time.monotonic()
        task = None if event is None else event.task
        if task is not None:
            self._apply(task)
            finished = time.monotonic()
            self._not_before = finished + max(_MIN_PAUSE, _PAUSE_FACTOR * (finished - started))


class TaskFollower:
    """Follows one task until it ends or pauses, even while no tool call waits for it.

    It gives up after an hour without an event. Errors are not raised: `problem` says what went wrong.
    """

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
        # The response, if it is a bare message and not a task.
        self.reply: Message | None = None
        self.problem: str = ""
        # True when the task exceeded the limit: following it again would fail the same way.
        self.is_too_large = False
        # True once the agent has accepted the message: a later error only affects following the task.
        self.is_accepted = False
        # The action by which the user refused to answer, decline or cancel; empty otherwise. Nobody is asked again.
        self.refusal: str = ""
        self.events = 0
        # The time of the last event.
        self.last_event_at = time.monotonic()
        self._idle_timeout: asyncio.Timeout | None = None
        # The last characters of the answer so far.
        self.answer_tail = ""
        # True when the agent has switched to another task: that is accepted once.
        self._has_switched_task = False
        self._pending = PendingUpdate(self._update_record)
        # True while the message is retried without its webhook: if that succeeds, the webhook was the problem.
        self._retries_without_webhook = False
        self._change_count = 0
        self._changed = asyncio.Event()
        self._work: asyncio.Task[None] | None = None

    # -- starting ------------------------------------------------------------------------------------------------------

    def send(self, client: Client, **message: Any) -> TaskFollower:
        """Send a message without blocking, and follow the task it starts."""
        self._work = asyncio.create_task(self._run(lambda: self._send_and_follow(client, message)))
        return self

    def stream(self, stream: EventStream, without_webhook: Callable[[], EventStream] | None = None) -> TaskFollower:
        """Follow a stream. If the agent refuses the webhook of its message, `without_webhook` sends it again."""
        self._work = asyncio.create_task(self._run(lambda: self._stream_message(stream, without_webhook)))
        return self

    def follow(self, client: Client, *, previous: Task | None = None) -> TaskFollower:
        """Follow an existing task; only the idle timeout limits its silence.

        The question that `previous` asks has been answered: following goes on while the task still shows it.
        """
        self.is_accepted = True
        task_id = self.record.remote_id or self.record.id
        self._work = asyncio.create_task(self._run(lambda: self._resume(client, task_id, previous)))
        return self

    async def _run(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            async with asyncio.timeout(IDLE_SECONDS) as self._idle_timeout:
                await work()
        except TimeoutError:
            self._fail(SILENT if self._idle_timeout is not None and self._idle_timeout.expired() else TIMEOUT)
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
        # Some agents return the task as it was before they processed the answer to its question.
        if not _is_settled(response) or _same_question(response, previous):
            await self._follow_task(client, response.id, previous)

    async def _resume(self, client: Client, task_id: str, previous: Task | None) -> None:
        # Read the task first: it may have ended, and the response determines the interface to follow it with.
        with contextlib.suppress(A2AError):
            task = await client.get_task(task_id)
            if task != self.record.task:
                self._handle_task(task)
            if _is_settled(task) and not _same_question(task, previous):
                return
        await self._follow_task(client, task_id, previous)

    async def _follow_task(self, client: Client, task_id: str, previous: Task | None = None) -> None:
        follower = await follow(client, until_final=True, poll_pause=_MAX_POLL_PAUSE)
        events = follower.watch(task_id, self.record.task)
        if follower.polls:  # what a poll yields is the whole task
            await self._consume(events, None, previous)
            return
        problem: A2AError | None = None
        try:
            await self._consume(events, None, previous)
        except A2AError as error:
            problem = error  # a task that has just ended is refused too
        # Streams omit some members, such as the history: read the task. If that fails, the stream has to do.
        with contextlib.suppress(DragomanError, TimeoutError):
            async with asyncio.timeout(self._answer_seconds):
                self._handle_task(await client.get_task(task_id))
        if problem is not None and not _is_settled(self.record.task):
            raise problem

    async def _send_message(self, client: Client, message: dict[str, Any]) -> Task | Message:
        try:
            return await client.send(**message, wait=False)
        except REFUSALS:
            if message.get("push") is None:
                raise
        # If the agent accepts the message without the webhook, it was the webhook that it refused.
        plain = {key: value for key, value in message.items() if key != "push"}
        response = await client.send(**plain, wait=False)
        self._on_webhook_refused(self.record.agent_id)
        return response

    async def _stream_message(self, stream: EventStream, without_webhook: Callable[[], EventStream] | None) -> None:
        try:
            await self._consume(aiter(stream), self._answer_seconds)
        except REFUSALS as error:
            if isinstance(error, PushNotificationNotSupported):
                self._on_webhook_refused(self.record.agent_id)
            if without_webhook is None or self.events:
                raise
            self._retries_without_webhook = True
            await self._consume(aiter(without_webhook()), self._answer_seconds)

    async def _consume(self, events: Events, seconds: float | None, previous: Task | None = None) -> None:
        try:
            async with aclosing(events):
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
                    # The stream of a task that has ended ends by itself, and may correct the end before.
                    asks = event.state.waiting and event.kind in ("task", "status")
                    if asks and not _same_question(event.task, previous):
                        break
        finally:
            self._pending.flush()

    def _handle_event(self, event: Event) -> None:
        """Apply an event of a stream. Raises ResponseTooLarge when the task is too large."""
        self.answer_tail = (event.text if event.replaces else self.answer_tail + event.text)[-_TAIL:]
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
        """Apply a task that was read rather than streamed, and pass it on as an event."""
        self._update(task)
        self._on_event(self.record, TaskAssembler().add(NumberedEvent(0, task)))

    def _update(self, task: Task) -> None:
        if not task.id and self.record.remote_id is not None:
            raise BadResponse("the agent does not say how its task is")
        if self.record.remote_id not in (None, task.id):
            if self._has_switched_task:
                raise BadResponse("the agent keeps switching tasks on one stream")
            # The agent has switched to another task for this message.
            self._has_switched_task = True
            self.record = self._registry.start_task(self.record.agent_id)
        self.is_accepted = True
        self._update_record(task)

    def _update_record(self, task: Task) -> None:
        self.record = self._registry.update_task(self.record, task)
        self._notify()

    def _notify(self) -> None:
        """Wake the waiters and restart the idle timeout."""
        self.last_event_at = time.monotonic()
        if self._idle_timeout is not None and not self._idle_timeout.expired():
            self._idle_timeout.reschedule(asyncio.get_running_loop().time() + IDLE_SECONDS)
        self._change_count += 1
        self._changed.set()

    def _handle_reply(self, message: Message) -> None:
        self.is_accepted, self.reply = True, message
        self._registry.complete_with_message(self.record, message)

    # -- waiting -------------------------------------------------------------------------------------------------------

    @property
    def is_done(self) -> bool:
        """True when no more events follow: the task has ended or needs input, or following it failed."""
        return self._work is None or self._work.done()

    async def wait_for_id(self, seconds: float) -> bool:
        """Wait until the task has a remote id, or is done. False when time is up."""
        return await self._wait_until(lambda: self.record.remote_id is not None or self.is_done, seconds)

    async def wait(self, seconds: float, on_change: Callable[[TaskFollower], Awaitable[None]] | None = None) -> bool:
        """Wait until the task is done; `on_change` is called after every change. False when time is up."""
        reported = 0

        async def report() -> None:
            nonlocal reported
            if on_change is not None and self._change_count != reported:
                reported = self._change_count
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
            # Cleared before reporting, so that changes meanwhile are not missed.
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
        """Stop following the task and report that to its waiters."""
        self.problem = DROPPED
        await self.close()
        # Only now, when no update can overwrite it.
        self._registry.set_problem(self.record, DROPPED)

    async def close(self) -> None:
        """Stop following; the remote task continues."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.wait((self._work,))


def _is_settled(task: Task | None) -> bool:
    """True when a task has ended or paused."""
    return task is not None and (task.state.final or task.state.waiting)


def _same_question(task: Task | None, previous: Task | None) -> bool:
    """True when two tasks certainly ask the same question; False when there is nothing to compare."""
    if task is None or previous is None or task.state is not previous.state:
        return False
    (message_id, timestamp), (id_before, timestamp_before) = _question_keys(task), _question_keys(previous)
    if message_id and id_before:
        return message_id == id_before  # a quick agent asks two questions in one millisecond
    # Some agents have moved the question into the history already: the timestamp still matches.
    return bool(timestamp) and timestamp == timestamp_before


def _question_keys(task: Task) -> tuple[str | None, str | None]:
    message = task.status.message
    return message.message_id if message is not None else None, task.status.timestamp


def question_key(task: Task) -> str:
    """Return a key that distinguishes the questions of a task, as far as the agent distinguishes them."""
    return f"{task.state.name} {next(filter(None, _question_keys(task)), '')}"


class Followers:
    """All tasks that are being followed.

    `on_webhook_refused` is called with the id of an agent that does not accept the webhook of a message.
    """

    def __init__(
        self, registry: Registry, on_event: OnEvent, on_webhook_refused: OnWebhookRefused, answer_seconds: float
    ) -> None:
        self._registry = registry
        self._on_event = on_event
        self._on_webhook_refused = on_webhook_refused
        self._answer_seconds = answer_seconds
        self._active: set[TaskFollower] = set()
        self._background: set[asyncio.Task[None]] = set()

    def new(self, record: TaskRecord) -> TaskFollower:
        """Create a follower for a task, to be started. Beyond the limits, the longest idle follower is dropped."""
        self._active = {each for each in self._active if not each.is_done}
        same = [each for each in self._active if each.record.agent_id == record.agent_id]
        candidates = same if len(same) >= MAX_FOLLOWED_PER_AGENT else self._active
        if candidates is same or len(candidates) >= MAX_FOLLOWED:
            idle = min(candidates, key=lambda each: each.last_event_at)
            self._active.discard(idle)
            self.run_in_background(idle.drop())
        follower = TaskFollower(self._registry, record, self._on_event, self._answer_seconds, self._on_webhook_refused)
        self._active.add(follower)
        return follower

    @property
    def active_count(self) -> int:
        """The number of tasks that are being followed."""
        return sum(not each.is_done for each in self._active)

    def get(self, record: TaskRecord) -> TaskFollower | None:
        """Return the active follower of a task, or None."""
        return next((each for each in self._active if each.record is record and not each.is_done), None)

    async def close(self) -> None:
        """Stop all followers, after waiting a little for background work."""
        if self._background:
            await asyncio.wait([*self._background], timeout=FINISH_SECONDS)
        for each in self._background:
            each.cancel()
        await asyncio.gather(*(each.close() for each in [*self._active]), return_exceptions=True)
        await asyncio.gather(*self._background, return_exceptions=True)

    def run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work that no call waits for, such as a cancellation; `close` waits for it a little."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
