"""Knowing a message again, so that a retry runs nothing twice."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import TYPE_CHECKING
from uuid import UUID

from dragoman.engine.ports import Repeat, Scope
from dragoman.model.json import encode

if TYPE_CHECKING:
    from dragoman.engine.clock import Clock
    from dragoman.engine.ports import Store
    from dragoman.model.message import Message

REMEMBERED = 50_000


class Repeats:
    """Finds the task a message was accepted into within the window.

    A message can be known again when its id is a UUID; ids typed by hand ("m1") and the same id with other
    content are never repeats. Recent marks are in memory, so that the usual new message costs no read.
    """

    def __init__(self, store: Store, clock: Clock, seconds: float) -> None:
        self._store = store
        self._clock = clock
        self._window_ms = round(seconds * 1000)
        self._recent: OrderedDict[bytes, tuple[int, str]] = OrderedDict()
        self._complete_since = clock.now()

    def mark(self, scope: Scope, message: Message) -> Repeat | None:
        """The mark this message leaves, or None when it cannot be known again."""
        if self._window_ms <= 0 or not _is_uuid(message.message_id):
            return None
        digest = hashlib.sha256(encode((scope, message.task_id, message.message_id.lower(), message.parts))).digest()
        return Repeat(digest, self._clock.now() + self._window_ms)

    async def find(self, repeat: Repeat) -> str | None:
        """The id of the task that took this message before."""
        now = self._clock.now()
        known = self._recent.get(repeat.key)
        if known is not None:
            return known[1] if known[0] > now else None
        if self._complete_since <= now - self._window_ms:
            return None
        return await self._store.repeated(repeat.key, now)

    def remember(self, repeat: Repeat, task_id: str) -> None:
        """Keep a mark at hand; the store keeps it too, in the commit of the message."""
        now = self._clock.now()
        while self._recent:
            until, _ = next(iter(self._recent.values()))
            if until > now and len(self._recent) < REMEMBERED:
                break
            if until > now:
                self._complete_since = until - self._window_ms + 1
            self._recent.popitem(last=False)
        self._recent[repeat.key] = (repeat.until_ms, task_id)


def _is_uuid(text: str) -> bool:
    if len(text) != 36:
        return False
    try:
        UUID(text)
    except ValueError:
        return False
    return True
