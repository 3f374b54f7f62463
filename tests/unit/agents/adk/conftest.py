"""ADK without a network: scripted models, no traces."""

from __future__ import annotations

import inspect
import os
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from dragoman import Agent

# Before ADK is imported: it traces from then on.
os.environ.setdefault("OTEL_SDK_DISABLED", "true")


@pytest.fixture
async def remote() -> AsyncGenerator[Callable[..., Any]]:
    """Makes remote agents of an address, an agent or a run function, and closes them afterwards."""
    from dragoman.adk import RemoteAgent

    made: list[Any] = []

    def make(target: Any, name: str = "far", **options: Any) -> Any:
        if inspect.isasyncgenfunction(target):
            target = Agent("behind", description="Knows things", run=target)
        agent = RemoteAgent(name=name, url=target, **options)
        made.append(agent)
        return agent

    yield make
    for agent in made:
        await agent.close()


@pytest.fixture
def talk_with(remote: Callable[..., Any]) -> Callable[..., Any]:
    """Starts talks with a remote agent, which may be any that `remote` makes."""
    from unit.agents.adk.remote_talk import Talk

    def make(target: Any, *, streaming: bool = True, **options: Any) -> Any:
        return Talk(remote(target, **options), streaming=streaming)

    return make
