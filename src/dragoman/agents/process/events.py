"""What a process manager tells about a session: plain JSON objects with a `type`.

The words `session_started assistant thinking tool_status result session_exited session_stopped error` are those that
process managers of others use, too; `text artifact ask` are for programs that say more. Whoever listens passes over
types it does not know.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, cast

Event = Mapping[str, Any]
# Called with the session's id and what happened.
Callback = Callable[[str, Event], object]

# The type of an error that is the message's, not the program's.
REJECTED = "rejected"
ENDS = ("session_exited", "session_stopped", "error")


def started(pid: int | None = None) -> Event:
    """The program runs."""
    return {"type": "session_started", "pid": pid}


def text(chunk: str) -> Event:
    """A piece of the answer, to be streamed as it is."""
    return {"type": "text", "text": chunk}


def assistant(content: str) -> Event:
    """A whole message of the agent."""
    return {"type": "assistant", "message": {"content": content}}


def thinking(about: str | None = None) -> Event:
    """The agent works, and may say on what."""
    return {"type": "thinking", "thinking": True, **({"text": about} if about else {})}


def tool_status(status: str) -> Event:
    """What the agent does at the moment."""
    return {"type": "tool_status", "statusMessage": status}


def artifact(content: Mapping[str, Any]) -> Event:
    """A result beside the answer: `name`, and one of `text`, `data`, `base64` (bytes) and `file` (a path)."""
    return {"type": "artifact", "artifact": dict(content)}


def ask(question: str) -> Event:
    """The program wants to know something, and waits."""
    return {"type": "ask", "question": question}


def result(value: Any, *, remembers: str | None = None) -> Event:
    """The finished answer. `remembers` is how the program calls this conversation, to go on with it later."""
    return {"type": "result", "result": value, **({"remembers": remembers} if remembers else {})}


def exited(code: int | None = 0) -> Event:
    """The program has ended by itself."""
    return {"type": "session_exited", "exitCode": code}


def stopped(reason: str = "") -> Event:
    """The program was ended."""
    return {"type": "session_stopped", "reason": reason}


def error(message: str, kind: str = "process_error") -> Event:
    """It did not work out."""
    return {"type": "error", "error": {"message": message, "type": kind}}


def content_of(event: Event) -> str:
    """The text of an `assistant` event, whose content is a text or blocks: then it is that of the first with one."""
    message: Any = event.get("message")
    content: Any = cast("Mapping[str, Any]", message).get("content") if isinstance(message, Mapping) else None
    if isinstance(content, str):
        return content
    blocks = cast("Sequence[Any]", content) if isinstance(content, (list, tuple)) else ()
    for block in blocks:
        block_text: Any = cast("Mapping[str, Any]", block).get("text") if isinstance(block, Mapping) else None
        if isinstance(block_text, str) and block_text:
            return block_text
    return ""


def is_rejected(event: Event) -> bool:
    """True for an `error` event that refuses the message."""
    details: Any = event.get("error")
    return isinstance(details, Mapping) and cast("Mapping[str, Any]", details).get("type") == REJECTED


def problem_of(event: Event) -> str:
    """The text of an `error` event."""
    details: Any = event.get("error")
    message: Any = cast("Mapping[str, Any]", details).get("message") if isinstance(details, Mapping) else details
    return message if isinstance(message, str) and message else "the program failed"


logger = logging.getLogger("dragoman.process")


class SessionSubscribers:
    """Tells the listeners of each session. One that fails keeps nobody else from hearing."""

    def __init__(self) -> None:
        # By a key of their own: the same callback may listen twice, or again after an end.
        self._of_session: dict[str, dict[object, Callback]] = {}
        self._running: set[str] = set()
        self._pending: set[asyncio.Future[None]] = set()

    def __len__(self) -> int:
        """How many sessions have listeners."""
        return len(self._of_session)

    def has_listeners(self, session_id: str) -> bool:
        """True when somebody listens to this session in particular."""
        return session_id in self._of_session

    def subscribe(self, session_id: str, callback: Callback, missed: Iterable[Event] = ()) -> Callable[[], None]:
        """Tell a listener from now on, first what it has `missed`.

        One that comes late to a session at work learns at once that it is.
        """
        key = object()
        self._of_session.setdefault(session_id, {})[key] = callback
        if session_id in self._running:
            self._notify(callback, session_id, thinking())
        for event in missed:
            self._notify(callback, session_id, event)
        return lambda: self._unsubscribe(session_id, key)

    def emit(self, session_id: str, event: Event) -> list[Awaitable[Any]]:
        """Tell everybody. Gives what listeners want to be waited for before they hear more."""
        kind = event.get("type")
        if kind == "session_started":
            self._running.add(session_id)
        listeners = [*self._of_session.get(session_id, {}).values()]
        if kind in ENDS:
            # What has ended says nothing more: nobody needs to remember to leave.
            self._running.discard(session_id)
            self._of_session.pop(session_id, None)
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
        # Begun at once: not everything that is told is also waited for.
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
        listeners = self._of_session.get(session_id, {})
        listeners.pop(key, None)
        if not listeners:
            self._of_session.pop(session_id, None)


# How much is kept before the program has to wait.
_MOST = 256


class Backlog:
    """Events for whoever listens, in order. Nothing is lost: a program that says too much is made to wait."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._full: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        """How many there are."""
        return len(self._events)

    def append(self, event: Event) -> None:
        """Keep an event, from any thread."""
        self._events.append(event)

    def add(self, event: Event) -> asyncio.Future[None] | None:
        """Keep an event. Gives what to wait for before the next, if there are too many."""
        self._events.append(event)
        if len(self._events) < _MOST:
            return None
        self._full = self._full or asyncio.get_running_loop().create_future()
        return self._full

    def put_back(self, events: Iterable[Event]) -> None:
        """Keep events that come before all others."""
        self._events.extendleft(reversed(list(events)))

    def next(self) -> Event:
        """The first; after the last the program may go on. Raises IndexError when there is none."""
        event = self._events.popleft()
        if not self._events:
            self.make_room()
        return event

    def take(self) -> list[Event]:
        """All there are; the program may go on."""
        events, self._events = list(self._events), deque()
        self.make_room()
        return events

    def make_room(self) -> None:
        """Let the program go on."""
        full, self._full = self._full, None
        if full is not None and not full.done():
            full.set_result(None)
