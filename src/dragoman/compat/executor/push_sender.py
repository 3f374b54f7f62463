"""Bringing tasks to webhooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from dragoman.compat.executor.push import TaskPushConfig
from dragoman.model.error import DragomanError
from dragoman.model.ids import new_id
from dragoman.model.json import encode
from dragoman.net.exchange import HttpRequest
from dragoman.net.guard import Guard
from dragoman.server.http.lazy import LazyHttp, LazyKeys
from dragoman.webhooks.delivery import Courier
from dragoman.webhooks.request import TOKEN, secrets_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.compat.executor.push import PushConfig
    from dragoman.compat.executor.result import Failure
    from dragoman.compat.executor.task import Task
    from dragoman.compat.executor.task_store import TaskStore
    from dragoman.net.exchange import HttpClient


class PushSender:
    """Posts tasks to webhooks: by `send` once, and for a handler with every change until it arrives.

    `allow` are hosts or networks off the public internet that may be called. `secret` seals what is stored and signs
    what is sent; without it, both last as long as this object.
    """

    def __init__(self, *, allow: Sequence[str] = (), secret: str | None = None) -> None:
        self.guard = Guard(allow, setting="allow")
        self.keys = LazyKeys(secret, None)
        self._http = LazyHttp(self._client)

    def _client(self) -> HttpClient:
        from dragoman.net.aio import AioClient

        return AioClient(guard=self.guard)

    async def send(self, task: Task, config: PushConfig) -> Literal["ok"] | Failure:
        """Post a task once. Whatever goes wrong is the reason of a failure; raises nothing.

        The answer must be 2xx: `push endpoint returned 500` is another. Who is done calls `close`.
        """
        try:
            secrets = secrets_of(TaskPushConfig(task.id, config).to_model())
            headers = {"Content-Type": "application/json", "Idempotency-Key": new_id(), "User-Agent": "dragoman"}
            if secrets.token:
                headers[TOKEN] = secrets.token
            if secrets.scheme and secrets.credentials:
                headers["Authorization"] = f"{secrets.scheme} {secrets.credentials}"
            body = encode(task.to_map())
            response = await self._http.send(HttpRequest("POST", config.url, headers, body, silence=60.0))
            await response.close()
        except DragomanError as error:
            return ("error", str(error))
        if 200 <= response.status < 300:
            return "ok"
        return ("error", f"push endpoint returned {response.status}")

    async def close(self) -> None:
        """Close every connection."""
        await self._http.close()

    def courier(self, tasks: TaskStore) -> Courier:
        """What brings every change of a handler's tasks."""
        store = tasks.engine_store
        http = LazyHttp(self._client)
        return Courier(store, tasks.bus, tasks.clock, http, self.keys, self.guard, signer=self.keys)
