"""Pydantic AI makes spans where it is told to: they are below the run, and so are those of tools without them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pydantic_ai
import pytest
from opentelemetry import trace as otel
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from support.otlp_collector import collected_spans

from dragoman import Agent, Client
from dragoman.agents.pydantic_ai import PydanticAiRuns

TRACER = otel.get_tracer("test")


async def model(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
    if any(part.part_kind == "tool-return" for message in messages for part in message.parts):
        yield "done"
    else:
        yield {number: DeltaToolCall(name, "{}") for number, name in enumerate(("look", "look_aside"))}


def agent(**options: Any) -> pydantic_ai.Agent[Any, Any]:
    made = pydantic_ai.Agent(FunctionModel(stream_function=model), name="teller", **options)

    @made.tool_plain
    async def look() -> str:
        with TRACER.start_as_current_span("in a tool"):
            return "here"

    @made.tool_plain
    def look_aside() -> str:
        with TRACER.start_as_current_span("in a blocking tool"):
            return "there"

    return made


async def ask(made: pydantic_ai.Agent[Any, Any]) -> None:
    with TRACER.start_as_current_span("asking"):
        async with Client(Agent("teller", run=partial(PydanticAiRuns(made).run))) as client:
            assert (await client.send("go")).text == "done"


async def test_its_own_spans_are_below_the_run_and_none_of_ours_repeats_them() -> None:
    with collected_spans() as spans:
        pydantic_ai.Agent.instrument_all()
        await ask(agent())
        own = [each for each in spans.spans if each.scope == "pydantic-ai"]
        (run,) = (each for each in spans.named("invoke_agent teller") if each.scope == "dragoman")
        (top,) = (each for each in own if each.parent_id == run.span_id)
        assert top.name in ("invoke_agent teller", "agent run")
        assert {each.trace_id for each in own} == {run.trace_id}
        calls = [each for each in spans.spans if "look" in each.name]
        assert sorted(each.attributes["gen_ai.tool.name"] for each in calls) == ["look", "look_aside"]
        assert {each.scope for each in calls} == {"pydantic-ai"}


@pytest.fixture(autouse=True)
def _instrumented_no_more() -> Any:
    yield
    pydantic_ai.Agent.instrument_all(False)
