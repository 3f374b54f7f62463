"""The agent on the official a2a-sdk's cluster mode, with its default settings. Runs in .peers/a2a-sdk-bench."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from a2a.server.cluster import DatabaseTaskEventStream, VersionedDatabaseTaskStore
from a2a.server.request_handlers import DefaultRequestHandlerV2
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from sqlalchemy.ext.asyncio import create_async_engine
from starlette.applications import Starlette

from bench.agents.a2a_sdk_echo import CARD, Executor


def app(store: str) -> Any:
    """The ASGI app; `store` is the URL of a PostgreSQL."""
    engine = create_async_engine(store.replace("postgresql://", "postgresql+asyncpg://", 1))
    tasks = VersionedDatabaseTaskStore(engine)
    events = DatabaseTaskEventStream(engine)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await tasks.initialize()
        await events.initialize()
        yield

    handler = DefaultRequestHandlerV2(agent_executor=Executor(), task_store=tasks, agent_card=CARD, event_stream=events)
    routes = [*create_agent_card_routes(CARD), *create_jsonrpc_routes(handler, "/")]
    return Starlette(routes=routes, lifespan=lifespan)
