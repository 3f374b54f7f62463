"""An executor that does what a test says, where there is no a2a-sdk."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from dragoman import Agent, Client, Task
from dragoman.agents.executor import ExecutorRuns
from dragoman.agents.executor.plain import PlainAdapter, PlainContext
from dragoman.server.agent.base import Backend

Execute = Callable[[PlainContext, "Updater"], Awaitable[None]]


class Updater:
    """What an executor usually has a TaskUpdater for."""

    def __init__(self, context: PlainContext, queue: Any) -> None:
        self.queue = queue
        self._ids = {"taskId": context.task_id, "contextId": context.context_id}

    async def status(self, state: str, text: str | None = None, *more: dict[str, Any], **rest: Any) -> None:
        parts = [*([] if text is None else [{"text": text}]), *more]
        message = {"messageId": "m", "role": "agent", "parts": parts} if parts else None
        await self.queue.enqueue_event({**self._ids, "status": {"state": state, "message": message}, **rest})

    async def artifact(self, id: str, *parts: dict[str, Any], **rest: Any) -> None:
        await self.queue.enqueue_event({**self._ids, "artifact": {"artifactId": id, "parts": list(parts)}, **rest})


class Scripted:
    """An executor that does what a test says, and keeps what it was told."""

    def __init__(self, execute: Execute, cancel: Execute | None = None) -> None:
        self._execute, self._cancel = execute, cancel
        self.contexts: list[PlainContext] = []
        self.canceled: list[PlainContext] = []
        self.began, self.stopped = asyncio.Event(), asyncio.Event()

    async def execute(self, context: PlainContext, event_queue: Any) -> None:
        self.contexts.append(context)
        self.began.set()
        try:
            await self._execute(context, Updater(context, event_queue))
        except asyncio.CancelledError:
            self.stopped.set()
            raise

    async def cancel(self, context: PlainContext, event_queue: Any) -> None:
        self.canceled.append(context)
        if self._cancel is not None:
            await self._cancel(context, Updater(context, event_queue))


def agent_of(executor: object) -> Agent:
    bridge = ExecutorRuns(executor, adapter=PlainAdapter())
    return Agent("x", Backend(bridge.run, bridge.replies, canceled=bridge.canceled, close=bridge.close))


async def answer_of(execute: Execute, text: str = "hi") -> Task:
    async with Client(agent_of(Scripted(execute))) as client:
        answer = await client.send(text)
    assert isinstance(answer, Task)
    return answer
