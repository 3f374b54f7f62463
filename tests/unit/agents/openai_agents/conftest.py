"""The scripted model, and agents that have it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from types import ModuleType
from typing import Any

import agents as sdk
import pytest
from agents.tracing.processors import BatchTraceProcessor
from unit.agents.openai_agents import scripted_model


@pytest.fixture(scope="session")
def scripted() -> ModuleType:
    """The module `scripted_model`."""
    return scripted_model


@pytest.fixture(autouse=True)
def traced(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What would have been sent to OpenAI as a trace."""
    traced: list[Any] = []
    for name in ("on_trace_start", "on_trace_end", "on_span_start", "on_span_end"):
        monkeypatch.setattr(BatchTraceProcessor, name, lambda self, each: traced.append(each))
    return traced


@pytest.fixture
def made(scripted: Any) -> Any:
    """Make an agent from what its model says."""

    def made(speak: Any, **options: Any) -> sdk.Agent[Any]:
        return sdk.Agent(name="Teller", model=scripted.ScriptedStream(speak), **options)

    return made


@pytest.fixture
def bank(made: Any, scripted: Any) -> Any:
    """Make an agent that wants to pay three and five, and says how that went."""

    def bank(done: list[int]) -> sdk.Agent[Any]:
        @sdk.function_tool(needs_approval=True)
        async def pay(amount: int) -> str:
            done.append(amount)
            return f"paid {amount}"

        async def speak(items: list[Any]) -> AsyncIterator[Any]:
            text = scripted.user_texts(items)[-1]
            results = scripted.results(items)
            if text == "what was it?" or len(results) > 1:
                yield f"Results: {json.dumps(results)}"
            elif text == "wait":
                yield "Still here."
            else:
                yield "One moment."
                yield ("pay", {"amount": 3}, "c1")
                yield ("pay", {"amount": 5}, "c2")

        return made(speak, tools=[pay])

    return bank
