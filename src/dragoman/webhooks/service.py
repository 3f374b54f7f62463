"""Delivers the events of all tasks to their webhooks."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING

from msgspec import structs

from dragoman.engine.ports.sole import SoleOwner
from dragoman.engine.ports.store import PushState, Write
from dragoman.model.error import DragomanError
from dragoman.telemetry.metrics.catalog import METRICS
from dragoman.webhooks.config import WebhookRegistry
from dragoman.webhooks.delivery import Delivery
from dragoman.webhooks.request import ISSUER
from dragoman.webhooks.scheduler import FairScheduler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dragoman.clock import Clock, Timer
    from dragoman.engine.ports.bus import Bus
    from dragoman.engine.ports.ownership import Ownership
    from dragoman.engine.ports.store import Push, Store, TaskRow
    from dragoman.model.operation import TaskPushNotificationConfig
    from dragoman.net.exchange import HttpClient
    from dragoman.net.guard import AddressGuard
    from dragoman.webhooks.config import SecretSealer
    from dragoman.webhooks.request import RequestSigner
    from dragoman.webhooks.sender import WebhookSender

logger = logging.getLogger("dragoman.push")
# Seconds between two looks for webhooks that `dragoman push retry` has woken or that no process delivers to, and the
# least between two when there may be some.
WAKE_POLL_INTERVAL = 5.0
_MIN_POLL_INTERVAL = 2.0


class DeliveryService(WebhookRegistry):
    """Implements `Outbox`: delivers the events of all tasks to their webhooks.

    An event is retried with the delays of `backoff` after a lost connection, after 408, 425 and 429, and after every
    other status that is not 2xx or 4xx. Any other 4xx is recorded and its event skipped. A webhook is given up when it
    has failed for `give_up` seconds, answers 410, or its address is forbidden; then it is dead until `dragoman push
    retry` wakes it.

    With `chunks`, the pieces of a streamed artifact are sent too, not only the finished artifact. At most
    `max_per_host` webhooks of one origin are served at once, and `max_total` in all. `warm` loads what the first
    delivery needs: it is called in a thread when deliveries start, and raises nothing. `senders` send the tasks of the
    agents with these names, in place of a request to the webhook.

    With an `ownership` that is shared, a webhook is delivered to by one process at a time: the one that has stored it,
    or has claimed it when that one was gone. It asks before each page whether it still is that process, and before each
    request whether its lease is valid. A request that was on its way when the process died is repeated by another.
    """

    def __init__(
        self,
        store: Store,
        bus: Bus,
        clock: Clock,
        http: HttpClient,
        sealer: SecretSealer,
        guard: AddressGuard,
        *,
        signer: RequestSigner | None = None,
        issuer: str = ISSUER,
        chunks: bool = False,
        give_up: float = 86_400.0,
        max_per_host: int = 16,
        max_total: int = 256,
        warm: Callable[[], None] | None = None,
        senders: Mapping[str, WebhookSender] | None = None,
        ownership: Ownership | None = None,
    ) -> None:
        super().__init__(clock, sealer, guard, signer)
        self.store = store
        self.bus = bus
        self.http = http
        self.issuer = issuer
        self.chunks = chunks
        self.give_up_ms = int(give_up * 1000)
        self.scheduler = FairScheduler(Delivery.start_work, max_per_key=max_per_host, max_total=max_total)
        self.senders = senders or {}
        self.ownership: Ownership = ownership or SoleOwner(store)
        self._unsubscribe: Callable[[], None] | None = None
        self._warm = warm
        self._warming: asyncio.Future[None] | None = None
        self._deliveries: dict[tuple[int, str], Delivery] = {}
        # Those whose last try has failed.
        self.late: set[Delivery] = set()
        # The running deliveries, and the poll for woken webhooks while it runs.
        self.workers: set[asyncio.Task[None]] = set()
        self._poll_timer: Timer | None = None
        self._polled_ms = 0
        self._is_blind = False  # the last poll failed
        self._closed = False

    @property
    def open_count(self) -> int:
        """How many webhooks are open: their tasks may still have events for them."""
        return len(self._deliveries)

    @property
    def busy_count(self) -> int:
        """How many deliveries are running or queued. The poll for woken webhooks counts as one while it runs."""
        return len(self.workers) + self.scheduler.waiting

    @property
    def owed_count(self) -> int:
        """How many webhooks have something to be delivered, from memory."""
        # Whatever is behind is at work, has its turn soon, or waits for its next try.
        waiting = sum(1 for delivery in self.late if delivery.is_waiting)
        return self.scheduler.running + self.scheduler.waiting + waiting

    def sample(self) -> None:
        """Set the metrics of webhooks that have something to be delivered, from memory."""
        METRICS.webhooks_owed.set(self.owed_count)
        METRICS.webhooks_late.set(len(self.late))

    # -- start and stop ------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Resume the open webhooks of the store, and start to look for others that were woken or have no process."""
        self._unsubscribe = self.ownership.subscribe(self)
        if self.ownership.shared:
            await self._resume_woken()  # this process has no webhooks before it claims them
        else:
            for push, row in await self.store.undelivered_pushes():
                if push.state is PushState.OPEN:
                    self.follow(row, push)
            await self._catch_up()
            self._schedule_poll()
        if self._warm is not None:
            self._warming = asyncio.ensure_future(asyncio.to_thread(self._warm))

    async def _catch_up(self) -> None:
        """Catch up with tasks that moved on between reading the store and subscribing to them."""
        for push, row in await self.store.undelivered_pushes() if self._deliveries else ():
            delivery = self._deliveries.get((push.task, push.id))
            if delivery is not None:
                delivery.catch_up(row.generation)

    async def close(self) -> None:
        """Stop. What has not arrived stays in the store for the next start."""
        self._closed = True
        if self._unsubscribe is not None:
            self._unsubscribe()
        if self._poll_timer is not None:
            self._poll_timer.cancel()
        for delivery in list(self._deliveries.values()):
            self.forget(delivery)
        workers: list[asyncio.Future[None]] = list(self.workers)
        if self._warming is not None:
            workers.append(self._warming)
        for worker in workers:
            worker.cancel()
        if workers:
            await asyncio.wait(workers)
        await self.http.close()

    # -- called by the engine --------------------------------------------------------------------------------------

    def prepare(self, config: TaskPushNotificationConfig, *, task: int, dialect: str, cursor: int) -> Push:
        """Build the webhook to store; one that replaces a followed webhook continues at its cursor."""
        followed = self._deliveries.get((task, config.id or ""))
        if followed is not None:
            cursor = followed.push.cursor
        push = super().prepare(config, task=task, dialect=dialect, cursor=cursor)
        # A replacement may be registered with another process within the same millisecond.
        return structs.replace(push, epoch=random.getrandbits(30)) if self.ownership.shared else push

    def follow(self, row: TaskRow, push: Push, *, may_be_behind: bool = False) -> None:
        """Start the delivery of a task's events to a webhook, in place of one with the same id.

        With `may_be_behind`, the journal is looked at once, whatever the row says.
        """
        followed = self._deliveries.get((push.task, push.id))
        if followed is not None and followed.push.created_ms == push.created_ms and followed.push.epoch > push.epoch:
            return  # this process was declared dead, and has claimed the webhook again since this was stored
        self.unfollow(push.task, push.id)
        if not self._closed and push.state is PushState.OPEN:
            self._deliveries[push.task, push.id] = delivery = Delivery(self, row, push, may_be_behind=may_be_behind)
            if push.tries:
                self.late.add(delivery)
            delivery.start()

    def unfollow(self, task: int, push_id: str) -> bool:
        """Stop a delivery and cancel its request. Returns whether there was one."""
        delivery = self._deliveries.get((task, push_id))
        if delivery is None:
            return False
        self.forget(delivery)
        delivery.cancel()
        return True

    def wake(self) -> None:
        """Look soon for webhooks that were woken in the store."""
        self.on_work()

    # -- called by deliveries ---------------------------------------------------------------------------------------

    def forget(self, delivery: Delivery) -> None:
        """Stop a delivery and drop it."""
        delivery.stop()
        self.late.discard(delivery)
        if self._deliveries.get(delivery.key) is delivery:
            del self._deliveries[delivery.key]

    def save(self, row: TaskRow, push: Push) -> None:
        """Save the progress of a delivery."""
        self.store.write(Write(row, _log_save_error, push_progress=(push,)))

    async def is_claimed(self, push: Push) -> bool:
        """True when the store says that this process delivers to a webhook: nobody has deleted, replaced or claimed it.

        Raises:
            ServerError: the store does not answer.
        """
        return any(
            (each.id, each.created_ms, each.epoch) == (push.id, push.created_ms, push.epoch)
            for each in await self.store.pushes(push.task)
        )

    # -- called by the ownership ---------------------------------------------------------------------------------------

    def on_work(self) -> None:
        """Look for webhooks soon: a process may be gone, and its webhooks with it."""
        if self._poll_timer is not None and not self._closed:
            self._poll_timer.cancel()
            elapsed = (self.clock.now() - self._polled_ms) / 1000
            self._schedule_poll(min(max(_MIN_POLL_INTERVAL - elapsed, 0), _MIN_POLL_INTERVAL))

    def on_touched(self, task_ids: Sequence[str]) -> None:
        """Do nothing: deliveries are woken by the bus."""

    def on_lost(self, numbers: Iterable[int] | None) -> None:
        """Stop all deliveries if this process was declared dead. What claims are left is found by the next look."""
        if numbers is None:
            for delivery in list(self._deliveries.values()):
                self.forget(delivery)
                delivery.cancel()
            self.on_work()

    # -- webhooks that were woken by hand, or have no process ----------------------------------------------------------

    def _schedule_poll(self, seconds: float | None = None) -> None:
        if not self._closed:
            self._poll_timer = self.clock.call_later(
                WAKE_POLL_INTERVAL if seconds is None else seconds, self._poll_woken
            )

    def _poll_woken(self) -> None:
        self._poll_timer = None
        worker = asyncio.ensure_future(self._resume_woken())
        self.workers.add(worker)
        worker.add_done_callback(self.workers.discard)

    async def _resume_woken(self) -> None:
        """Resume the webhooks that `dragoman push retry` has woken, and those that this process claims."""
        self._polled_ms = self.clock.now()
        try:
            woken = await self.store.undelivered_pushes(woken=True)
            for push, row in woken:
                existing = self._deliveries.get((push.task, push.id))
                if existing is None or existing.is_waiting or existing.push.epoch != push.epoch:
                    cursor = existing.push.cursor if existing and existing.push.created_ms == push.created_ms else 0
                    renewed = structs.replace(push, due_ms=0, cursor=max(push.cursor, cursor))
                    self.follow(row, renewed)
                    self.save(row, renewed)
            if woken:
                await self._catch_up()
        except DragomanError as error:
            if not self._is_blind:  # an outage may be long
                logger.warning("cannot look for webhooks that wait to be delivered: %s", error)
            self._is_blind = True
        else:
            self._is_blind = False
        finally:
            self._schedule_poll()


def _log_save_error(error: BaseException | None) -> None:
    if error is not None:
        # After a restart the event is sent again, with the same idempotency key.
        logger.error("the progress of a webhook could not be saved: %s", error)
