"""The agent on Dragoman, with webhooks to this machine allowed."""

from __future__ import annotations

from typing import Any

from bench.agents.dragoman_agent import agent
from dragoman.server.listen.serve import tune_gc

# Nodes on one PostgreSQL need one in common.
_SECRET = "b5c1" * 16


def app(store: str) -> Any:
    """The ASGI app; `store` is the URL of a PostgreSQL."""
    tune_gc()
    return agent.app(store=store, secret=_SECRET, push=True, push_allow="127.0.0.1")
