"""The tools of an MCP server, behind Dragoman with its default settings."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from dragoman import Agent
from dragoman.server.listen.serve import tune_gc

agent = Agent.from_mcp([sys.executable, str(Path(__file__).with_name("mcp_echo.py"))])


def app(store: str) -> Any:
    """The ASGI app; `store` is "memory" or a file."""
    tune_gc()  # as `dragoman serve`, which this stands for, does
    return agent.app(store="memory:" if store == "memory" else f"sqlite:///{Path(store).resolve()}")
