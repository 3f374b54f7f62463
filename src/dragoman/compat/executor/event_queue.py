"""Event queues between an executor and its subscribers: one queue per task, in this process."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, cast

from dragoman.compat.executor.result import NOT_FOUND

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

    from dragoman.compat.executor.result import Failure, Ok
    from dragoman.compat.executor.types import AnyEvent

QUEUE_LIMIT = 256


class Subscription:
    """The events of one subscriber, in order: iterate over it with `async for`.

    The iteration ends when the queue is closed and every event has been read.
    """

    def __init__(self, limit: int, leave: Callable[[], None]) -> None:
        self._limit = limit
        self._leave = leave
        self._events: deque[AnyEvent] = deque()
        self._arrived = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_ended = False

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> AnyEvent:
        while not self._events:
            if self._has_ended:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        self._has_room.set()
        return self._events.popleft()

    async def put(self, event: AnyEvent) -> None:
        """Add an event; waits while the subscription is full."""
        while len(self._events) >= self._limit and not self._has_ended:
            self._has_room.clear()
            await self._has_room.wait()
        if not self._has_ended:
            self._events.append(event)
            self._arrived.set()

    def end(self) -> None:
        """Accept no more events; queued ones can still be read."""
        self._has_ended = True
        self._arrived.set()
        self._has_room.set()

    def leave(self, _: object = None) -> None:
        """Unsubscribe and drop the unread events."""
        self._events.clear()
        self.end()
        self._leave()


class EventQueue:
    """The events of one task. Every subscriber gets all events since it subscribed, all in the same order.

    Nothing is dropped and nothing grows without bound: an executor that is `limit` events ahead of its slowest
    subscriber waits for it. A subscriber whose asyncio task has ended is removed.
    """

    def __init__(self, task_id: str, *, limit: int = QUEUE_LIMIT, on_close: Callable[[], object] | None = None) -> None:
        self.task_id = task_id
        self._limit = limit
        self._on_close = on_close
        self._forward: Callable[[AnyEvent], Awaitable[None]] | None = None
        self._subscriptions: dict[Hashable, Subscription] = {}
        self._order = asyncio.Lock()
        self._closed = asyncio.Event()

    @property
    def subscribers(self) -> int:
        """The number of subscribers; a task that the events are forwarded to counts as one."""
        return len(self._subscriptions) + (self._forward is not None)

    @property
    def closed(self) -> bool:
        """True when the queue accepts no more events."""
        return self._closed.is_set()

    async def enqueue(self, event: AnyEvent) -> Ok[AnyEvent] | Failure:
        """Send an event to every subscriber and to the task. On a closed queue the result is `not_found`.

        Raises, while an executor works on the task:
            InvalidAgentResponse: `event` is not an event.
            BadResponse: a file in it is not base64.
        """
        async with self._order:
            for subscription in list(self._subscriptions.values()):
                await subscription.put(event)
            if self.closed:
                return NOT_FOUND
            if self._forward is not None:
                await self._forward(event)
            return ("ok", event)

    def set_forward(self, take: Callable[[AnyEvent], Awaitable[None]]) -> None:
        """Set a callback that gets every event after the subscribers: the one that writes it to the task."""
        self._forward = take

    def subscribe(self, subscriber: Hashable | None = None) -> Subscription:
        """Subscribe to the events from now on, for the running asyncio task or another `subscriber`.

        A subscriber has one subscription: subscribing again returns it. On a closed queue it has already ended.
        """
        key = asyncio.current_task() if subscriber is None else subscriber
        existing = self._subscriptions.get(key)
        if existing is not None:
            return existing
        subscription = Subscription(self._limit, lambda: self._remove(key))
        if self.closed:
            subscription.end()
            return subscription
        self._subscriptions[key] = subscription
        if isinstance(key, asyncio.Task):
            cast("asyncio.Task[Any]", key).add_done_callback(subscription.leave)
        return subscription

    def close(self) -> None:
        """End every subscription. Closing again does nothing."""
        if self.closed:
            return
        self._closed.set()
        self._forward = None
        for subscriber, subscription in list(self._subscriptions.items()):
            subscription.end()
            self._remove(subscriber)
        if self._on_close is not None:
            self._on_close()

    async def done(self) -> None:
        """Wait until the queue is closed."""
        await self._closed.wait()

    def _remove(self, subscriber: Hashable) -> None:
        subscription = self._subscriptions.pop(subscriber, None)
        if subscription is not None and isinstance(subscriber, asyncio.Task):
            # A long-lived asyncio task must not accumulate callbacks of old subscriptions.
            cast("asyncio.Task[Any]", subscriber).remove_done_callback(subscription.leave)


class EventQueues:
    """The open queues by task id. A queue that is closed is removed."""

    def __init__(self, *, limit: int = QUEUE_LIMIT) -> None:
        self._limit = limit
        self._queues: dict[str, EventQueue] = {}

    def __len__(self) -> int:
        """The number of open queues."""
        return len(self._queues)

    def get_or_create(self, task_id: str) -> EventQueue:
        """Return the open queue of a task, or create one."""
        queue = self._queues.get(task_id)
        if queue is None:
            queue = EventQueue(task_id, limit=self._limit, on_close=lambda: self._queues.pop(task_id, None))
            self._queues[task_id] = queue
        return queue

    def lookup(self, task_id: str) -> Ok[EventQueue] | Failure:
        """Return the task's queue, or `not_found` when none is open."""
        queue = self._queues.get(task_id)
        return NOT_FOUND if queue is None else ("ok", queue)

    async def enqueue(self, task_id: str, event: AnyEvent) -> Ok[AnyEvent] | Failure:
        """Enqueue an event of a task; `not_found` when it has no open queue."""
        queue = self._queues.get(task_id)
        return NOT_FOUND if queue is None else await queue.enqueue(event)

    def subscribe(self, task_id: str, subscriber: Hashable | None = None) -> Ok[Subscription] | Failure:
        """Subscribe to a task; `not_found` when it has no open queue."""
        queue = self._queues.get(task_id)
        return NOT_FOUND if queue is None else ("ok", queue.subscribe(subscriber))

    def close(self, task_id: str) -> None:
        """Close a task's queue, if one is open."""
        queue = self._queues.get(task_id)
        if queue is not None:
            queue.close()
