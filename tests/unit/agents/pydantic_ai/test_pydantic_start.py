"""What is wrong with a Pydantic AI agent is said when it is served, not when somebody calls it."""

from __future__ import annotations

from typing import Any

import pydantic_ai
import pytest
from pydantic_ai import DeferredToolRequests
from pydantic_ai.capabilities import HandleDeferredToolCalls
from pydantic_ai.models.test import TestModel
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import ExternalToolset, FunctionToolset

from dragoman import Agent
from dragoman.errors import ConfigError


def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def approved() -> FunctionToolset[Any]:
    tools: FunctionToolset[Any] = FunctionToolset()
    tools.add_function(pay, requires_approval=True)
    return tools


TOOLSETS: list[tuple[Any, str]] = [
    (approved(), "the tool 'pay' needs approval"),
    (approved().prefixed("bank"), "the tool 'pay' needs approval"),
    (FunctionToolset([pay]).approval_required(), "the tools of an ApprovalRequiredToolset need approval"),
    (ExternalToolset([ToolDefinition(name="rate")]), "the tool 'rate' runs elsewhere"),
]


def teller(toolset: Any, **options: Any) -> pydantic_ai.Agent[Any, Any]:
    return pydantic_ai.Agent(TestModel(), name="teller", toolsets=[toolset], **options)


@pytest.mark.parametrize(("toolset", "reason"), TOOLSETS)
def test_tools_that_pause_need_an_output_type_that_allows_it(toolset: Any, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Agent.from_pydantic_ai(teller(toolset))
    assert str(caught.value).startswith(f"{reason}, and the agent's output_type has no DeferredToolRequests")
    assert "output_type=[str, DeferredToolRequests]" in str(caught.value)
    for output_type in ([str, DeferredToolRequests], str | DeferredToolRequests):
        Agent.from_pydantic_ai(teller(toolset, output_type=output_type))


def test_an_agent_that_decides_by_itself_needs_no_output_type() -> None:
    Agent.from_pydantic_ai(teller(approved(), capabilities=[HandleDeferredToolCalls(lambda ctx, requests: None)]))


def test_tools_that_never_pause_need_no_output_type() -> None:
    Agent.from_pydantic_ai(teller(FunctionToolset([pay])))
