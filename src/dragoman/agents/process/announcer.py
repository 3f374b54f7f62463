"""Who is told what happens in sessions."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

from dragoman.agents.process import events

if TYPE_CHECKING:
    from dragoman.agents.process.events import Callback, Event

logger = logging.getLogger("dragoman.process")


class Announcer:
    """Tells listeners of one session, and those of all. One that fails keeps nobody else from hearing."""

    def __init__(self) -> None:
        # By a key of their own: the same callback may listen twice, or again after an end.
        self._of_session: dict[str, dict[object, Callback]] = {}
        self._of_all: dict[object, Callback] = {}
        self._running: set[str] = set()
        self._waits: set[asyncio.Future[None]] = set()

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
            self._tell(callback, session_id, events.thinking())
        for event in missed:
            self._tell(callback, session_id, event)
        return lambda: self._drop(session_id, key)

    def subscribe_all(self, callback: Callback) -> Callable[[], None]:
        """Tell a listener about every session."""
        key = object()
        self._of_all[key] = callback

        def leave() -> None:
            self._of_all.pop(key, None)

        return leave

    def emit(self, session_id: str, event: Event) -> list[Awaitable[Any]]:
        """Tell everybody. Gives what listeners want to be waited for before they hear more."""
        kind = event.get("type")
        if kind == "session_started":
            self._running.add(session_id)
        listeners = [*self._of_session.get(session_id, {}).values(), *self._of_all.values()]
        if kind in events.ENDS:
            # What has ended says nothing more: nobody needs to remember to leave.
            self._running.discard(session_id)
            self._of_session.pop(session_id, None)
        waiting = [self._tell(callback, session_id, event) for callback in listeners]
        return [each for each in waiting if each is not None]

    def _tell(self, callback: Callback, session_id: str, event: Event) -> Awaitable[Any] | None:
        try:
            answer = callback(session_id, event)
        except Exception:
            logger.exception("a listener of session %s failed", session_id)
            return None
        if not inspect.isawaitable(answer):
            return None
        # Begun at once: not everything that is told is also waited for.
        waiting = asyncio.ensure_future(self._wait(answer, session_id))
        self._waits.add(waiting)
        waiting.add_done_callback(self._waits.discard)
        return waiting

    async def _wait(self, answer: Awaitable[Any], session_id: str) -> None:
        try:
            await answer
        except Exception:
            logger.exception("a listener of session %s failed", session_id)

    def _drop(self, session_id: str, key: object) -> None:
        listeners = self._of_session.get(session_id, {})
        listeners.pop(key, None)
        if not listeners:
            self._of_session.pop(session_id, None)
