"""The engine's fixtures, for agents made of functions."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from unit.engine.conftest import clock, failing_store, held_store, start
from unit.engine.conftest import turns_fixture as turns
from unit.engine.conftest import until_fixture as until

from dragoman import Agent, Context
from dragoman.telemetry import trace
from dragoman.testing import served

__all__ = ["clock", "failing_store", "held_store", "start", "turns", "until"]


@pytest.fixture
def start_skill(start: Any) -> Callable[..., Awaitable[Any]]:
    """Start an engine around an agent with these functions as its skills."""

    async def start_skill(*functions: Callable[..., Any], **options: Any) -> Any:
        agent = Agent("test")
        for function in functions:
            agent.skill(function)
        return await start(agent, **options)

    return start_skill


@pytest.fixture(scope="module")
def trace_reporter() -> Iterator[str]:
    """The address of an agent that answers with the trace of its request, as JSON."""
    agent = Agent("reporter")

    @agent.skill
    async def report(ctx: Context) -> str:
        """Report the trace of the request."""
        headers: dict[str, str] = {}
        trace.inject(headers)
        return json.dumps(headers)

    with served(agent) as url:
        yield url
