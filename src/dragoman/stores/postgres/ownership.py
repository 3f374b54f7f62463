"""Which of several nodes may write a task: claims in the database, under a lease."""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import TYPE_CHECKING

from dragoman.clock import sleep, wait
from dragoman.engine.ports.ownership import MessageRepeated, OwnershipLost
from dragoman.model.error import ServerError
from dragoman.stores.postgres.database import ConnectionLost
from dragoman.stores.postgres.lease import DECLARED_DEAD
from dragoman.stores.postgres.retry import FIRST_DELAY, LAST_DELAY, RETRY_SECONDS, SILENCE_SECONDS, answer_within
from dragoman.stores.postgres.sql import claims, reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dragoman.clock import Clock
    from dragoman.engine.ports.ownership import Claim, ClaimedTask, OwnershipListener, TaskClaim
    from dragoman.engine.ports.store import DedupeKey, StoredTask, TaskRow
    from dragoman.stores.postgres.database import Database
    from dragoman.stores.postgres.lease import NodeLease
    from dragoman.stores.postgres.retry import Retry
    from dragoman.stores.postgres.writer import GroupCommit

logger = logging.getLogger("dragoman.store")

UNLIMITED = 1 << 30
# How long to look for other nodes.
LOOK_SECONDS = 1.0
EXPIRED = "this node cannot renew its lease, because the database does not answer: try again with the same messageId"


