"""A console for tasks on a real store, with an engine beside it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode
from uuid import uuid4

import msgspec

from dragoman.console.access import Viewer
from dragoman.console.tasks.view import TasksView
from dragoman.engine.call import CallContext
from dragoman.engine.settings import EngineSettings
from dragoman.model.message import Message
from dragoman.model.operation import SendMessageConfiguration, SendMessageRequest
from dragoman.model.part import Part
from dragoman.model.state import Role
from dragoman.model.task import Task
from dragoman.model.user import User
from dragoman.server.agent.in_process import connect
from dragoman.transports.http import Request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dragoman import Agent
    from dragoman.engine.ports.store import Store
    from dragoman.testing import Clock

ADMIN = Viewer(admin=True, token=True)
ANNA, BERT = Viewer(User("anna", "Anna")), Viewer(User("bert", "Bert"))
NOBODY = Viewer()
SECONDS = 10


class Console:
    """The handlers of the console for tasks, called as its API calls them."""

    def __init__(self, agent: Agent, store: Store, clock: Clock) -> None:
        self.store, self.clock = store, clock
        self.connection = connect(agent, store=store, clock=clock, settings=EngineSettings(drain=0))
        self.service = self.connection.service
        self.woken = 0
        self.view = TasksView(store, {agent.name: self.service.canceler}, on_woken=self._count_woken)

    def _count_woken(self) -> None:
        self.woken += 1

    async def send(
        self, *parts: Part | str, by: Viewer = NOBODY, task: Task | None = None, wait: bool = True, **more: Any
    ) -> Task:
        """Send a message to the agent as its owner does."""
        content = tuple(Part(text=part) if isinstance(part, str) else part for part in parts)
        message = Message(str(uuid4()), Role.USER, content, more.pop("context", None), task.id if task else None)
        request = SendMessageRequest(message, SendMessageConfiguration(return_immediately=not wait))
        async with asyncio.timeout(SECONDS):
            result = (await self.service.send(CallContext(by.user, **more), request)).result
        assert isinstance(result, Task)
        return result

    async def _call(
        self, handler: Callable[..., Awaitable[Any]], viewer: Viewer, path: tuple[str, ...], query: dict[str, Any]
    ) -> Any:
        scope: dict[str, Any] = {
            "type": "http",
            "method": "GET",
            "headers": [],
            "query_string": urlencode(query).encode(),
        }

        async def receive() -> Any:
            return {"type": "http.request", "body": b"{}"}

        async with asyncio.timeout(SECONDS):
            result = await handler(viewer, Request(scope, receive, path), path)
        return msgspec.json.decode(msgspec.json.encode(result))

    async def list(self, viewer: Viewer = ADMIN, **query: Any) -> Any:
        return await self._call(self.view.list, viewer, ("tasks",), query)

    async def ids(self, viewer: Viewer = ADMIN, **query: Any) -> list[str]:
        return [row["id"] for row in (await self.list(viewer, **query))["tasks"]]

    async def get(self, task_id: str, viewer: Viewer = ADMIN, **query: Any) -> Any:
        return await self._call(self.view.get, viewer, ("tasks", task_id), query)

    async def journal(self, task_id: str, viewer: Viewer = ADMIN, **query: Any) -> Any:
        return await self._call(self.view.journal, viewer, ("tasks", task_id, "journal"), query)

    async def webhooks(self, task_id: str, viewer: Viewer = ADMIN) -> Any:
        found = await self._call(self.view.webhooks, viewer, ("tasks", task_id, "webhooks"), {})
        return found["webhooks"]

    async def retry(self, task_id: str, push_id: str, viewer: Viewer = ADMIN) -> Any:
        path = ("tasks", task_id, "webhooks", push_id, "retry")
        return await self._call(self.view.retry, viewer, path, {})

    async def cancel(self, task_id: str, viewer: Viewer = ADMIN) -> Any:
        return await self._call(self.view.cancel, viewer, ("tasks", task_id, "cancel"), {})
