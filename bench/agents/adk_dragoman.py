"""The ADK agent behind Dragoman, with its default settings, and Python's own garbage collector as everybody here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.agents.adk_words import agent
from dragoman import Agent


def app(store: str) -> Any:
    """The ASGI app; `store` is "memory" or a file."""
    return Agent.from_adk(agent()).app(store="memory:" if store == "memory" else f"sqlite:///{Path(store).resolve()}")
