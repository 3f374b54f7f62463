"""The agent on Dragoman, with its default settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.agents.dragoman_agent import agent
from dragoman.server.listen.serve import tune_gc


def app(store: str) -> Any:
    """The ASGI app; `store` is "memory" or a file."""
    tune_gc()  # as `dragoman serve`, which this stands for, does
    return agent.app(store="memory:" if store == "memory" else f"sqlite:///{Path(store).resolve()}")
