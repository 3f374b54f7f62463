"""ADK without a network: scripted models, no traces."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

# Before ADK is imported: it traces from then on.
os.environ.setdefault("OTEL_SDK_DISABLED", "true")


@pytest.fixture
async def remote() -> AsyncGenerator[Callable[..., Any]]:
    """Makes remote agents, and lets go of them afterwards."""
    from dragoman.adk import RemoteAgent

    made: list[Any] = []

    def make(url: Any, name: str = "far", **options: Any) -> Any:
        agent = RemoteAgent(name=name, url=url, **options)
        made.append(agent)
        return agent

    yield make
    for agent in made:
        await agent.close()
