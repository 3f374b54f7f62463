"""Session events: plain JSON objects with a `type`, sent by a process manager to its subscribers.

The types `session_started assistant thinking tool_status result session_exited session_stopped error` are also used by
third-party process managers; `text artifact ask` are additions. Subscribers ignore unknown types.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, cast

logger = logging.getLogger("dragoman.process")

Event = Mapping[str, Any]
# Called with the session id and the event.
Callback = Callable[[str, Event], object]

# Error type that blames the message rather than the program.
REJECTED = "rejected"
# The status of a task is sent again and again: it is no place for a whole log.
MAX_PROBLEM = 4000
END_TYPES = ("session_exited", "session_stopped", "error")


def started(pid: int | None = None) -> Event:
    """The program has started."""
    return {"type": "session_started", "pid": pid}


def text(chunk: str) -> Event:
    """A chunk of the answer, streamed unchanged."""
    return {"type": "text", "text": chunk}


def assistant(content: str) -> Event:
    """A whole message of the agent."""
    return {"type": "assistant", "message": {"content": content}}


def thinking(about: str | None = None) -> Event:
    """The agent is working, optionally with a text about it."""
    return {"type": "thinking", "thinking": True, **({"text": about} if about else {})}


def tool_status(status: str) -> Event:
    """What the agent is doing right now."""
    return {"type": "tool_status", "statusMessage": status}


def artifact(content: Mapping[str, Any]) -> Event:
    """A result besides the answer: `name`, and one of `text`, `data`, `base64` (bytes) and `file` (a path)."""
    return {"type": "artifact", "artifact": dict(content)}


def ask(question: str) -> Event:
    """The program asks a question and waits for the answer."""
    return {"type": "ask", "question": question}


def result(value: Any, *, remembers: str | None = None) -> Event:
    """The final answer. `remembers` is the program's own id of the conversation, used to resume it later."""
    return {"type": "result", "result": value, **({"remembers": remembers} if remembers else {})}


def exited(code: int | None = 0) -> Event:
    """The program has exited by itself."""
    return {"type": "session_exited", "exitCode": code}


def stopped(reason: str = "") -> Event:
    """The program was stopped."""
    return {"type": "session_stopped", "reason": reason}


def error(message: str, kind: str = "process_error") -> Event:
    """The program has failed."""
    return {"type": "error", "error": {"message": message, "type": kind}}


def content_of(event: Event) -> str:
    """Return the text of an `assistant` event: the content of its message or its own, or the first text in there."""
    message: Any = event.get("message")
    content: Any = cast("Mapping[str, Any]", message if isinstance(message, Mapping) else event).get("content")
    if isinstance(content, str):
        return content
    blocks = cast("Sequence[Any]", content) if isinstance(content, (list, tuple)) else ()
    for block in blocks:
        block_text: Any = cast("Mapping[str, Any]", block).get("text") if isinstance(block, Mapping) else None
        if isinstance(block_text, str) and block_text:
            return block_text
    return ""


def is_rejected(event: Event) -> bool:
    """Return True for an `error` event that rejects the message."""
    details: Any = event.get("error")
    return isinstance(details, Mapping) and cast("Mapping[str, Any]", details).get("type") == REJECTED


def problem_of(event: Event) -> str:
    """Return the message of an `error` event, cut after `MAX_PROBLEM` characters."""
    details: Any = event.get("error")
    message: Any = cast("Mapping[str, Any]", details).get("message") if isinstance(details, Mapping) else details
    if not isinstance(message, str) or not message:
        return "the program failed"
    return message if len(message) <= MAX_PROBLEM else f"{message[:MAX_PROBLEM]} …"


