"""The agent on the official a2a-sdk over gRPC, with its default settings. Runs in .peers/a2a-sdk-bench."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
from a2a.server.request_handlers import DefaultRequestHandlerV2, GrpcHandler
from a2a.server.tasks import DatabaseTaskStore, InMemoryTaskStore, TaskStore
from a2a.types.a2a_pb2_grpc import add_A2AServiceServicer_to_server
from sqlalchemy.ext.asyncio import create_async_engine

from bench.agents.a2a_sdk_echo import CARD, Executor


@asynccontextmanager
async def serving(store: str) -> AsyncIterator[int]:
    """Listen on a free port; `store` is "memory" or a file."""
    tasks: TaskStore = InMemoryTaskStore()
    if store != "memory":
        database = DatabaseTaskStore(create_async_engine(f"sqlite+aiosqlite:///{store}"))
        await database.initialize()  # else the first requests fail
        tasks = database
    server = grpc.aio.server()
    handler = DefaultRequestHandlerV2(agent_executor=Executor(), task_store=tasks, agent_card=CARD)
    add_A2AServiceServicer_to_server(GrpcHandler(handler), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield port
    finally:
        await server.stop(None)
