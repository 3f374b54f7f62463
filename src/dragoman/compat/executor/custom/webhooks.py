"""The user's push config store and push sender, as the engine and the webhook deliveries call them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from dragoman.compat.executor.custom.call import CustomObject
from dragoman.compat.executor.params import PushConfig, TaskPushConfig
from dragoman.compat.executor.types import Task
from dragoman.model.error import ServerError
from dragoman.webhooks.sender import WebhookNotFound

if TYPE_CHECKING:
    from dragoman.model.operation import TaskPushNotificationConfig
    from dragoman.model.task import Task as ModelTask

_STORE_METHODS = {
    "set": ("task_id", "config"),
    "get": ("task_id", "config_id"),
    "list": ("task_id",),
    "delete": ("task_id", "config_id"),
}
_SENDER_METHODS = {"send": ("task", "config")}


class CustomConfigs:
    """The user's push config store. Implements `ConfigReader`; every method raises ServerError when it fails.

    Raises:
        ConfigError: the object is no push config store.
    """

    def __init__(self, store: object) -> None:
        self._store = CustomObject(store, "push config store", "push_config_store", _STORE_METHODS)

    async def set(self, task_id: str, config: TaskPushNotificationConfig) -> None:
        """Store a webhook."""
        await self._store.call("set", task_id, TaskPushConfig.from_model(config).push_notification_config)

    async def get(self, task_id: str, config_id: str | None) -> TaskPushNotificationConfig | None:
        """Return a webhook, or None."""
        value = await self._store.call("get", task_id, config_id or None)
        return None if value is None else self._to_model("get", task_id, value)

    async def list(self, task_id: str) -> tuple[TaskPushNotificationConfig, ...]:
        """Return the webhooks of a task."""
        values = await self._store.call("list", task_id)
        if values is None:
            return ()
        if not isinstance(values, Sequence) or isinstance(values, (str, bytes)):
            raise self._store.error("list", f"it returned {type(values).__name__}, which is no list")
        return tuple(self._to_model("list", task_id, value) for value in cast("Sequence[Any]", values))

    async def delete(self, task_id: str, config_id: str) -> None:
        """Delete a webhook."""
        await self._store.call("delete", task_id, config_id)

    def _to_model(self, method: str, task_id: str, value: object) -> TaskPushNotificationConfig:
        return TaskPushConfig(task_id, self._store.read(method, value, PushConfig)).to_model()


class CustomSender:
    """The user's push sender. Implements `WebhookSender`.

    With `configs`, the webhook is read from there before anything is sent to it.

    Raises:
        ConfigError: the object is no push sender.
    """

    def __init__(self, sender: object, configs: CustomConfigs | None) -> None:
        self._sender = CustomObject(sender, "push sender", "push_sender", _SENDER_METHODS)
        self._configs = configs

    async def send(self, task: ModelTask, config: TaskPushNotificationConfig) -> str | None:
        """Send a task; return why it failed, or None.

        Raises:
            WebhookNotFound: the push config store no longer has this webhook.
        """
        try:
            if self._configs is not None:
                current = await self._configs.get(task.id, config.id)
                if current is None:
                    raise WebhookNotFound("the push config store has no such webhook")
                config = current
            await self._sender.call(
                "send", Task.from_model(task), TaskPushConfig.from_model(config).push_notification_config
            )
        except ServerError as error:
            return error.message
        return None
