"""Brings events to webhooks: in order, again until they arrive, never in anybody's way."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec import structs

from dragoman.engine.ports import Push, PushState, Write
from dragoman.model.error import CannotConnect, DragomanError, InvalidParams
from dragoman.model.push import AuthenticationInfo, TaskPushNotificationConfig
from dragoman.net.exchange import shown
from dragoman.push.letter import Secrets, Signer, letter
from dragoman.push.payload import Payloads

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.engine.clock import Clock, Timer
    from dragoman.engine.ports import Bus, Store, StoredTask, TaskRow
    from dragoman.model.record import Record
    from dragoman.net.exchange import HttpClient

logger = logging.getLogger("dragoman.push")
_PURPOSE = "push"
_PAGE = 64
_FIRST = 1.0
_LONGEST = 300.0
_GONE = 410
_ANSWER = 64 * 1024


class Sealer(Protocol):
    """Keeps secrets in a form that is worth nothing without the server's key."""

    def seal(self, purpose: str, data: bytes) -> bytes:
        """Close."""
        ...

    def unseal(self, purpose: str, sealed: bytes) -> bytes:
        """Open. Raises DragomanError when that is not possible."""
        ...


class AddressGuard(Protocol):
    """Says where webhooks may be."""

    def check_url(self, url: str) -> None:
        """Raise DragomanError for an address that may not be called."""
        ...


class _Hook:
    """One webhook that is still owed something."""

    def __init__(self, row: TaskRow, push: Push) -> None:
        self.row = row
        self.task_id = row.id
        self.push = push
        self.heard = 0
        self.worker: asyncio.Task[None] | None = None
        self.timer: Timer | None = None
        self.stop: Callable[[], None] = lambda: None


