"""The bus of all processes that share a PostgreSQL: NOTIFY, LISTEN, and a poll for what they missed.

A notification is sent after the commit it reports, on a connection of its own, so that no commit waits for the lock
that every NOTIFY takes. Nothing depends on its arrival: each process also polls the tasks that it watches.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from dragoman.bus.local import LOCAL, NOTIFY, LocalBus
from dragoman.clock import sleep
from dragoman.net.postgres import connect

if TYPE_CHECKING:
    from dragoman.clock import Clock, Timer
    from dragoman.net.postgres import PostgresConnection

logger = logging.getLogger("dragoman.store")
CHANNEL = "dragoman"
# PostgreSQL refuses payloads of 8,000 bytes. An entry has 3 kB at most: an id of 256 characters, escaped.
MAX_PAYLOAD = 7_900
# Seconds between two NOTIFYs. The first one after a pause is sent at once; under load they are coalesced.
PACE = 0.004
# Seconds between two polls, and the least between two that something else than the timer caused.
POLL_INTERVAL = (10.0, 15.0)
MIN_POLL_INTERVAL = 1.0
# Seconds before the bus connects again: the first and the longest delay.
_RECONNECT = (0.1, 1.0)
# Seconds for one statement, and for closing. A connection whose other end is gone is found by it.
_TIMEOUT = 10.0
_IDS_PER_POLL = 5_000

_NOTIFY = "SELECT pg_notify($1, payload) FROM unnest($2::text[]) AS payload"

# The flags of a notice. WORK: there may be tasks to take. HELLO: who is there? PRESENT: the answer. RESUMED: the sender
# has kept changes to itself until now.
_WORK, _HELLO, _PRESENT, _RESUMED = 1, 2, 4, 8


class _Notice(msgspec.Struct, array_like=True):
    """A payload: its sender, flags, and tasks with their generations. Later versions may append fields."""

    sender: int
    flags: int
    tasks: list[tuple[str, int]]


class PostgresBus(LocalBus):
    """Notifies the subscribers of all processes on one database; those of this process at once.

    `url` is that of the database. `generations` reads the generations of tasks from the store, for the poll.
    `on_foreign` is called with the ids of tasks that other processes have changed, `on_work` when there may be tasks to
    take. `jitter` returns numbers from 0 to 1.

    A process that is alone sends nothing. It knows that by asking: whoever listens answers a HELLO, and greets when it
    starts to listen. An answer that comes late does no harm, however late: a process that resumes sending says so, and
    then all others poll, which covers whatever it did not report. For the same reason changes need not be kept while
    there is no connection.
    """

    def __init__(
        self,
        clock: Clock,
        url: str,
        generations: Callable[[Sequence[str]], Awaitable[Sequence[tuple[str, int]]]],
        *,
        on_foreign: Callable[[Sequence[str]], None],
        on_work: Callable[[], None],
        jitter: Callable[[], float] = random.random,
    ) -> None:
        super().__init__(clock)
        self._url = url
        self._generations = generations
        self._on_foreign = on_foreign
        self._on_work = on_work
        self._jitter = jitter
        self._sender = random.getrandbits(63)
        self._own_prefix = f"[{self._sender},"
        self._decode = msgspec.json.Decoder(_Notice).decode
        self._encode = msgspec.json.Encoder().encode
        self._connection: PostgresConnection | None = None
        self._statement: Any = None
        self._sending: asyncio.Task[None] | None = None
        # What the next NOTIFY carries. It is collected only while `_is_sending`.
        self._is_sending = False
        self._tasks: dict[str, int] = {}
        self._flags = 0
        self._is_paced = False  # a NOTIFY is due, on its way or too recent
        self._has_company = False  # another process was there since the last tick
        self._has_asked = False  # a HELLO was sent since then
        self._polled_ms = 0
        self._poll_is_due = False
        self._timers: dict[str, Timer] = {}
        self._workers: set[asyncio.Task[None]] = set()
        self._is_closed = True

    @property
    def is_connected(self) -> bool:
        """True while notifications arrive."""
        return self._connection is not None

    @property
    def is_sending(self) -> bool:
        """True while changes are sent: there is a connection, and somebody who may listen."""
        return self._is_sending

    # -- start and stop ------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect in the background and start to poll. Without a connection, subscribers are woken by the poll."""
        self._is_closed = False
        self._start(self._stay_connected())
        self._start_ticking()

    async def close(self) -> None:
        """Send what is due and disconnect."""
        self._is_closed = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        connection, workers = self._connection, self._workers
        self._workers = set()
        if self._sending is not None:
            await asyncio.wait((self._sending,))
        for worker in workers:
            worker.cancel()
        if workers:
            await asyncio.wait(workers)
        if connection is not None and not connection.is_closed():
            if self._has_notices:
                await self._send(connection)
            with suppress(Exception):
                async with asyncio.timeout(_TIMEOUT):
                    await connection.close()
        self._connection = self._statement = self._sending = None
        self._is_sending = self._is_paced = self._poll_is_due = False

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        worker = asyncio.ensure_future(work)
        self._workers.add(worker)
        worker.add_done_callback(self._workers.discard)
        return worker

    def _start_timer(self, name: str, seconds: float, callback: Callable[[], None]) -> None:
        """Start a timer, unless one with that name is pending."""

        def on_timer() -> None:
            del self._timers[name]
            callback()

        if not self._is_closed and name not in self._timers:
            self._timers[name] = self._clock.call_later(seconds, on_timer)

    # -- the connection ------------------------------------------------------------------------------------------------

    async def _stay_connected(self) -> None:
        first, longest = _RECONNECT
        delay, is_reported = first, False
        while True:
            try:
                lost = await self._listen()
            except Exception as error:  # noqa: BLE001 - whatever a driver raises: there is no connection
                if not is_reported:
                    logger.warning("no wake-ups from other nodes: %s; streams poll until they are back", error)
                is_reported = True
                await sleep(self._clock, delay * (0.5 + self._jitter() / 2))
                delay = min(delay * 2, longest)
                continue
            if is_reported:
                logger.info("wake-ups from other nodes are back")
            delay, is_reported = first, False
            await lost.wait()
            self._connection = self._statement = None
            self._is_sending = False

    async def _connect(self) -> Any:
        # A NOTIFY needs no disk: what it reports is durable already.
        settings = {"application_name": "dragoman bus", "synchronous_commit": "off"}
        return await connect(self._url, settings, seconds=_TIMEOUT)

    async def _listen(self) -> asyncio.Event:
        """Open a connection that listens and is ready to notify, and ask who is there. Returns what its end sets."""
        connection = await self._connect()
        lost = asyncio.Event()

        def on_terminated(_: object) -> None:
            lost.set()

        try:
            connection.add_termination_listener(on_terminated)
            async with asyncio.timeout(_TIMEOUT):
                await connection.add_listener(CHANNEL, self._on_payload)
                self._statement = await connection.prepare(_NOTIFY)
        except BaseException:
            connection.terminate()
            raise
        self._connection = connection
        self._has_company, self._has_asked = False, True
        self._resume(_HELLO)
        self._on_work()
        self._poll_soon()
        return lost

    # -- sending -------------------------------------------------------------------------------------------------------

    def notify(self, task_id: str, generation: int, source: str = LOCAL) -> None:
        """Notify all subscribers that the task has reached `generation`: here at once, elsewhere soon."""
        super().notify(task_id, generation, source)
        if self._is_sending:
            self._tasks[task_id] = generation
            if not self._is_paced:
                self._schedule()

    def announce_work(self) -> None:
        """Tell the other processes that there may be tasks to take."""
        if self._is_sending:
            self._send_flags(_WORK)

    @property
    def _has_notices(self) -> bool:
        return bool(self._tasks or self._flags)

    def _resume(self, flags: int = 0) -> None:
        """Start to send. The others must poll: they know nothing of what happened before."""
        self._tasks.clear()
        self._is_sending = True
        self._send_flags(_RESUMED | flags)

    def _send_flags(self, flags: int) -> None:
        self._flags |= flags
        if not self._is_paced:
            self._schedule()

    def _schedule(self) -> None:
        """Send at the end of this turn of the loop: the changes of one group commit are reported in one."""
        self._is_paced = True
        asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        if self._connection is None or self._is_closed or not self._has_notices:
            self._is_paced = False
        else:
            self._sending = self._start(self._send(self._connection))

    async def _send(self, connection: PostgresConnection) -> None:
        payloads = list(self._payloads(self._tasks, self._flags))
        self._tasks, self._flags = {}, 0
        try:
            async with asyncio.timeout(_TIMEOUT):
                await self._statement.fetch(CHANNEL, payloads)
        except Exception as error:  # noqa: BLE001 - whatever a driver raises: what was lost is polled
            logger.debug("the connection for wake-ups is given up: %r", error)
            connection.terminate()
            self._is_paced = False
        else:
            self._is_paced = not self._is_closed
            self._start_timer("pace", PACE, self._flush)

    def _payloads(self, tasks: dict[str, int], flags: int) -> Iterator[str]:
        """Pack notices into as few payloads as possible. The flags are in the first."""
        entries: list[bytes] = []
        size = start = len(self._own_prefix) + 8
        for task in tasks.items():
            entry = self._encode(task)
            if size + len(entry) + 1 > MAX_PAYLOAD:
                yield self._payload(entries, flags)
                entries, flags, size = [], 0, start
            entries.append(entry)
            size += len(entry) + 1
        yield self._payload(entries, flags)

    def _payload(self, entries: list[bytes], flags: int) -> str:
        return f"{self._own_prefix}{flags},[{b','.join(entries).decode()}]]"

    # -- receiving -----------------------------------------------------------------------------------------------------

    def _on_payload(self, connection: object, process: int, channel: str, payload: object) -> None:
        text = str(payload)
        if text.startswith(self._own_prefix) or self._is_closed:
            return
        try:
            notice = self._decode(text)
        except msgspec.MsgspecError:
            return  # not from Dragoman
        was_sending, self._has_company = self._is_sending, True
        if not was_sending and self._connection is not None:
            self._resume()
        elif notice.flags & _HELLO:
            self._send_flags(_PRESENT)
        if notice.tasks:
            for task_id, generation in notice.tasks:
                LocalBus.notify(self, task_id, generation, NOTIFY)
            self._on_foreign([task_id for task_id, _ in notice.tasks])
        if notice.flags & _RESUMED:
            self._poll_soon()
        if notice.flags & (_WORK | _RESUMED):
            self._on_work()

    # -- the poll ------------------------------------------------------------------------------------------------------

    def _start_ticking(self) -> None:
        shortest, longest = POLL_INTERVAL
        self._start_timer("tick", shortest + (longest - shortest) * self._jitter(), self._tick)

    def _tick(self) -> None:
        """Poll. Ask who is there, unless somebody was there since the last tick; send nothing if nobody answers."""
        self._start_ticking()
        self._poll_soon()
        if self._has_company:
            self._has_company = self._has_asked = False
            return
        if self._has_asked:
            self._is_sending = False
            self._tasks.clear()
        self._has_asked = True
        self._send_flags(_HELLO)  # it also finds out whether the connection still works

    def _poll_soon(self) -> None:
        """Poll now, or as soon as the last poll is old enough."""
        if self._poll_is_due or self._is_closed:
            return
        self._poll_is_due = True
        elapsed = (self._clock.now() - self._polled_ms) / 1000
        if 0 <= elapsed < MIN_POLL_INTERVAL:
            self._start_timer("poll", MIN_POLL_INTERVAL - elapsed, self._start_poll)
        else:
            self._start_poll()

    def _start_poll(self) -> None:
        self._start(self._poll())

    async def _poll(self) -> None:
        """Read the generations of all tasks that are watched, and wake the subscribers that are behind."""
        self._poll_is_due = False
        self._polled_ms = self._clock.now()
        ids = iter(list(self.listeners))
        while chunk := list(islice(ids, _IDS_PER_POLL)):
            try:
                generations = dict(await self._generations(chunk))
            except Exception as error:  # noqa: BLE001 - the next poll will do
                logger.debug("cannot poll for changes: %r", error)
                return
            for task_id in chunk:
                self.observe(task_id, generations.get(task_id))
