"""The agent on Dragoman, with its default settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.agents.dragoman_agent import agent
from dragoman.server.listen.serve import tune_gc

# Nodes on one PostgreSQL need one in common.
_SECRET = "b5c1" * 16


def app(store: str) -> Any:
    """The ASGI app; `store` is "memory", a file or the URL of a PostgreSQL."""
    tune_gc()  # as `dragoman serve`, which this stands for, does
    if store.startswith("postgresql://"):
        return agent.app(store=store, secret=_SECRET)
    return agent.app(store="memory:" if store == "memory" else f"sqlite:///{Path(store).resolve()}")
