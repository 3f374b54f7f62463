"""What stores with a single writer have in common: they say at once what becomes of a change."""

from __future__ import annotations

import asyncio
import struct
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING

from msgspec import field

from dragoman.engine.ports.ownership import MessageRepeated
from dragoman.engine.ports.store import ACCEPTED, Note, Verdict, Write
from dragoman.model.error import ServerError
from dragoman.model.state import State

if TYPE_CHECKING:
    from dragoman.engine.ports.store import DedupeKey, TaskRow

REPEATED = "another task has accepted this message"
_BITS = 1 << 24
_unpack_words = struct.Struct("<4I").unpack_from
# How many keys are in memory with their tasks; beyond that the oldest move to the Bloom filter.
MAX_RECENT_KEYS = 50_000
# The states of a task that takes messages which do not answer a question.
_TAKES_MESSAGES = frozenset({State.SUBMITTED, State.WORKING, State.AUTH_REQUIRED})


class MailOutcome:
    """What has become of a posted message: its number, 0 when it was refused, or that its dedupe key is taken."""

    __slots__ = ("is_repeated", "number")

    def __init__(self) -> None:
        self.number = 0
        self.is_repeated = False


class MailWrite(Write):
    """A change that adds a message to a task, unless the task takes none when its turn in the queue comes.

    The message is the only note; the store gives it its generation and its number. `generation` is the one that the
    task must have, if any. A message that is refused is no error: then `outcome` says so. Copies of the change share
    their outcome.
    """

    generation: int | None = None
    outcome: MailOutcome = field(default_factory=MailOutcome)

    def fits(self, state: State, generation: int) -> bool:
        """True when a task with this state and generation takes the message."""
        return state in _TAKES_MESSAGES and self.generation in (None, generation)

    def numbered_note(self, generation: int, mail: int) -> Note:
        """The message as it is stored."""
        return self.notes[0]._replace(generation=generation, mail=mail)


def _positions(digest: bytes) -> list[tuple[int, int]]:
    # A key of a test, or of another program, may be shorter than a digest.
    words: tuple[int, ...] = _unpack_words(digest if len(digest) >= 16 else digest.ljust(16, b"\0"))
    return [((word % _BITS) >> 3, 1 << (word & 7)) for word in words]


class BloomFilter:
    """Bloom filter over digests: no false negatives, rare false positives.

    It takes 2 MiB, allocated with the first digest. At two million digests one lookup in fifty is a false positive,
    which costs a read from the store.
    """

    def __init__(self) -> None:
        self._bits: bytearray | None = None
        self.used = False  # True once it has a digest

    def add(self, digest: bytes) -> None:
        """Add a digest."""
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


class DedupeKeys:
    """The dedupe keys of a store with one writer: those that are stored, and those on their way.

    Recent keys are in memory with their tasks; older ones, and those of earlier processes, are in a Bloom filter. So a
    new message hardly ever costs a read.
    """

    def __init__(self) -> None:
        # When it expires, and the task.
        self._recent: OrderedDict[bytes, tuple[int, str]] = OrderedDict()
        # Of changes that are not committed yet.
        self.pending: set[bytes] = set()
        # For those who wait until a change is committed or refused, by its key.
        self._settled: dict[bytes, asyncio.Event] = {}
        # Rotated once per window: all keys in the older filter have expired when it is dropped.
        self._newer, self._older = BloomFilter(), BloomFilter()
        self._rotated_ms = 0

    def load(self, digest: bytes) -> None:
        """Add a key that an earlier process has stored."""
        self._newer.add(digest)

    def enter(self, key: DedupeKey, task_id: str, now_ms: int) -> Verdict | None:
        """Enter the key of a change, unless another task has it. None when only the commit can tell whether one has."""
        digest, recent = key.digest, self._recent
        entry = recent.get(digest)
        if entry is not None and entry[0] > now_ms and entry[1] != task_id:
            return Verdict(entry[1])
        if now_ms - self._rotated_ms >= key.expires_ms - now_ms:
            self._newer, self._older, self._rotated_ms = BloomFilter(), self._newer, now_ms
        is_used = self._newer.used or self._older.used
        verdict = None if entry is None and is_used and self._may_be_old(digest) else ACCEPTED
        while recent:
            oldest, (expires_ms, _) = next(iter(recent.items()))
            if expires_ms > now_ms and len(recent) < MAX_RECENT_KEYS:
                break
            if expires_ms > now_ms:
                self._newer.add(oldest)
            del recent[oldest]
        recent[digest] = (key.expires_ms, task_id)
        self.pending.add(digest)
        return verdict

    def find(self, digest: bytes, now_ms: int) -> Verdict | None:
        """Say which task has a key; without one, a change would be accepted. None when only the store can tell."""
        entry = self._recent.get(digest)
        if entry is not None:
            return Verdict(entry[1]) if entry[0] > now_ms else ACCEPTED
        return None if (self._newer.used or self._older.used) and self._may_be_old(digest) else ACCEPTED

    async def wait_settled(self, digest: bytes) -> None:
        """Wait until no change with this key is on its way."""
        while digest in self.pending:
            await self._settled.setdefault(digest, asyncio.Event()).wait()

    def settle(self, key: DedupeKey, task_id: str) -> None:
        """Note that a key is stored. An earlier change with it may have been refused."""
        self._recent.setdefault(key.digest, (key.expires_ms, task_id))
        self.end_pending(key.digest)

    def end_pending(self, digest: bytes) -> None:
        """Note that a change with this key is on its way no more."""
        self.pending.discard(digest)
        if self._settled and (event := self._settled.pop(digest, None)) is not None:
            event.set()

    def take_back(self, digest: bytes) -> None:
        """Forget the key of a change that was refused."""
        self._recent.pop(digest, None)
        self.end_pending(digest)

    def forget(self, digest: bytes) -> None:
        """Forget a key that is not in the store any more, unless it is on its way there."""
        if digest not in self.pending:
            self._recent.pop(digest, None)

    def forget_task(self, task_id: str) -> None:
        """Forget the keys of a task that was deleted."""
        for digest in [digest for digest, (_, of_task) in self._recent.items() if of_task == task_id]:
            self.forget(digest)

    def _may_be_old(self, digest: bytes) -> bool:
        return digest in self._newer or digest in self._older


