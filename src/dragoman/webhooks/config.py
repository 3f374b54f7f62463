"""Webhook configs: validated when registered, sealed when stored, redacted when their owners read them."""

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
PURPOSE = "push"


class SecretSealer(Protocol):
    """Encrypts secrets with the server's key."""

    def seal(self, purpose: str, data: bytes) -> bytes:
        """Encrypt data for one purpose."""
        ...

    def unseal(self, purpose: str, sealed: bytes) -> bytes:
        """Decrypt data that was sealed for the same purpose. Raises BadSeal when no key fits."""
        ...


class WebhookRegistry:
    """An `Outbox` that delivers nothing. Secrets are sealed before they are stored and never shown."""

    def __init__(self, clock: Clock, sealer: SecretSealer, guard: AddressGuard, signer: RequestSigner | None) -> None:
        self.clock = clock
        self._sealer = sealer
        self._guard = guard
        self.signer = signer
        self._last_ms = 0
        self._is_ready = False

    async def ready(self) -> None:
        """Load or create the keys, in a thread because that is slow. Raises ServerError when it fails."""
        if self._is_ready:
            return

        def prepare() -> None:
            self._sealer.unseal(PURPOSE, self._sealer.seal(PURPOSE, b""))
            if self.signer is not None:
                self.signer.sign_jwt({"exp": 0})

        try:
            await asyncio.to_thread(prepare)
        except DragomanError as error:
            logger.error("webhooks cannot be served: %s", error)
            raise ServerError("webhooks cannot be served now: the log says why") from None
        self._is_ready = True

    def check(self, config: TaskPushNotificationConfig) -> None:
        """Validate a config. Raises InvalidParams, also when the guard does not allow its URL."""
        secrets_of(config)
        try:
            self._guard.check_url(config.url)
        except DragomanError as error:
            raise InvalidParams(str(error), field="url") from None

    def prepare(self, config: TaskPushNotificationConfig, *, task: int, dialect: str, cursor: int) -> Push:
        """Build the webhook to store, its secrets sealed. Raises InvalidParams."""
        self.check(config)
        sealed = self._sealer.seal(PURPOSE, msgspec.json.encode(secrets_of(config)))
        # Unique, as it tells a webhook from its replacement, which may be registered within the same millisecond.
        self._last_ms = max(self.clock.now(), self._last_ms + 1)
        return Push(task, config.id or "", dialect, config.url, sealed, cursor, self._last_ms)

    def follow(self, row: TaskRow, push: Push, *, may_be_behind: bool = False) -> None:
        """Do nothing: this registry delivers nothing."""

    def unfollow(self, task: int, push_id: str) -> bool:
        """Return False: this registry delivers nothing."""
        return False

    def is_unchanged(self, push: Push, config: TaskPushNotificationConfig, dialect: str) -> bool:
        """True when a live webhook has this URL, dialect and these secrets already."""
        if push.state is PushState.DEAD or (push.url, push.dialect) != (config.url, dialect):
            return False
        try:
            return self.secrets(push) == secrets_of(config)
        except DragomanError:
            return False

    def replaces(self, push: Push, dialect: str) -> bool:
        """True where the dialect has one webhook per task and the stored one is of that dialect."""
        return push.dialect == dialect and row_of(dialect).webhook.single

    def redacted(self, push: Push, task_id: str) -> TaskPushNotificationConfig:
        """Return the config as its owner may read it: without token and credentials."""
        try:
            scheme = self.secrets(push).scheme
        except DragomanError:
            scheme = None
        authentication = None if scheme is None else AuthenticationInfo(scheme)
        return TaskPushNotificationConfig(push.url, push.id, task_id, None, authentication)

    def config(self, push: Push, task_id: str) -> TaskPushNotificationConfig:
        """Return the config as it was registered. Raises BadSeal when this server does not have its key."""
        secrets = self.secrets(push)
        authentication = None if secrets.scheme is None else AuthenticationInfo(secrets.scheme, secrets.credentials)
        return TaskPushNotificationConfig(push.url, push.id, task_id, secrets.token, authentication)

    def secrets(self, push: Push) -> Secrets:
        """Unseal the secrets of a webhook. Raises BadSeal when this server does not have their key."""
        return msgspec.json.decode(self._sealer.unseal(PURPOSE, push.secrets), type=Secrets)