class Courier:
    """See `Outbox`. A webhook that has failed for `give_up` seconds is dead: it is left alone until somebody wakes it.

    `chunks` says whether the pieces of a streamed text are brought too, and not only the finished artifact.
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
        at_once: int = 64,
    ) -> None:
        self._store = store
        self._bus = bus
        self._clock = clock
        self._http = http
        self._sealer = sealer
        self._guard = guard
        self._signer = signer
        self._issuer = issuer
        self._chunks = chunks
        self._give_up_ms = int(give_up * 1000)
        self._room = asyncio.Semaphore(at_once)
        self._hooks: dict[tuple[int, str], _Hook] = {}
        self._closed = False

    @property
    def open(self) -> int:
        """How many webhooks are followed."""
        return len(self._hooks)

    # -- life ----------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Take up what a server before this one has left."""
        for push, stored in await self._store.owed():
            if push.state is PushState.OPEN:
                self.follow(stored.row, push)

    async def close(self) -> None:
        """Stop; what has not arrived is owed to whoever starts next."""
        self._closed = True
        workers = [hook.worker for hook in self._hooks.values() if hook.worker is not None]
        for hook in list(self._hooks.values()):
            self._forget(hook)
        for worker in workers:
            worker.cancel()
        if workers:
            await asyncio.wait(workers)
        await self._http.close()

    # -- what the engine asks for --------------------------------------------------------------------------------------

    def prepare(self, config: TaskPushNotificationConfig, *, task: int, dialect: str, cursor: int) -> Push:
        """See `Outbox.prepare`."""
        try:
            self._guard.check_url(config.url)
        except DragomanError as error:
            raise InvalidParams(str(error), field="url") from None
        said = config.authentication
        secrets = Secrets(config.token, said.scheme if said else None, said.credentials if said else None)
        for value in (secrets.token, secrets.scheme, secrets.credentials, config.id):
            if value is not None and any(ord(letter) < 32 or ord(letter) > 126 for letter in value):
                raise InvalidParams("a webhook's token, scheme and credentials are plain ASCII", field="authentication")
        sealed = self._sealer.seal(_PURPOSE, msgspec.json.encode(secrets))
        return Push(task, config.id or "", dialect, config.url, sealed, cursor, self._clock.now())

    def shown(self, push: Push, task_id: str) -> TaskPushNotificationConfig:
        """See `Outbox.shown`."""
        try:
            scheme = self._secrets(push).scheme
        except DragomanError:
            scheme = None
        authentication = None if scheme is None else AuthenticationInfo(scheme)
        return TaskPushNotificationConfig(push.url, push.id, task_id, None, authentication)

    def follow(self, row: TaskRow, push: Push) -> None:
        """See `Outbox.follow`."""
        self.leave(push.task, push.id)
        if self._closed:
            return
        hook = self._hooks[push.task, push.id] = _Hook(row, push)

        def heard(generation: int) -> None:
            hook.heard = generation
            self._kick(hook)

        hook.stop = self._bus.call(row.id, heard)
        wait = (push.due_ms - self._clock.now()) / 1000
        if wait > 0:
            self._later(hook, wait)
        elif row.generation > push.cursor:
            self._kick(hook)

    def leave(self, task: int, push_id: str) -> None:
        """See `Outbox.leave`."""
        hook = self._hooks.get((task, push_id))
        if hook is not None:
            self._forget(hook)
            if hook.worker is not None:
                hook.worker.cancel()

    def _forget(self, hook: _Hook) -> None:
        hook.stop()
        if hook.timer is not None:
            hook.timer.cancel()
            hook.timer = None
        if self._hooks.get((hook.push.task, hook.push.id)) is hook:
            del self._hooks[hook.push.task, hook.push.id]

    # -- work ----------------------------------------------------------------------------------------------------------

    def _kick(self, hook: _Hook) -> None:
        if hook.worker is None and hook.timer is None and not self._closed:
            hook.worker = asyncio.ensure_future(self._bring(hook))
            hook.worker.add_done_callback(lambda worker: self._rested(hook, worker))

    def _rested(self, hook: _Hook, worker: asyncio.Task[None]) -> None:
        hook.worker = None
        if not worker.cancelled() and (error := worker.exception()) is not None:
            logger.error("a webhook of task %s could not be served", hook.task_id, exc_info=error)
            self._later(hook, _LONGEST)
        elif hook.heard > hook.push.cursor and self._hooks.get((hook.push.task, hook.push.id)) is hook:
            self._kick(hook)

    def _later(self, hook: _Hook, seconds: float) -> None:
        def due() -> None:
            hook.timer = None
            self._kick(hook)

        hook.timer = self._clock.call_later(seconds, due)

    async def _bring(self, hook: _Hook) -> None:
        """Bring everything that is durable and has not arrived."""
        payloads: Payloads | None = None
        while True:
            stored = await self._store.task(hook.task_id)
            if stored is None:
                self._forget(hook)
                return
            page = await self._store.records(hook.push.task, hook.push.cursor, _PAGE)
            if not page:
                await self._caught_up(hook, stored)
                return
            payloads = payloads or Payloads(self._store, stored, hook.push.dialect, chunks=self._chunks)
            if not await self._bring_page(hook, page, payloads):
                return

    async def _bring_page(self, hook: _Hook, page: list[Record], payloads: Payloads) -> bool:
        for record in page:
            body = await payloads.of(record)
            if body is not None and not await self._post(hook, record.generation, body, payloads.media_type):
                return False
            state = record.state
            over = state is not None and state.final
            # What is nothing to the webhook need not be written down, until something is.
            if body is not None or over:
                self._came_to(hook, record.generation, PushState.DONE if over else PushState.OPEN)
            else:
                hook.push = structs.replace(hook.push, cursor=record.generation)
            if over:
                self._forget(hook)
                return False
        return True

    async def _caught_up(self, hook: _Hook, stored: StoredTask) -> None:
        if hook.push.cursor >= stored.row.generation:
            return
        # The single events have been compacted meanwhile: how it ended is left.
        payloads = Payloads(self._store, stored, hook.push.dialect, chunks=self._chunks)
        body = payloads.last(stored)
        generation = stored.row.generation
        if body is None or await self._post(hook, generation, body, payloads.media_type):
            self._came_to(hook, generation, PushState.DONE if stored.row.state.final else PushState.OPEN)
            if stored.row.state.final:
                self._forget(hook)

    async def _post(self, hook: _Hook, generation: int, body: bytes, media_type: str) -> bool:
        push = hook.push
        try:
            request = letter(
                push,
                self._secrets(push),
                hook.task_id,
                generation,
                body,
                media_type,
                signer=self._signer,
                issuer=self._issuer,
                now=self._clock.now() // 1000,
            )
            async with self._room:
                response = await self._http.send(request)
                status = response.status
                pause = _retry_after(response.headers.get("Retry-After", ""))
                await response.close()
        except CannotConnect as error:
            self._failed(hook, error.reason, 0.0)
            return False
        except DragomanError as error:
            # Forbidden, or sealed with a key that is gone: no later try would be better.
            self._dead(hook, str(error))
            return False
        if 200 <= status < 300:
            return True
        if status == _GONE:
            self._dead(hook, f"HTTP {status}")
        else:
            self._failed(hook, f"HTTP {status}", pause)
        return False

    def _secrets(self, push: Push) -> Secrets:
        return msgspec.json.decode(self._sealer.unseal(_PURPOSE, push.secrets), type=Secrets)

    # -- how far it is -------------------------------------------------------------------------------------------------

    def _came_to(self, hook: _Hook, generation: int, state: PushState) -> None:
        hook.push = structs.replace(
            hook.push, cursor=generation, tries=0, failing_ms=0, due_ms=0, state=state, error=""
        )
        self._write(hook)

    def _failed(self, hook: _Hook, why: str, pause: float) -> None:
        now, push = self._clock.now(), hook.push
        since = push.failing_ms or now
        if now - since >= self._give_up_ms:
            self._dead(hook, why)
            return
        tries = push.tries + 1
        delay = min(_LONGEST, _FIRST * 2 ** (tries - 1)) * (0.5 + random.random() / 2)  # noqa: S311 - nothing secret
        delay = max(delay, min(pause, _LONGEST))
        due = now + int(delay * 1000)
        hook.push = structs.replace(push, tries=tries, failing_ms=since, due_ms=due, error=why)
        logger.info("webhook %s of task %s: %s, tried %d times", shown(push.url), hook.task_id, why, tries)
        self._write(hook)
        if self._hooks.get((push.task, push.id)) is hook:
            self._later(hook, delay)

    def _dead(self, hook: _Hook, why: str) -> None:
        logger.warning("webhook %s of task %s is given up: %s", shown(hook.push.url), hook.task_id, why)
        hook.push = structs.replace(
            hook.push, state=PushState.DEAD, error=why, failing_ms=hook.push.failing_ms or self._clock.now()
        )
        self._write(hook)
        self._forget(hook)

    def _write(self, hook: _Hook) -> None:
        self._store.write(Write(hook.row, _report, progress=(hook.push,)))


def _report(error: BaseException | None) -> None:
    if error is not None:
        logger.error("how far a webhook has come could not be written: %s", error)


def _retry_after(text: str) -> float:
    return float(text) if text.strip().isdecimal() else 0.0
