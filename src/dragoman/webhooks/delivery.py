"""Delivers events to webhooks from the journal: in order, again until they arrive, never in anybody's way."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from msgspec import structs

from dragoman.engine.ports import PushState, Write
from dragoman.keys.errors import BadSeal
from dragoman.model.error import CannotConnect, DragomanError
from dragoman.net.exchange import origin_of
from dragoman.net.guard import Forbidden
from dragoman.webhooks import backoff
from dragoman.webhooks.config import WebhookRegistry
from dragoman.webhooks.payload import Compacted, Payloads
from dragoman.webhooks.request import delivery_request, post
from dragoman.webhooks.scheduler import FairScheduler

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.clock import Clock, Timer
    from dragoman.engine.ports import Bus, Push, Store, StoredTask, TaskRow
    from dragoman.model.operation import TaskPushNotificationConfig
    from dragoman.model.record import Record
    from dragoman.net.exchange import HttpClient
    from dragoman.webhooks.config import AddressGuard, Sealer
    from dragoman.webhooks.request import Signer

logger = logging.getLogger("dragoman.push")
_PAGE = 64
_GONE = 410
# Errors of the 4xx range that pass: the request took too long, came too early, or was one too many.
_PASSING = frozenset((408, 425, 429))
# A request to a webhook takes no longer, however slowly its answer trickles.
_SECONDS = 90.0
# A stream whose chunks are not brought is looked at this often, and not with each of them.
CALM = 0.05
# How often the store is asked whether somebody has woken a webhook by hand.
LOOK = 5.0
LOST_KEY = "its secrets were sealed with a key that this server does not have: register it again"


class _Webhook:
    """How far the delivery to one webhook is. Many thousands may wait for parked tasks: it is small.

    It is at rest, `busy` (at work, or waiting for its turn), or has a timer that ends its rest. `more` says that its
    last look was not enough, `calm` that it found nothing to bring, `gone` that nobody is to work for it any more.
    """

    __slots__ = ("busy", "calm", "gone", "heard", "more", "payloads", "place", "push", "row", "stop", "timer", "worker")

    def __init__(self, row: TaskRow, push: Push) -> None:
        self.row = row
        self.push = push
        self.place = origin_of(push.url)
        self.heard = row.generation
        self.busy = False
        self.calm = False
        self.more = False
        self.gone = False
        self.payloads: Payloads | None = None
        self.worker: asyncio.Task[None] | None = None
        self.timer: Timer | None = None
        self.stop: Callable[[], None] | None = None

    @property
    def key(self) -> tuple[int, str]:
        """By what it is found: the task's number and its own id."""
        return self.push.task, self.push.id

    @property
    def behind(self) -> bool:
        """True when the task is known to have come further than this webhook was told."""
        return self.more or self.heard > self.push.cursor

    def rest(self) -> None:
        """Stop listening and waiting."""
        self.gone = True
        if self.stop is not None:
            self.stop()
            self.stop = None
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class DeliveryService(WebhookRegistry):
    """See `Outbox`. A webhook that has failed for `give_up` seconds is dead: it is left alone until somebody wakes it.

    An event that its receiver refuses (4xx) is recorded and skipped; 410 ends the webhook; everything else that is not
    2xx is tried again.

    `chunks` says whether the pieces of a streamed text are brought too, and not only the finished artifact. Of one
    origin at most `each` webhooks are served at once, and `most` in all. `warm` loads what the first delivery needs:
    it is called in a thread when deliveries start, and raises nothing.
    """

    def __init__(
        self,
        store: Store,
        bus: Bus,
        clock: Clock,
        http: HttpClient,
        sealer: Sealer,
        guard: AddressGuard,
        *,
        signer: Signer | None = None,
        issuer: str = "dragoman",
        chunks: bool = False,
        give_up: float = 86_400.0,
        each: int = 16,
        most: int = 256,
        warm: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(clock, sealer, guard, signer)
        self._store = store
        self._bus = bus
        self._http = http
        self._issuer = issuer
        self._chunks = chunks
        self._give_up_ms = int(give_up * 1000)
        self._scheduler = FairScheduler(self._begin, each=each, most=most)
        self._warm = warm
        self._warming: asyncio.Future[None] | None = None
        self._hooks: dict[tuple[int, str], _Webhook] = {}
        self._workers: set[asyncio.Task[None]] = set()
        self._looking: Timer | None = None
        self._closed = False

    @property
    def open(self) -> int:
        """How many webhooks are followed."""
        return len(self._hooks)

    @property
    def at_work(self) -> int:
        """How many webhooks are being served, or wait for their turn."""
        return len(self._workers) + self._scheduler.waiting

    # -- life ----------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Take up what a server before this one has left."""
        for push, row in await self._store.owed():
            if push.state is PushState.OPEN:
                self.follow(row, push)
        await self._catch_up()
        self._look_later()
        if self._warm is not None:
            self._warming = asyncio.ensure_future(asyncio.to_thread(self._warm))

    async def _catch_up(self) -> None:
        """Notice what tasks did after they were read and before they were listened to."""
        for push, row in await self._store.owed() if self._hooks else ():
            hook = self._hooks.get((push.task, push.id))
            if hook is not None and row.generation > hook.heard:
                self._heard(hook, row.generation)

    async def close(self) -> None:
        """Stop; what has not arrived is owed to whoever starts next."""
        self._closed = True
        if self._looking is not None:
            self._looking.cancel()
        for hook in list(self._hooks.values()):
            self._forget(hook)
        workers: list[asyncio.Future[None]] = list(self._workers)
        if self._warming is not None:
            workers.append(self._warming)
        for worker in workers:
            worker.cancel()
        if workers:
            await asyncio.wait(workers)
        await self._http.close()

    # -- what the engine asks for --------------------------------------------------------------------------------------

    def prepare(self, config: TaskPushNotificationConfig, *, task: int, dialect: str, cursor: int) -> Push:
        """See `Outbox.prepare`."""
        followed = self._hooks.get((task, config.id or ""))
        if followed is not None:
            cursor = followed.push.cursor
        return super().prepare(config, task=task, dialect=dialect, cursor=cursor)

    def follow(self, row: TaskRow, push: Push) -> None:
        """See `Outbox.follow`."""
        self.leave(push.task, push.id)
        if self._closed or push.state is not PushState.OPEN:
            return
        hook = _Webhook(row, push)
        self._hooks[hook.key] = hook
        hook.stop = self._bus.call(row.id, partial(self._heard, hook))
        wait = backoff.until_due(push, self._clock.now())
        if wait > 0:
            self._later(hook, wait)
        elif hook.behind or row.state.final:
            self._kick(hook)

    def leave(self, task: int, push_id: str) -> None:
        """See `Outbox.leave`."""
        hook = self._hooks.get((task, push_id))
        if hook is not None:
            self._forget(hook)
            if hook.worker is not None:
                hook.worker.cancel()

    def _forget(self, hook: _Webhook) -> None:
        hook.rest()
        if self._hooks.get(hook.key) is hook:
            del self._hooks[hook.key]

    # -- when there is work --------------------------------------------------------------------------------------------

    def _heard(self, hook: _Webhook, generation: int) -> None:
        hook.heard = generation
        self._go_on(hook)

    def _go_on(self, hook: _Webhook) -> None:
        """Look again if there is something to see: at once, or a bit later where nothing came of it last time."""
        if not hook.behind or hook.busy or hook.timer is not None:
            return
        if hook.calm and not hook.more:
            self._later(hook, CALM)
        else:
            self._kick(hook)

    def _kick(self, hook: _Webhook) -> None:
        if not (hook.busy or hook.gone or self._closed or hook.timer is not None):
            hook.busy = True
            self._scheduler.join(hook.place, hook)

    def _later(self, hook: _Webhook, seconds: float) -> None:
        def due() -> None:
            hook.timer = None
            self._kick(hook)

        if not hook.gone and not self._closed:
            hook.timer = self._clock.call_later(seconds, due)

    def _begin(self, hook: _Webhook) -> bool:
        if hook.gone or self._closed:
            return False
        worker = hook.worker = asyncio.ensure_future(self._bring(hook))
        self._workers.add(worker)
        worker.add_done_callback(partial(self._rested, hook))
        return True

    def _rested(self, hook: _Webhook, worker: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        hook.worker, hook.busy = None, False
        error = None if worker.cancelled() else worker.exception()
        if error is not None and not hook.gone:
            known = isinstance(error, DragomanError)  # such as a store that cannot be read now: it has been logged
            logger.error("a webhook of task %s could not be served", hook.row.id, exc_info=None if known else error)
            self._failed(hook, type(error).__name__, 0.0)
        self._scheduler.leave(hook.place)
        if not hook.gone:
            self._go_on(hook)

    def _look_later(self) -> None:
        if not self._closed:
            self._looking = self._clock.call_later(LOOK, self._look)

    def _look(self) -> None:
        worker = asyncio.ensure_future(self._wake())
        self._workers.add(worker)
        worker.add_done_callback(self._workers.discard)

    async def _wake(self) -> None:
        """Take up the webhooks that somebody has woken by hand: see `dragoman push retry`."""
        try:
            woken = await self._store.owed(woken=True)
            for push, row in woken:
                known = self._hooks.get((push.task, push.id))
                if known is None or known.timer is not None:
                    came = known.push.cursor if known and known.push.created_ms == push.created_ms else 0
                    fresh = structs.replace(push, due_ms=0, cursor=max(push.cursor, came))
                    self.follow(row, fresh)
                    self._store.write(Write(row, _report, progress=(fresh,)))
            if woken:
                await self._catch_up()
        except DragomanError as error:
            logger.warning("webhooks that were woken could not be looked for: %s", error)
        finally:
            self._look_later()

    # -- work ----------------------------------------------------------------------------------------------------------

    async def _bring(self, hook: _Webhook) -> None:
        """Bring a page of what is durable and has not arrived; there may be more."""
        hook.more = False
        await self.ready()
        stored = await self._store.task(hook.row.id)
        if stored is None or stored.row.number != hook.push.task:
            self._forget(hook)
            return
        page = await self._store.records(hook.push.task, hook.push.cursor, _PAGE)
        payloads = hook.payloads or Payloads(self._store, stored, hook.push.dialect, chunks=self._chunks)
        payloads.renew(stored)
        try:
            if page:
                hook.more = await self._bring_page(hook, page, payloads) and len(page) == _PAGE
            else:
                await self._bring_last(hook, stored, payloads)
        except Compacted:
            await self._bring_last(hook, stored, payloads)
        # What has been put together serves the next page, and nobody after that.
        hook.payloads = payloads if hook.more else None

    async def _bring_page(self, hook: _Webhook, page: list[Record], payloads: Payloads) -> bool:
        """Bring some records; False when that is not to go on."""
        hook.calm = True
        for record in page:
            body = await payloads.of(record)
            if body is not None:
                hook.calm = False
                if not await self._post(hook, record.generation, body, payloads.media_type):
                    return False
            state = record.state
            over = state is not None and state.final
            # What is nothing to the webhook need not be written down, until something is.
            if body is not None or over:
                self._came_to(hook, record.generation, over=over)
            else:
                hook.push = structs.replace(hook.push, cursor=record.generation)
            if over:
                return False
        return True

    async def _bring_last(self, hook: _Webhook, stored: StoredTask, payloads: Payloads) -> None:
        """Tell how it ended, where the single events have been compacted meanwhile."""
        generation, over = stored.row.generation, stored.row.state.final
        if hook.push.cursor >= generation and not over:
            return
        body = payloads.last(stored) if hook.push.cursor < generation else None
        if body is None or await self._post(hook, generation, body, payloads.media_type):
            self._came_to(hook, generation, over=over)

    async def _post(self, hook: _Webhook, generation: int, body: bytes, media_type: str) -> bool:
        """Post one event; True when that is settled, because it has arrived or will never be taken."""
        push = hook.push
        try:
            request = delivery_request(
                push,
                self.secrets(push),
                hook.row.id,
                generation,
                body,
                media_type,
                signer=self._signer,
                issuer=self._issuer,
                now=self._clock.now() // 1000,
            )
            status, asked = await post(self._http, request, _SECONDS)
        except TimeoutError:
            self._failed(hook, "TIMED_OUT", 0.0)
        except CannotConnect as error:
            self._failed(hook, error.reason, 0.0)
        except Forbidden as error:
            self._dead(hook, str(error))  # no later try would be better
        except BadSeal:
            self._dead(hook, LOST_KEY)
        else:
            if 200 <= status < 300:
                return True
            if status == _GONE:
                self._dead(hook, f"HTTP {status}")
            elif 400 <= status < 500 and status not in _PASSING:
                self._refused(hook, generation, status)
                return True
            else:
                self._failed(hook, f"HTTP {status}", backoff.retry_after(asked, self._clock.now()))
        return False

    # -- how far it is -------------------------------------------------------------------------------------------------

    def _came_to(self, hook: _Webhook, generation: int, *, over: bool) -> None:
        state = PushState.DONE if over else PushState.OPEN
        cursor = max(generation, hook.push.cursor)
        skipped = backoff.skipped(hook.push)
        hook.push = structs.replace(
            hook.push, cursor=cursor, tries=0, failing_ms=0, due_ms=0, state=state, error=skipped
        )
        self._write(hook)

    def _refused(self, hook: _Webhook, generation: int, status: int) -> None:
        """Record that an event will not be brought again; whoever settles it writes that down."""
        # The first is news, those after it are more of the same: a receiver does not choose how loud the log is.
        level = logging.INFO if backoff.skipped(hook.push) else logging.WARNING
        hook.push = backoff.after_refusal(hook.push, generation, status)
        logger.log(level, "webhook at %s, task %s: %s", hook.place, hook.row.id, hook.push.error)

    def _failed(self, hook: _Webhook, why: str, asked: float) -> None:
        now = self._clock.now()
        failed = backoff.after_failure(hook.push, why, now_ms=now, asked=asked, give_up_ms=self._give_up_ms)
        if failed.state is PushState.DEAD:
            self._dead(hook, why)
            return
        hook.push = failed
        logger.info("webhook at %s, task %s: %s, tried %d times", hook.place, hook.row.id, why, failed.tries)
        self._write(hook)
        self._later(hook, backoff.until_due(failed, now))

    def _dead(self, hook: _Webhook, why: str) -> None:
        # Of an address only the origin is logged: many have a secret in their path.
        logger.warning("webhook at %s, task %s, is given up: %s", hook.place, hook.row.id, why)
        since = hook.push.failing_ms or self._clock.now()
        error = backoff.with_skipped(hook.push, why)
        hook.push = structs.replace(hook.push, state=PushState.DEAD, error=error, failing_ms=since, due_ms=0)
        self._write(hook)

    def _write(self, hook: _Webhook) -> None:
        if hook.gone:
            return
        self._store.write(Write(hook.row, _report, progress=(hook.push,)))
        if hook.push.state is not PushState.OPEN:
            self._forget(hook)


def _report(error: BaseException | None) -> None:
    if error is not None:
        # It is brought again after a restart: that is what its key tells the receiver.
        logger.error("how far a webhook has come could not be written: %s", error)