class PostgresOwnership:
    """The claims of this process, which is one node of several.

    `runs_limit` is how many runs it may have at a time: None is any number, and 0 makes it a front that only accepts
    messages. It hears of its own lease from the beat, and of other nodes from the bus. `beat_now` makes
    it beat at once, and says whether this node still runs tasks.
    """

    shared: bool = True
    first_epoch: int = 1
    is_home: bool = False

    def __init__(
        self,
        database: Database,
        lease: NodeLease,
        writer: GroupCommit,
        retry: Retry,
        clock: Clock,
        runs_limit: int | None = None,
        *,
        beat_now: Callable[[bool], None] | None = None,
    ) -> None:
        self._database = database
        self._lease = lease
        self._writer = writer
        self._retry = retry
        self._clock = clock
        self._runs_limit = runs_limit
        self._runs = 0
        self._retired = False
        self._beat_now = beat_now or _do_nothing
        self._looks: list[asyncio.Future[None]] = []
        self._peer_agents: frozenset[str] = frozenset()
        self._node = 0
        self._deaths = 0
        self._listeners: dict[object, OwnershipListener] = {}
        self._waiters: list[asyncio.Future[None]] = []
        self._releases: set[asyncio.Task[None]] = set()
        self._announce: Callable[[], None] = _do_nothing
        self._notify: Callable[[str, int], None] = _do_nothing

    # -- start and stop ------------------------------------------------------------------------------------------------

    @property
    def node(self) -> int:
        """The id of this node. It changes when others have declared this process dead."""
        return self._node

    def connect(self, announce: Callable[[], None], notify: Callable[[str, int], None]) -> None:
        """Connect it to the bus: `announce` tells other nodes of work, `notify` of a change of a task."""
        self._announce, self._notify = announce, notify

    def start(self, node: int) -> None:
        """Begin as this node; its lease is valid."""
        self._node, self._retired = node, False

    async def stop(self) -> None:
        """Finish what is being released. What a silent database still has, others get when this node has left."""
        releases = list(self._releases)
        releasing = asyncio.gather(*releases, return_exceptions=True)
        if not await wait(self._clock, releasing, RETRY_SECONDS):
            for release in releases:
                release.cancel()
            await releasing

    async def wait_released(self) -> None:
        """Wait until the claims that were given up so far are so in the database, and announced."""
        if self._releases:
            await asyncio.wait(self._releases)

    def is_current(self, claim: Claim) -> bool:
        """False: only the database says who owns a task."""
        return False

    # -- claims ----------------------------------------------------------------------------------------------------

    async def claim(self, stored: StoredTask, *, revoke: bool = False) -> ClaimedTask | None:
        """Claim a stored task; None when another node owns it, or it has moved on or, with `revoke`, has ended.

        Raises:
            ServerError: the database does not answer.
        """
        row, node = stored.row, await self.require_node()
        # Once more is harmless: a node may claim its own task again.
        claimed = await self._retry.call(lambda: self._database.claim(node, row.number, row.generation, revoke=revoke))
        if node != self._node:
            raise ServerError(DECLARED_DEAD, retryAfter="1")
        return claimed

    def release(self, claim: Claim, *, begun: bool = False) -> None:
        """Give up a claim. Work that has not begun, or that has and may begin again, is queued and announced."""
        releasing = asyncio.get_running_loop().create_task(self._release(self._node, claim, begun=begun))
        self._releases.add(releasing)
        releasing.add_done_callback(self._releases.discard)

    async def _release(self, node: int, claim: Claim, *, begun: bool) -> None:
        delay, repeated = FIRST_DELAY, False
        while node and node == self._node:  # otherwise it was lost
            try:
                released = await answer_within(
                    self._clock,
                    SILENCE_SECONDS,
                    lambda: self._database.release(node, claim.task, claim.epoch, begun=begun),
                )
            except ConnectionLost:
                await sleep(self._clock, delay)
                delay, repeated = min(2 * delay, LAST_DELAY), True
            else:
                if released or repeated:
                    self.announce_work()
                return

    async def take(self, agent: str, *, parallel: bool, limit: int, queued: bool = True) -> list[ClaimedTask]:
        """Claim unfinished tasks of an agent that no live node works on, oldest first.

        What was claimed with an answer that got lost, `owned` shows.

        Raises:
            ServerError: the database does not answer.
        """
        node = await self.require_node()
        taken = await self._retry.call(
            lambda: self._database.take(node, agent, parallel=parallel, limit=limit, queued=queued)
        )
        return taken if node == self._node else []

    async def post(
        self, row: TaskRow, body: bytes, dedupe_key: DedupeKey | None = None, generation: int | None = None
    ) -> bool:
        """Add the message of a caller to a task that is submitted, working or auth-required, and wake its owner.

        Raises:
            MessageRepeated: the dedupe key exists already.
            ServerError: the database does not answer.
        """
        key = secrets.randbits(63)
        outcome = await self._retry.call(lambda: self._database.post(row, body, dedupe_key, generation, key))
        if outcome.kind == "repeated":
            raise MessageRepeated("another server has accepted this message")
        if outcome.kind != "committed":
            return False
        self._notify(row.id, row.generation)
        asyncio.get_running_loop().call_soon(self.on_touched, (row.id,))  # its owner may be this process
        return True

    async def mail(self, number: int, after: int) -> list[tuple[int, bytes]]:
        """The messages that were added to a task with `post`, with their numbers, after number `after`."""
        return await self._retry.call(lambda: self._database.run(reader.mail, number, after))

    async def owned(self) -> Mapping[int, TaskClaim]:
        """The tasks that this process owns according to the database, by number. Raises ServerError."""
        return await self._retry.call(lambda: self._database.run(claims.owned, self._node))

    # -- the lease -------------------------------------------------------------------------------------------------

    @property
    def expired(self) -> bool:
        """True when this process could not renew its lease in time."""
        return self._lease.expired or not self._node

    async def wait_renewed(self) -> None:
        """Wait until the lease is valid. Raises OwnershipLost when others have declared this process dead meanwhile."""
        deaths = self._deaths
        while self.expired and deaths == self._deaths:
            await self._next_renewal()
        if deaths != self._deaths:
            raise OwnershipLost(DECLARED_DEAD)

    def _next_renewal(self) -> asyncio.Future[None]:
        renewal: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(renewal)
        return renewal

    async def require_node(self) -> int:
        """Return the id of this node. Waits some seconds for the lease, if it has ended.

        Raises:
            ServerError: the lease is not renewed.
        """
        if self.expired:
            await wait(self._clock, self._next_renewal(), RETRY_SECONDS)
            if self.expired:
                raise ServerError(EXPIRED, retryAfter="1")
        return self._node

    # -- called by the beat ----------------------------------------------------------------------------------------

    def on_renewed(self) -> None:
        """The lease was renewed."""
        self._wake_waiters()

    def on_dead(self) -> None:
        """Others have declared this node dead: all claims are lost, and so is what was not written yet."""
        self._deaths += 1
        self._node = 0
        self._writer.lose_all()
        self._each(lambda listener: listener.on_lost(None))
        self._wake_waiters()

    def on_joined(self, node: int) -> None:
        """This process is the node with this new id now."""
        self._node = node
        self._writer.resume(node)
        self.on_work()

    def on_peers(self, agents: frozenset[str]) -> None:
        """Other nodes are there that run tasks of these agents."""
        self._peer_agents = agents
        looks, self._looks = self._looks, []
        for look in looks:
            if not look.done():
                look.set_result(None)

    def on_peer_gone(self) -> None:
        """Another node has left, or was declared dead."""
        self.on_work()

    def _wake_waiters(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    # -- listeners -------------------------------------------------------------------------------------------------

    def subscribe(self, listener: OwnershipListener) -> Callable[[], None]:
        """Call a listener from now on. Returns a function that unsubscribes."""
        key = object()
        self._listeners[key] = listener
        return lambda: _discard(self._listeners, key)

    def announce_work(self) -> None:
        """Tell all nodes, this one included, that there may be tasks to take."""
        asyncio.get_running_loop().call_soon(self.on_work)
        try:
            self._announce()
        except Exception:
            logger.exception("work could not be announced")

    def on_work(self) -> None:
        """Tell the engines of this process that there may be tasks to take."""
        self._each(lambda listener: listener.on_work())

    def on_touched(self, task_ids: Sequence[str]) -> None:
        """Tell the engines of this process that another node has changed these tasks."""
        self._each(lambda listener: listener.on_touched(task_ids))

    def on_lost(self, numbers: Iterable[int] | None) -> None:
        """Tell the engines of this process that the claims of these tasks are lost; None is all."""
        lost = None if numbers is None else list(numbers)
        self._each(lambda listener: listener.on_lost(lost))

    def _each(self, call: Callable[[OwnershipListener], None]) -> None:
        for listener in list(self._listeners.values()):
            try:
                call(listener)
            except Exception:
                logger.exception("an engine could not be told of a change")

    # -- runs ----------------------------------------------------------------------------------------------------------

    @property
    def free_runs(self) -> int:
        """How many more runs this process may start."""
        if self._retired:
            return 0
        return UNLIMITED if self._runs_limit is None else max(0, self._runs_limit - self._runs)

    def count_run(self, change: int) -> None:
        """Count a run that starts (1) or has ended (-1). What waits for room is looked for at once."""
        was_full = not self.free_runs
        self._runs += change
        if was_full and self.free_runs:
            asyncio.get_running_loop().call_soon(self.on_work)

    def retire(self) -> None:
        """Start no more runs: from now on, this node is a front for the others."""
        self._retired = True

    async def look_for_peers(self) -> None:
        """Beat now: the others get to know what this node does, and it gets to know them."""
        look: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._looks.append(look)
        self._beat_now(not self._retired)
        await wait(self._clock, look, LOOK_SECONDS)

    def has_peer(self, agent: str) -> bool:
        """True when another node is there that may run tasks of this agent."""
        return agent in self._peer_agents


def _do_nothing(*_: object) -> None:
    pass


def _discard(listeners: dict[object, OwnershipListener], key: object) -> None:
    listeners.pop(key, None)
