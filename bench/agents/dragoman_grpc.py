"""The agent on Dragoman over gRPC, with its default settings."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench.agents.dragoman_agent import agent
from dragoman.server.listen.serve import tune_gc


@asynccontextmanager
async def serving(store: str) -> AsyncIterator[int]:
    """Listen on a free port; `store` is "memory" or the absolute path of a file."""
    tune_gc()  # as `dragoman serve`, which this stands for, does
    app = agent.app(store="memory:" if store == "memory" else f"sqlite:///{store}", grpc="127.0.0.1:0")
    await app.start()
    try:
        yield int(app.grpc_address.rpartition(":")[2])
    finally:
        await app.stop()
