"""All bridges of the contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest
from contract.bridges import adk, executor, functions, langgraph, mcp_tools, openai_agents, process, pydantic_ai, remote
from contract.bridges.bridge import Behavior

BRIDGES = [
    *functions.BRIDGES,
    *mcp_tools.BRIDGES,
    *process.BRIDGES,
    *adk.BRIDGES,
    *langgraph.BRIDGES,
    *pydantic_ai.BRIDGES,
    *openai_agents.BRIDGES,
    *executor.BRIDGES,
    *remote.BRIDGES,
]

# The behaviors that a test shows.
ROWS: set[Behavior] = set()

Test = TypeVar("Test", bound=Callable[..., object])


def row(behavior: Behavior) -> Callable[[Test], Test]:
    """Run the test once for every bridge. Where a bridge lacks the behavior, it is skipped with the reason."""
    ROWS.add(behavior)
    rows: list[object] = []
    for bridge in BRIDGES:
        reason = bridge.lacks.get(behavior)
        marks = () if reason is None else (pytest.mark.skip(reason=f"{bridge.name}: {reason}"),)
        rows.append(pytest.param(bridge, id=bridge.name, marks=marks))
    return pytest.mark.parametrize("bridge", rows)
