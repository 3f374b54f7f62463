"""The delivery of one task's events to one webhook: from the journal, in order, with retries until they arrive.

The retry delay is decided in `backoff.retry_delay`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from msgspec import structs

from dragoman.engine.journal.replay import JournalCompacted
from dragoman.engine.ports.ownership import OwnershipLost
from dragoman.engine.ports.store import PushState
from dragoman.keys.errors import BadSeal
from dragoman.model.error import CannotConnect, DragomanError
from dragoman.net.exchange import origin_of
from dragoman.net.guard import AddressForbidden
from dragoman.telemetry.metrics.catalog import METRICS
from dragoman.telemetry.spans import TRACING
from dragoman.webhooks import backoff
from dragoman.webhooks.payload import PayloadBuilder
from dragoman.webhooks.request import delivery_request, post
from dragoman.webhooks.sender import WebhookNotFound
from dragoman.webhooks.traces import post_in_span

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.clock import Timer
    from dragoman.engine.ports.store import Push, StoredTask, TaskRow
    from dragoman.model.record import Record
    from dragoman.webhooks.service import DeliveryService

logger = logging.getLogger("dragoman.push")
_PAGE = 64
_GONE = 410
# 4xx statuses that are retried: request timeout, too early, too many requests.
_TRANSIENT = frozenset((408, 425, 429))
# Seconds: the limit for one request to a webhook, however slowly its response arrives.
_REQUEST_TIMEOUT = 90.0
# Seconds between two reads of a journal whose new records (such as chunks) are not sent to the webhook.
QUIET_INTERVAL = 0.05
LOST_KEY = "its secrets were sealed with a key that this server does not have: register it again"


class Delivery:
    """The delivery of one task's events to one webhook. Kept small: many thousands may exist for paused tasks.

    It is idle, busy (`_is_busy`: running or queued in the scheduler), or waiting for a timer. `_has_more` means that
    the last page was full, or that there may be records of which nobody has told it; `_is_quiet` that nothing in the
    last page was sent; `_is_stopped` that the delivery has ended.
    """

    __slots__ = (
        "_generation",
        "_has_more",
        "_is_busy",
        "_is_quiet",
        "_is_stopped",
        "_origin",
        "_payloads",
        "_row",
        "_service",
        "_timer",
        "_unsubscribe",
        "_worker",
        "push",
    )

    def __init__(self, service: DeliveryService, row: TaskRow, push: Push, *, may_be_behind: bool = False) -> None:
        self._service = service
        self._row = row
        self.push = push
        self._origin = origin_of(push.url)
        self._generation = row.generation
        self._is_busy = False
        self._is_quiet = False
        self._has_more = may_be_behind
        self._is_stopped = False
        self._payloads: PayloadBuilder | None = None
        self._worker: asyncio.Task[None] | None = None
        self._timer: Timer | None = None
        self._unsubscribe: Callable[[], None] | None = None

    @property
    def key(self) -> tuple[int, str]:
        """The task's number and the webhook's id."""
        return self.push.task, self.push.id

    @property
    def is_waiting(self) -> bool:
        """True while a timer is pending: for a retry, or for the quiet interval."""
        return self._timer is not None

    @property
    def _is_behind(self) -> bool:
        return self._has_more or self._generation > self.push.cursor

    # -- when there is work --------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Subscribe to the task and deliver what is undelivered already."""
        self._unsubscribe = self._service.bus.add_callback(self._row.id, self._on_generation)
        delay = backoff.seconds_until_due(self.push, self._service.clock.now())
        if delay > 0:
            self._start_timer(delay)
        elif self._is_behind or self._row.state.final:
            self._enqueue()

    def catch_up(self, generation: int) -> None:
        """Take note that the task has reached a generation."""
        if generation > self._generation:
            self._on_generation(generation)

    def _on_generation(self, generation: int) -> None:
        if generation > self._generation:  # those of other processes may arrive out of order
            self._generation = generation
        self._continue()

    def stop(self) -> None:
        """Unsubscribe and cancel the timer. A request that is being made goes on, unless `cancel` is called."""
        self._is_stopped = True
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def cancel(self) -> None:
        """Cancel the request that is being made, if any."""
        if self._worker is not None:
            self._worker.cancel()

    def start_work(self) -> bool:
        """Start a worker; the scheduler calls this. False when the delivery has ended meanwhile."""
        if self._is_stopped:
            return False
        self._worker = asyncio.ensure_future(self._deliver())
        self._service.workers.add(self._worker)
        self._worker.add_done_callback(self._on_done)
        return True

    def _on_done(self, worker: asyncio.Task[None]) -> None:
        self._service.workers.discard(worker)
        self._worker, self._is_busy = None, False
        error = None if worker.cancelled() else worker.exception()
        if error is not None and not self._is_stopped:
            # Such as a store that cannot be read now, which has been logged.
            is_expected = isinstance(error, DragomanError)
            logger.error(
                "the delivery to a webhook of task %s failed", self._row.id, exc_info=None if is_expected else error
            )
            self._record_failure(type(error).__name__, 0.0)
        self._service.scheduler.release(self._origin)
        self._continue()

    def _continue(self) -> None:
        """Continue if the task is ahead of the cursor: at once, or a bit later if the last page sent nothing."""
        if self._is_stopped or not self._is_behind or self._is_busy or self._timer is not None:
            return
        if self._is_quiet and not self._has_more:
            self._start_timer(QUIET_INTERVAL)
        else:
            self._enqueue()

    def _enqueue(self) -> None:
        if not (self._is_busy or self._is_stopped or self._timer is not None):
            self._is_busy = True
            self._service.scheduler.enqueue(self._origin, self)

    def _start_timer(self, seconds: float) -> None:
        def on_timer() -> None:
            self._timer = None
            self._enqueue()

        if not self._is_stopped:
            self._timer = self._service.clock.call_later(seconds, on_timer)

    # -- work ----------------------------------------------------------------------------------------------------------

    async def _deliver(self) -> None:
        """Deliver one page of the records after the cursor."""
        self._has_more = False
        service = self._service
        await service.ready()
        if service.ownership.shared and not await service.is_claimed(self.push):
            service.forget(self)
            return
        stored = await service.store.task(self._row.id)
        if stored is None or stored.row.number != self.push.task:
            service.forget(self)
            return
        page = await service.store.records(self.push.task, self.push.cursor, _PAGE)
        payloads = self._payloads or PayloadBuilder(service.store, stored, self.push.dialect, chunks=service.chunks)
        payloads.refresh(stored)
        try:
            if page:
                self._has_more = await self._deliver_page(page, payloads) and len(page) == _PAGE
            else:
                await self._deliver_stored_state(stored, payloads)
        except JournalCompacted:
            await self._deliver_stored_state(stored, payloads)
        except OwnershipLost:
            service.forget(self)
            return
        # The replayed task is kept for the next page only.
        self._payloads = payloads if self._has_more else None

    async def _deliver_page(self, page: list[Record], payloads: PayloadBuilder) -> bool:
        """Deliver a page of records; False when the delivery has failed or the task has ended."""
        self._is_quiet = True
        for record in page:
            body = await payloads.build(record)
            if body is not None:
                self._is_quiet = False
                if not await self._post(record.generation, body, payloads):
                    return False
            state = record.state
            is_final = state is not None and state.final
            # A record that is not sent moves the cursor in memory only: that saves a write.
            if body is not None or is_final:
                self._record_success(record.generation, is_final=is_final)
            else:
                self.push = structs.replace(self.push, cursor=record.generation)
            if is_final:
                return False
        return True

    async def _deliver_stored_state(self, stored: StoredTask, payloads: PayloadBuilder) -> None:
        """Handle a journal without records after the cursor: it was compacted, or everything has been delivered.

        Sends the stored state if the cursor is behind it, and closes the webhook if the task has ended.
        """
        generation, is_final = stored.row.generation, stored.row.state.final
        if self.push.cursor >= generation and not is_final:
            return
        body = payloads.build_from_snapshot(stored) if self.push.cursor < generation else None
        if body is None or await self._post(generation, body, payloads):
            self._record_success(generation, is_final=is_final)

    async def _post(self, generation: int, body: bytes, payloads: PayloadBuilder) -> bool:
        """Post one event.

        Returns True when the cursor may pass it: it arrived, or was refused and is skipped. False when it is retried
        later, or the webhook was given up.

        Raises:
            OwnershipLost: another process delivers to the webhook now, because this one could not renew its lease.
        """
        push, service = self.push, self._service
        if service.ownership.expired:
            await service.ownership.wait_renewed()
        try:
            if (sender := service.senders.get(self._row.scope.agent)) is not None:
                async with asyncio.timeout(_REQUEST_TIMEOUT):
                    reason = await sender.send(await payloads.task(generation), service.config(push, self._row.id))
                if reason is not None:
                    self._record_failure(reason, 0.0)
                    return False
                _count("delivered")
                return True
            request = delivery_request(
                push,
                service.secrets(push),
                self._row.id,
                generation,
                body,
                payloads.media_type,
                signer=service.signer,
                issuer=service.issuer,
                now=service.clock.now() // 1000,
            )
            status, retry_after = await (
                post_in_span(service.http, request, _REQUEST_TIMEOUT, service.store, self._row)
                if TRACING.on
                else post(service.http, request, _REQUEST_TIMEOUT)
            )
        except TimeoutError:
            self._record_failure("TIMED_OUT", 0.0)
        except CannotConnect as error:
            self._record_failure(error.reason, 0.0)
        except (AddressForbidden, WebhookNotFound) as error:
            self._give_up(str(error))  # a retry would be refused too
        except BadSeal:
            self._give_up(LOST_KEY)
        else:
            if 200 <= status < 300:
                _count("delivered")
                return True
            if status == _GONE:
                _count("refused")
                self._give_up(f"HTTP {status}")
            elif 400 <= status < 500 and status not in _TRANSIENT:
                self._record_refusal(generation, status)
                return True
            else:
                self._record_failure(f"HTTP {status}", backoff.parse_retry_after(retry_after, service.clock.now()))
        return False

    # -- progress ------------------------------------------------------------------------------------------------------

    def _record_success(self, generation: int, *, is_final: bool) -> None:
        state = PushState.DONE if is_final else PushState.OPEN
        cursor = max(generation, self.push.cursor)
        skipped = backoff.skipped_event(self.push)
        self._service.late.discard(self)
        self.push = structs.replace(
            self.push, cursor=cursor, tries=0, failing_ms=0, due_ms=0, state=state, error=skipped
        )
        self._save()

    def _record_refusal(self, generation: int, status: int) -> None:
        """Note that an event was refused for good. The caller saves it with the new cursor."""
        _count("refused")
        # Only the first one is a warning: a receiver must not be able to flood the log.
        level = logging.INFO if backoff.skipped_event(self.push) else logging.WARNING
        self.push = backoff.after_refusal(self.push, generation, status)
        logger.log(level, "webhook at %s, task %s: %s", self._origin, self._row.id, self.push.error)

    def _record_failure(self, reason: str, retry_after: float) -> None:
        _count("failed")
        now = self._service.clock.now()
        failed = backoff.after_failure(
            self.push, reason, now_ms=now, retry_after=retry_after, give_up_ms=self._service.give_up_ms
        )
        if failed.state is PushState.DEAD:
            self._give_up(reason)
            return
        self.push = failed
        self._service.late.add(self)
        text = "webhook at %s, task %s: %s, tried %d times"
        logger.info(text, self._origin, self._row.id, reason, failed.tries, extra=self._log_fields())
        self._save()
        self._start_timer(backoff.seconds_until_due(failed, now))

    def _log_fields(self) -> dict[str, str]:
        return {"agent": self._row.scope.agent, "task": self._row.id}

    def _give_up(self, reason: str) -> None:
        if METRICS.on:
            METRICS.webhooks_dead.add(1)
        # Only the origin of a URL is logged: many webhook URLs have a secret in their path.
        text = "webhook at %s, task %s, is given up: %s"
        logger.warning(text, self._origin, self._row.id, reason, extra=self._log_fields())
        since = self.push.failing_ms or self._service.clock.now()
        error = backoff.with_skipped_event(self.push, reason)
        self.push = structs.replace(self.push, state=PushState.DEAD, error=error, failing_ms=since, due_ms=0)
        self._save()

    def _save(self) -> None:
        if self._is_stopped:
            return
        self._service.save(self._row, self.push)
        if self.push.state is not PushState.OPEN:
            self._service.forget(self)


def _count(outcome: str) -> None:
    if METRICS.on:
        METRICS.deliveries.add(1, (outcome,))
