"""Message deduplication: a repeated message is answered with the task of the first, and starts no run."""

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
_unpack_words = struct.Struct("<4I").unpack_from


def _positions(digest: bytes) -> list[tuple[int, int]]:
    words: tuple[int, ...] = _unpack_words(digest)
    return [((word % _BITS) >> 3, 1 << (word & 7)) for word in words]


class BloomFilter:
    """Bloom filter over digests: no false negatives, rare false positives.

    It takes 2 MiB, allocated with the first digest. At two million digests one lookup in fifty is a false positive,
    which costs a read from the store.
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


# How many keys are in memory with their tasks; beyond that the oldest move to the Bloom filter.
MAX_RECENT_KEYS = 50_000


class Deduplicator:
    """Finds the task that accepted the same message within the dedupe window.

    Only messages whose id is a UUID have a dedupe key: ids typed by hand ("m1") and the same id with other content are
    never repeats. Recent keys are in memory; older ones, and those from before a restart, are in a Bloom filter. So a
    new message hardly ever costs a read. Once a write of a task was refused, only the store knows which of its messages
    it has: `doubt` says so.

    When other processes share the store (`shared`), memory proves nothing: the store refuses a key that exists.
    """

    def __init__(self, store: Store, clock: Clock, seconds: float, *, shared: bool = False) -> None:
        self._store = store
        self._shared = shared
        self._clock = clock
        self._window_ms = round(seconds * 1000)
        # When it expires, the task, and how many keys were added before it.
        self._recent: OrderedDict[bytes, tuple[int, str, int]] = OrderedDict()
        self._added = 0
        # Tasks a write of which was refused: when their keys have expired, and how many had been added by then.
        self._doubtful: dict[str, tuple[int, int]] = {}
        # Rotated once per window: all keys in the older filter have expired when it is dropped.
        self._newer, self._older = BloomFilter(), BloomFilter()
        self._rotated_ms = clock.now()

    async def load(self) -> None:
        """Load the keys that an earlier process stored."""
        if self._window_ms > 0:
            for key in await self._store.dedupe_keys(self._clock.now()):
                self._newer.add(key)

    def key_of(self, scope: Scope, message: Message) -> DedupeKey | None:
        """The dedupe key of a message, or None when it is not deduplicated."""
        if self._window_ms <= 0 or not is_uuid(message.message_id):
            return None
        content = encode((scope, message.task_id, message.message_id.lower(), message.parts))
        return DedupeKey(hashlib.sha256(content).digest(), self._clock.now() + self._window_ms)

    def may_contain(self, dedupe_key: DedupeKey) -> bool:
        """False when the key is certainly new. Never reads from the store."""
        key = dedupe_key.digest
        if key in self._recent:
            return True
        return (self._newer.used and key in self._newer) or (self._older.used and key in self._older)

    async def find(self, dedupe_key: DedupeKey) -> str | None:
        """The id of the task that accepted this message before; None when there is none."""
        now = self._clock.now()
        if self._shared:
            return await self._store.duplicate_of(dedupe_key.digest, now)
        entry = self._recent.get(dedupe_key.digest)
        if entry is not None:
            expires_ms, task_id, order = entry
            if task_id not in self._doubtful or order >= self._doubtful[task_id][1]:
                return task_id if expires_ms > now else None
            # It stays here until the message is accepted again: meanwhile no other request takes the message for new.
            return await self._store.duplicate_of(dedupe_key.digest, now)
        if dedupe_key.digest in self._newer or dedupe_key.digest in self._older:
            return await self._store.duplicate_of(dedupe_key.digest, now)
        return None

    def doubt(self, task_id: str) -> None:
        """Note that the store has refused a write of a task: it may not have the keys of its messages."""
        now = self._clock.now()
        while self._doubtful and next(iter(self._doubtful.values()))[0] <= now:
            del self._doubtful[next(iter(self._doubtful))]
        if not self._shared:
            self._doubtful.pop(task_id, None)
            self._doubtful[task_id] = now + self._window_ms, self._added

    def add(self, dedupe_key: DedupeKey, task_id: str) -> None:
        """Add a key in memory. The store gets it with the write of what the message caused."""
        if self._shared:
            return
        now = dedupe_key.expires_ms - self._window_ms  # when the message came
        if now - self._rotated_ms >= self._window_ms:
            self._newer, self._older, self._rotated_ms = BloomFilter(), self._newer, now
        while self._recent:
            key, (until, _, _) = next(iter(self._recent.items()))
            if until > now and len(self._recent) < MAX_RECENT_KEYS:
                break
            if until > now:
                self._newer.add(key)
            del self._recent[key]
        self._recent[dedupe_key.digest] = (dedupe_key.expires_ms, task_id, self._added)
        self._added += 1
