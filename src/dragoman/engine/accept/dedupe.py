"""Message deduplication: a repeated message is answered with the task of the first, and starts no run."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from dragoman.engine.ports.store import DedupeKey, Scope
from dragoman.model.ids import is_uuid
from dragoman.model.json import encode

if TYPE_CHECKING:
    from dragoman.clock import Clock
    from dragoman.model.message import Message


class DedupeWindow:
    """How long a message that comes again is a repeat. The store decides whether it is one, by its dedupe key."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._window_ms = round(seconds * 1000)

    def key_of(self, scope: Scope, message: Message) -> DedupeKey | None:
        """The dedupe key of a message, or None when it is not deduplicated.

        Only messages whose id is a UUID have one: ids typed by hand ("m1") and the same id with other content are never
        repeats.
        """
        if self._window_ms <= 0 or not is_uuid(message.message_id):
            return None
        content = encode((scope, message.task_id, message.message_id.lower(), message.parts))
        now = self._clock.now()
        return DedupeKey(hashlib.sha256(content).digest(), now + self._window_ms, now)
