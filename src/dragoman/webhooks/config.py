"""Webhook configs: checked when they come in, sealed when they are stored, redacted when their owners read them."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

import msgspec

from dragoman.dialects.table import row_of
from dragoman.engine.ports.store import Push, PushState
from dragoman.model.error import DragomanError, InvalidParams, ServerError
from dragoman.model.operation import AuthenticationInfo, TaskPushNotificationConfig
from dragoman.webhooks.request import Secrets, secrets_of

if TYPE_CHECKING:
    from dragoman.clock import Clock
    from dragoman.engine.ports.store import TaskRow
    from dragoman.net.guard import AddressGuard
    from dragoman.webhooks.request import RequestSigner

logger = logging.getLogger("dragoman.push")
_PURPOSE = "push"


class SecretSealer(Protocol):
    """Keeps secrets in a form that is worth nothing without the server's key."""

    def seal(self, purpose: str, data: bytes) -> bytes:
        """Close."""
        ...

    def unseal(self, purpose: str, sealed: bytes) -> bytes:
        """Open. Raises BadSeal when that is not possible."""
        ...


class WebhookRegistry:
    """An `Outbox` that delivers nothing. Secrets are sealed before they are kept, and shown to nobody."""

    def __init__(self, clock: Clock, sealer: SecretSealer, guard: AddressGuard, signer: RequestSigner | None) -> None:
        self.clock = clock
        self._sealer = sealer
        self._guard = guard
        self.signer = signer
        self._last_ms = 0
        self._is_ready = False

    async def ready(self) -> None:
        """See `Outbox.ready`. Keys are made once, and slowly: not on the loop that streams are on."""
        if self._is_ready:
            return

        def prepare() -> None:
            self._sealer.unseal(_PURPOSE, self._sealer.seal(_PURPOSE, b""))
            if self.signer is not None:
                self.signer.sign_jwt({"exp": 0})

        try:
            await asyncio.to_thread(prepare)
        except DragomanError as error:
            logger.error("webhooks cannot be served: %s", error)
            raise ServerError("webhooks cannot be served now: the log says why") from None
        self._is_ready = True

    def check(self, config: TaskPushNotificationConfig) -> None:
        """See `Outbox.check`."""
        secrets_of(config)
        try:
            self._guard.check_url(config.url)
        except DragomanError as error:
            raise InvalidParams(str(error), field="url") from None

    def prepare(self, config: TaskPushNotificationConfig, *, task: int, dialect: str, cursor: int) -> Push:
        """See `Outbox.prepare`."""
        self.check(config)
        sealed = self._sealer.seal(_PURPOSE, msgspec.json.encode(secrets_of(config)))
        # No two alike: it tells a webhook from the one that takes its place, maybe within the same millisecond.
        self._last_ms = max(self.clock.now(), self._last_ms + 1)
        return Push(task, config.id or "", dialect, config.url, sealed, cursor, self._last_ms)

    def follow(self, row: TaskRow, push: Push) -> None:
        """See `Outbox.follow`."""

    def unfollow(self, task: int, push_id: str) -> None:
        """See `Outbox.leave`."""

    def is_unchanged(self, push: Push, config: TaskPushNotificationConfig, dialect: str) -> bool:
        """See `Outbox.same`."""
        if push.state is PushState.DEAD or (push.url, push.dialect) != (config.url, dialect):
            return False
        try:
            return self.secrets(push) == secrets_of(config)
        except DragomanError:
            return False

    def replaces(self, push: Push, dialect: str) -> bool:
        """See `Outbox.replaces`."""
        return push.dialect == dialect and row_of(dialect).webhook.single

    def redacted(self, push: Push, task_id: str) -> TaskPushNotificationConfig:
        """See `Outbox.shown`."""
        try:
            scheme = self.secrets(push).scheme
        except DragomanError:
            scheme = None
        authentication = None if scheme is None else AuthenticationInfo(scheme)
        return TaskPushNotificationConfig(push.url, push.id, task_id, None, authentication)

    def secrets(self, push: Push) -> Secrets:
        """What is sealed. Raises BadSeal when it was sealed with a key that is not here."""
        return msgspec.json.decode(self._sealer.unseal(_PURPOSE, push.secrets), type=Secrets)
