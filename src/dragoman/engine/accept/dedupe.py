"""Repeats: a message that was accepted before is answered with its task, and runs nothing."""

from __future__ import annotations

import hashlib
import struct
from collections import OrderedDict
from typing import TYPE_CHECKING

from dragoman.engine.ports.store import DedupeKey, Scope
from dragoman.model.ids import is_uuid
from dragoman.model.json import encode

if TYPE_CHECKING:
    from dragoman.clock import Clock
    from dragoman.engine.ports.store import Store
    from dragoman.model.message import Message

_BITS = 1 << 24
_places = struct.Struct("<4I").unpack_from


def _positions(digest: bytes) -> list[tuple[int, int]]:
    places: tuple[int, ...] = _places(digest)
    return [((place % _BITS) >> 3, 1 << (place & 7)) for place in places]


class BloomFilter:
    """A Bloom filter for digests: what it does not hold was never added; what it holds was, or very rarely not.

    Two million bytes, and none before the first digest. With two million digests one answer in fifty is a false
    alarm, which costs a look into the store.
    """

    def __init__(self) -> None:
        self._bits: bytearray | None = None
        self.used = False

    def add(self, digest: bytes) -> None:
        """Add a digest of at least 16 bytes."""
        if self._bits is None:
            self._bits = bytearray(_BITS >> 3)
            self.used = True
        for byte, bit in _positions(digest):
            self._bits[byte] |= bit

    def __contains__(self, digest: bytes) -> bool:
        bits = self._bits
        if bits is None:
            return False
        return all(bits[byte] & bit for byte, bit in _positions(digest))


MAX_RECENT_KEYS = 50_000


class Deduplicator:
    """Finds the task a message was accepted into within the window.

    A message can be known again when its id is a UUID; ids typed by hand ("m1") and the same id with other content are
    never repeats. Recent keys are in memory; of older ones, and of those from before a restart, a Bloom filter
    remembers that they may exist. So a new message hardly ever costs a read.
    """

    def __init__(self, store: Store, clock: Clock, seconds: float) -> None:
        self._store = store
        self._clock = clock
        self._window_ms = round(seconds * 1000)
        self._recent: OrderedDict[bytes, tuple[int, str]] = OrderedDict()
        # What went into the older one has expired by the time it is given up.
        self._newer, self._older = BloomFilter(), BloomFilter()
        self._turned_ms = clock.now()

    async def load(self) -> None:
        """Take over the keys an earlier process left."""
        if self._window_ms > 0:
            for key in await self._store.dedupe_keys(self._clock.now()):
                self._newer.add(key)

    def key_of(self, scope: Scope, message: Message) -> DedupeKey | None:
        """The key of this message, or None when it cannot be known again."""
        if self._window_ms <= 0 or not is_uuid(message.message_id):
            return None
        content = encode((scope, message.task_id, message.message_id.lower(), message.parts))
        return DedupeKey(hashlib.sha256(content).digest(), self._clock.now() + self._window_ms)

    def may_contain(self, repeat: DedupeKey) -> bool:
        """False when no message had this key, for sure and without looking it up."""
        key = repeat.digest
        if key in self._recent:
            return True
        return (self._newer.used and key in self._newer) or (self._older.used and key in self._older)

    async def find(self, repeat: DedupeKey) -> str | None:
        """The id of the task that took this message before."""
        now = self._clock.now()
        known = self._recent.get(repeat.digest)
        if known is not None:
            return known[1] if known[0] > now else None
        if repeat.digest in self._newer or repeat.digest in self._older:
            return await self._store.duplicate_of(repeat.digest, now)
        return None

    def add(self, repeat: DedupeKey, task_id: str) -> None:
        """Keep a key at hand; the store keeps it too, in the commit of the message."""
        now = self._clock.now()
        if now - self._turned_ms >= self._window_ms:
            self._newer, self._older, self._turned_ms = BloomFilter(), self._newer, now
        while self._recent:
            key, (until, _) = next(iter(self._recent.items()))
            if until > now and len(self._recent) < MAX_RECENT_KEYS:
                break
            if until > now:
                self._newer.add(key)
            del self._recent[key]
        self._recent[repeat.digest] = (repeat.expires_ms, task_id)