class SoleWriter:
    """Takes the changes of a store that no other process writes to, and says at once what becomes of them.

    A store has `queue`, which queues a change, calls `report` with its outcome, and refuses a key that another task has
    with MessageRepeated. For a `MailWrite` it fills `outcome` instead, where a key that the same task has is taken as
    well. The other two methods read keys from the store.
    """

    def __init__(self) -> None:
        self._keys = DedupeKeys()

    def write(self, write: Write) -> Verdict | None:
        """Queue a change, unless another task has its dedupe key. See the port `Store`."""
        verdict: Verdict | None = ACCEPTED
        key = write.dedupe_key
        if key is not None:
            row, now_ms = write.row, key.at_ms or write.row.status_ms
            held = self._keys.find(key.digest, now_ms) if isinstance(write, MailWrite) else None
            verdict = held if held and held.duplicate_of else self._keys.enter(key, row.id, now_ms)
            if verdict is not None and verdict.duplicate_of:
                is_new = not write.delete and (write.draft or (write.create and not write.opens_draft))
                if is_new or isinstance(write, MailWrite):
                    return verdict
                # Its writer waits for an outcome: only new tasks can be something else.
                asyncio.get_running_loop().call_soon(write.done, MessageRepeated(REPEATED))
                return ACCEPTED
        self.queue(write)
        return verdict

    def queue(self, write: Write) -> None:
        raise NotImplementedError

    async def post(
        self, row: TaskRow, body: bytes, dedupe_key: DedupeKey | None = None, generation: int | None = None
    ) -> int:
        """Add the message of a caller to a task that is submitted, working or auth-required, after all queued changes.

        `generation` is the one that the task must have. Returns the number of the message among those of the task, from
        1; 0 when there is no such task, or it has another state or generation.

        Raises:
            MessageRepeated: a message with this dedupe key was accepted already.
            ServerError: the store cannot write now.
        """
        settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        message = Note(row.generation, "message", body)
        post = MailWrite(
            row,
            partial(_settle, settled),
            notes=(message,),
            dedupe_key=dedupe_key,
            size=len(body),
            generation=generation,
        )
        if dedupe_key is not None:
            # Whether its message is accepted, nobody can say before: this one may be the only one.
            await self._keys.wait_settled(dedupe_key.digest)
        verdict = self.write(post)
        is_repeated = verdict is not None and bool(verdict.duplicate_of)
        if not is_repeated:
            try:
                await settled
            except ServerError:
                raise
            except Exception as error:
                raise ServerError("the store cannot take writes now: try again later", retryAfter="1") from error
        if is_repeated or post.outcome.is_repeated:
            raise MessageRepeated("this message was accepted already")
        return post.outcome.number

    def report(self, write: Write, error: BaseException | None) -> None:
        """Report the outcome of a change. Call it on the event loop."""
        key = write.dedupe_key
        if key is not None:
            is_refused = error is not None or (isinstance(write, MailWrite) and not write.outcome.number)
            if not is_refused:
                self._keys.settle(key, write.row.id)
            elif write.opens_draft or (write.draft and write.delete):  # its draft has the key, or was refused before
                self._keys.end_pending(key.digest)
            else:
                self._keys.take_back(key.digest)
            if isinstance(error, MessageRepeated):  # the store has it, and the next message with it is a repeat
                self._keys.load(key.digest)
        if write.delete and not write.draft and error is None:
            self._keys.forget_task(write.row.id)
        write.done(error)

    async def duplicate_of(self, key: bytes, now_ms: int) -> str | None:
        """The id of the task that accepted a message with this dedupe key; None when none did, or the key expired."""
        verdict = self._keys.find(key, now_ms)
        if verdict is None:
            return await self.read_duplicate(key, now_ms)
        return verdict.duplicate_of or None

    async def reply(self, key: bytes, now_ms: int) -> bytes | None:
        """The bare message that answered a message with this dedupe key; None when there is none, or it expired."""
        reply = await self.read_reply(key, now_ms)
        if reply is None and await self.read_duplicate(key, now_ms) is None:
            self._keys.forget(key)  # it went with its task
        return reply

    async def read_duplicate(self, key: bytes, now_ms: int) -> str | None:
        raise NotImplementedError

    async def read_reply(self, key: bytes, now_ms: int) -> bytes | None:
        raise NotImplementedError


def _settle(settled: asyncio.Future[None], error: BaseException | None) -> None:
    if settled.done():  # nobody waits any more
        return
    if error is None:
        settled.set_result(None)
    else:
        settled.set_exception(error)