class SessionSubscribers:
    """Delivers events to the subscribers of each session, and removes them after the event that ends it.

    The exception of a subscriber is logged and does not affect the others.
    """

    def __init__(self) -> None:
        # Keyed by a unique object: the same callback may subscribe twice, or again after the end of a session.
        self._callbacks: dict[str, dict[object, Callback]] = {}
        self._running: set[str] = set()
        self._pending: set[asyncio.Future[None]] = set()

    def __len__(self) -> int:
        """Return the number of sessions with subscribers."""
        return len(self._callbacks)

    def has_listeners(self, session_id: str) -> bool:
        """Return True if the session has subscribers."""
        return session_id in self._callbacks

    def subscribe(self, session_id: str, callback: Callback, missed: Iterable[Event] = ()) -> Callable[[], None]:
        """Add a subscriber, deliver the events it has `missed`, and return the function that unsubscribes it.

        A subscriber of a session whose program runs already gets a `thinking` event first.
        """
        key = object()
        self._callbacks.setdefault(session_id, {})[key] = callback
        if session_id in self._running:
            self._notify(callback, session_id, thinking())
        for event in missed:
            self._notify(callback, session_id, event)
        return lambda: self._unsubscribe(session_id, key)

    def emit(self, session_id: str, event: Event) -> list[Awaitable[Any]]:
        """Deliver an event to all subscribers. Return the awaitables to wait for before the next event."""
        kind = event.get("type")
        if kind == "session_started":
            self._running.add(session_id)
        listeners = [*self._callbacks.get(session_id, {}).values()]
        if kind in END_TYPES:
            # No event follows the end of a session, so its subscribers are removed here.
            self._running.discard(session_id)
            self._callbacks.pop(session_id, None)
        waiting = [self._notify(callback, session_id, event) for callback in listeners]
        return [each for each in waiting if each is not None]

    def _notify(self, callback: Callback, session_id: str, event: Event) -> Awaitable[Any] | None:
        try:
            answer = callback(session_id, event)
        except Exception:
            logger.exception("a listener of session %s failed", session_id)
            return None
        if not inspect.isawaitable(answer):
            return None
        # Started at once: not every sender awaits what its subscribers return.
        waiting = asyncio.ensure_future(self._wait(answer, session_id))
        self._pending.add(waiting)
        waiting.add_done_callback(self._pending.discard)
        return waiting

    async def _wait(self, answer: Awaitable[Any], session_id: str) -> None:
        try:
            await answer
        except Exception:
            logger.exception("a listener of session %s failed", session_id)

    def _unsubscribe(self, session_id: str, key: object) -> None:
        listeners = self._callbacks.get(session_id, {})
        listeners.pop(key, None)
        if not listeners:
            self._callbacks.pop(session_id, None)


# Backlog size at which the program has to wait.
_MAX_BACKLOG = 256


class Backlog:
    """An ordered buffer of events. Nothing is dropped: when it is full, `add` tells the program to wait."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._full: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        """Return the number of buffered events."""
        return len(self._events)

    def append(self, event: Event) -> None:
        """Add an event, from any thread, however full the backlog is."""
        self._events.append(event)

    def add(self, event: Event) -> asyncio.Future[None] | None:
        """Add an event. If the backlog is full, return a future that is done when it is empty again."""
        self._events.append(event)
        if len(self._events) < _MAX_BACKLOG:
            return None
        self._full = self._full or asyncio.get_running_loop().create_future()
        return self._full

    def put_back(self, events: Iterable[Event]) -> None:
        """Insert events before all others."""
        self._events.extendleft(reversed(list(events)))

    def next(self) -> Event:
        """Remove and return the first event. If that empties the backlog, a waiting program continues.

        Raises:
            IndexError: there is none.
        """
        event = self._events.popleft()
        if not self._events:
            self.make_room()
        return event

    def take(self) -> list[Event]:
        """Remove and return all events; a waiting program continues."""
        events, self._events = list(self._events), deque()
        self.make_room()
        return events

    def make_room(self) -> None:
        """Let a waiting program continue."""
        full, self._full = self._full, None
        if full is not None and not full.done():
            full.set_result(None)
