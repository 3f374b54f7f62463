"""The ADK agent behind google-adk's own bridge, with the newer of its executors. Runs in .peers/adk."""

from __future__ import annotations

from typing import Any

from bench.agents.adk_to_a2a import served


def app(_: str) -> Any:
    """The ASGI app; tasks are in memory."""
    return served(new=True)
