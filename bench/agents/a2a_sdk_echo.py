"""The agent on the official a2a-sdk, with its default settings. Runs in .peers/a2a-sdk-bench."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from a2a.helpers import get_data_parts, new_task_from_user_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandlerV2
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import DatabaseTaskStore, InMemoryTaskStore, TaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill
from sqlalchemy.ext.asyncio import create_async_engine
from starlette.applications import Starlette

from bench.agents.words import CARD_NAME, QUESTION, chunk_text

CARD = AgentCard(
    name=CARD_NAME,
    description="Echoes, counts, asks",
    version="1.0.0",
    default_input_modes=["text/plain"],
    default_output_modes=["text/plain"],
    capabilities=AgentCapabilities(streaming=True),
    supported_interfaces=[
        AgentInterface(protocol_binding="JSONRPC", url="http://127.0.0.1/", protocol_version="1.0"),
    ],
    skills=[AgentSkill(id="echo", name="echo", description="Say it again", tags=["bench"])],
)


class Executor(AgentExecutor):
    """Enqueues Task, working, artifact, completed."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Do what the message asks."""
        message = context.message
        assert message is not None
        data: list[Any] = get_data_parts(message.parts)
        task = new_task_from_user_message(message)
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work()
        if not data:
            await updater.add_artifact([new_text_part(context.get_user_input())], name="echo")
        elif data[0]["tool"] == "ask":
            await updater.requires_input(updater.new_agent_message([new_text_part(QUESTION)]))
            return
        elif data[0]["tool"] == "tick":
            await self._tick(updater, int(data[0]["arguments"]["n"]), data[0]["arguments"]["pace"])
        else:
            await self._count(updater, int(data[0]["arguments"]["n"]))
        await updater.complete()

    async def _count(self, updater: TaskUpdater, chunks: int) -> None:
        for number in range(chunks):
            await updater.add_artifact(
                [new_text_part(chunk_text(number))],
                artifact_id="count",
                append=number > 0,
                last_chunk=number == chunks - 1,
            )
            await asyncio.sleep(0)

    async def _tick(self, updater: TaskUpdater, times: int, pace: float) -> None:
        for number in range(times):
            text = new_text_part(f"{time.monotonic_ns()} ")
            await updater.add_artifact([text], artifact_id="tick", append=number > 0, last_chunk=number == times - 1)
            await asyncio.sleep(pace)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Nothing is ever canceled here."""


def app(store: str) -> Any:
    """The ASGI app; `store` is "memory", a file or the URL of a PostgreSQL."""
    tasks: TaskStore = InMemoryTaskStore()
    if store.startswith("postgresql://"):
        tasks = DatabaseTaskStore(create_async_engine(store.replace("postgresql://", "postgresql+asyncpg://", 1)))
    elif store != "memory":
        tasks = DatabaseTaskStore(create_async_engine(f"sqlite+aiosqlite:///{store}"))

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        # Left to itself it creates its table with the first request, and concurrent first requests fail.
        if isinstance(tasks, DatabaseTaskStore):
            await tasks.initialize()
        yield

    handler = DefaultRequestHandlerV2(agent_executor=Executor(), task_store=tasks, agent_card=CARD)
    routes = [*create_agent_card_routes(CARD), *create_jsonrpc_routes(handler, "/")]
    return Starlette(routes=routes, lifespan=lifespan)
