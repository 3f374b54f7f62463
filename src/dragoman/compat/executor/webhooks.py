"""Webhooks for executors: `PushSender` posts tasks, `PushConfigStore` stores where to."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Literal

from dragoman.compat.executor.params import PushConfig, TaskPushConfig
from dragoman.compat.executor.result import NOT_FOUND
from dragoman.compat.executor.task_store import ORIGIN, TaskStore
from dragoman.engine.journal.tasks import Tasks
from dragoman.engine.ports.store import Scope
from dragoman.engine.webhooks import WebhookOperations
from dragoman.model.error import A2AError, ConfigError, DragomanError, TaskNotFound
from dragoman.model.ids import new_id
from dragoman.model.json import encode
from dragoman.model.operation import GetPushConfigRequest
from dragoman.net.guard import AddressGuard
from dragoman.server.http.lazy import LazyHttp, LazyKeys
from dragoman.webhooks.config import WebhookRegistry
from dragoman.webhooks.request import post, post_request, secrets_of
from dragoman.webhooks.service import DeliveryService

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dragoman.compat.executor.result import Failure, Ok
    from dragoman.compat.executor.types import Task
    from dragoman.engine.ports.store import Push
    from dragoman.net.exchange import HttpClient
    from dragoman.webhooks.sender import WebhookSender


class PushSender:
    """Posts tasks to webhooks: `send` posts one task once; for a handler, every change is delivered with retries.

    `allow` lists hosts and networks outside the public internet that may be called. `secret` seals stored credentials
    and signs deliveries; without it the keys are random, and stored credentials cannot be read by another sender.
    """

    def __init__(self, *, allow: Sequence[str] = (), secret: str | None = None) -> None:
        self.guard = AddressGuard(allow, setting="allow")
        self.keys = LazyKeys(secret, None)
        self._http = LazyHttp(self.client)

    def client(self) -> HttpClient:
        """Return an HTTP client with this sender's guard."""
        from dragoman.net.aio import AioClient

        return AioClient(guard=self.guard)

    async def send(self, task: Task, config: PushConfig) -> Literal["ok"] | Failure:
        """Post a task once. Call `close` when done.

        An invalid config, a forbidden address, a network error and a status other than 2xx (`push endpoint returned
        500`) are failures with a reason, not exceptions.
        """
        try:
            secrets = secrets_of(TaskPushConfig(task.id, config).to_model())
            request = post_request(config.url, encode(task.to_map()), new_id(), secrets)
            status, _ = await post(self._http, request)
        except DragomanError as error:
            return ("error", str(error))
        return "ok" if 200 <= status < 300 else ("error", f"push endpoint returned {status}")

    async def close(self) -> None:
        """Close every connection."""
        await self._http.close()


class PushConfigStore:
    """Webhooks of tasks, in the store of the `TaskStore` that holds the tasks.

    A webhook belongs to an existing task and is deleted with it. The `push_configs` of a handler holds the webhooks
    that its callers register, and delivers to those that are set here. Credentials are sealed in the store; `get` and
    `list` return them in plain text.
    """

    def __init__(self, task_store: TaskStore | None = None, sender: PushSender | None = None) -> None:
        self.has_own_tasks = task_store is not None
        self._connect(task_store if task_store is not None else TaskStore(), sender or PushSender())

    def _connect(self, task_store: TaskStore, sender: PushSender) -> None:
        self.task_store = task_store
        self._scope = Scope(task_store.agent, "", "")
        self._tasks = Tasks(task_store.engine_store, task_store.bus, task_store.clock)
        self._sender = sender
        # Until there is a handler, webhooks are stored and not delivered.
        self._use(WebhookRegistry(task_store.clock, sender.keys, sender.guard, None))

    def attach(self, task_store: TaskStore, sender: PushSender) -> None:
        """Use the tasks and the sender of a handler. Called by the handler.

        Raises:
            ConfigError: it was made for other tasks.
        """
        if self.has_own_tasks and self.task_store is not task_store:
            raise ConfigError("push_config_store: it was made for another TaskStore than the handler's")
        self._connect(task_store, sender)

    def delivery(self, senders: Mapping[str, WebhookSender] | None = None) -> DeliveryService:
        """Build the delivery service of a handler; from then on `set` also starts deliveries."""
        tasks, sender, http = self.task_store, self._sender, LazyHttp(self._sender.client)
        service = DeliveryService(
            tasks.engine_store,
            tasks.bus,
            tasks.clock,
            http,
            sender.keys,
            sender.guard,
            signer=sender.keys,
            senders=senders,
        )
        self._use(service)
        return service

    def _use(self, outbox: WebhookRegistry) -> None:
        self._outbox = outbox
        self._pushes = WebhookOperations(self._tasks, outbox)

    async def set(self, task_id: str, config: PushConfig) -> Ok[PushConfig] | Failure:
        """Store a webhook, in place of one with the same id; one without an id gets one.

        The result is `not_found` when there is no such task, or the reason why the webhook is not accepted.
        """
        try:
            model = TaskPushConfig(task_id, config).to_model()
            stored = await self._pushes.create(self._scope, model, ORIGIN)
        except TaskNotFound:
            return NOT_FOUND
        except A2AError as error:
            return ("error", error.message)
        return ("ok", TaskPushConfig.from_model(stored).push_notification_config)

    async def get(self, task_id: str, config_id: str | None = None) -> Ok[PushConfig] | Failure:
        """Return one webhook of a task, by default the first; or `not_found`."""
        pushes = await self._stored_pushes(task_id)
        for push in pushes or ():
            if config_id is None or push.id == config_id:
                return ("ok", self._to_config(push, task_id))
        return NOT_FOUND

    async def list(self, task_id: str) -> Ok[tuple[PushConfig, ...]] | Failure:
        """Return all webhooks of a task, oldest first; or `not_found` when there is no such task."""
        pushes = await self._stored_pushes(task_id)
        return NOT_FOUND if pushes is None else ("ok", tuple(self._to_config(push, task_id) for push in pushes))

    async def delete(self, task_id: str, config_id: str) -> Literal["ok"]:
        """Delete a webhook; a missing one is no error."""
        with suppress(TaskNotFound):
            await self._pushes.delete(self._scope, GetPushConfigRequest(task_id, config_id))
        return "ok"

    async def _stored_pushes(self, task_id: str) -> list[Push] | None:
        try:
            row, _, _ = await self._tasks.find(self._scope, task_id)
        except TaskNotFound:
            return None
        await self._outbox.ready()
        return await self.task_store.engine_store.pushes(row.number)

    def _to_config(self, push: Push, task_id: str) -> PushConfig:
        return TaskPushConfig.from_model(self._outbox.config(push, task_id)).push_notification_config
