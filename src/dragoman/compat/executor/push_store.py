"""The webhooks of tasks, beside the tasks."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Literal

from dragoman.compat.executor.push import PushConfig, TaskPushConfig
from dragoman.compat.executor.push_sender import PushSender
from dragoman.compat.executor.result import NOT_FOUND
from dragoman.compat.executor.task_store import ORIGIN, TaskStore
from dragoman.engine.journal.tasks import Tasks
from dragoman.engine.ports.store import Scope
from dragoman.engine.webhooks import Pushes
from dragoman.model.error import A2AError, TaskNotFound
from dragoman.model.operation import AuthenticationInfo, GetPushConfigRequest, TaskPushNotificationConfig
from dragoman.webhooks.config import Registry

if TYPE_CHECKING:
    from dragoman.compat.executor.result import Failure, Ok
    from dragoman.engine.ports.store import Push, TaskRow
    from dragoman.webhooks.delivery import Courier


class _Kept(Registry):
    """Webhooks that nobody serves: there is no handler."""

    def follow(self, row: TaskRow, push: Push) -> None:
        """See `Outbox.follow`."""

    def leave(self, task: int, push_id: str) -> None:
        """See `Outbox.leave`."""


class PushConfigStore:
    """Webhooks in the store their tasks are in: in memory, in a file, or wherever a `TaskStore` keeps them.

    A webhook belongs to a task that is there, and goes with it. What callers of a handler register is in its
    `push_configs`, and what is put there is brought. Secrets are sealed in the store, and shown here only.
    """

    def __init__(self, task_store: TaskStore | None = None, sender: PushSender | None = None) -> None:
        self.task_store = task_store if task_store is not None else TaskStore()
        self._scope = Scope(self.task_store.agent, "", "")
        self._tasks = Tasks(self.task_store.engine_store, self.task_store.bus, self.task_store.clock)
        sender = sender or PushSender()
        self.attach(_Kept(self.task_store.clock, sender.keys, sender.guard, None))

    def attach(self, outbox: Courier | _Kept) -> None:
        """Say who brings what is put here; the handler does."""
        self._outbox = outbox
        self._pushes = Pushes(self._tasks, outbox)

    async def set(self, task_id: str, config: PushConfig) -> Ok[PushConfig] | Failure:
        """Keep a webhook, in place of one with the same id; one without an id gets one."""
        model = TaskPushConfig(task_id, config).to_model()
        try:
            made = await self._pushes.create(self._scope, model, ORIGIN)
        except TaskNotFound:
            return NOT_FOUND
        except A2AError as error:
            return ("error", error.message)
        return ("ok", TaskPushConfig.from_model(made).push_notification_config)

    async def get(self, task_id: str, config_id: str | None = None) -> Ok[PushConfig] | Failure:
        """One webhook of a task, by default the first; or `not_found`."""
        found = await self._stored(task_id)
        for push in found or ():
            if config_id is None or push.id == config_id:
                return ("ok", self._read(push, task_id))
        return NOT_FOUND

    async def list(self, task_id: str) -> Ok[tuple[PushConfig, ...]] | Failure:
        """All webhooks of a task, in the order they came; or `not_found` where there is no such task."""
        found = await self._stored(task_id)
        return NOT_FOUND if found is None else ("ok", tuple(self._read(push, task_id) for push in found))

    async def delete(self, task_id: str, config_id: str) -> Literal["ok"]:
        """Forget a webhook; one that is not there is no mistake."""
        with suppress(TaskNotFound):
            await self._pushes.delete(self._scope, GetPushConfigRequest(task_id, config_id))
        return "ok"

    async def _stored(self, task_id: str) -> list[Push] | None:
        try:
            row, _, _ = await self._tasks.find(self._scope, task_id)
        except TaskNotFound:
            return None
        await self._outbox.ready()
        return await self.task_store.engine_store.pushes(row.number)

    def _read(self, push: Push, task_id: str) -> PushConfig:
        secrets = self._outbox.secrets(push)
        said = None if secrets.scheme is None else AuthenticationInfo(secrets.scheme, secrets.credentials)
        model = TaskPushNotificationConfig(push.url, push.id, task_id, secrets.token, said)
        return TaskPushConfig.from_model(model).push_notification_config
