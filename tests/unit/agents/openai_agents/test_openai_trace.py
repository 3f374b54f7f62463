"""The OpenAI Agents SDK makes no spans of OpenTelemetry: those of tools are below the run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import agents as sdk
from opentelemetry import trace as otel
from otlp_collector import collected_spans

from dragoman import Agent, Client
from dragoman.agents.openai_agents import OpenAiRuns

TRACER = otel.get_tracer("test")


@sdk.function_tool
async def look() -> str:
    with TRACER.start_as_current_span("in a tool"):
        return "here"


@sdk.function_tool
def look_aside() -> str:
    with TRACER.start_as_current_span("in a blocking tool"):
        return "there"


async def test_spans_of_tools_are_below_the_run(made: Any, scripted: Any) -> None:
    async def speak(items: list[Any]) -> AsyncIterator[Any]:
        if scripted.results(items):
            yield "done"
        else:
            yield ("look", {}, "c1")
            yield ("look_aside", {}, "c2")

    runs = OpenAiRuns(made(speak, tools=[look, look_aside]))
    with collected_spans() as spans:
        with TRACER.start_as_current_span("asking"):
            async with Client(Agent("teller", run=partial(runs.run))) as client:
                assert (await client.send("go")).text == "done"
        for name in ("in a tool", "in a blocking tool"):
            assert spans.path(name)[-2:] == ["invoke_agent teller", name]
            assert spans.path(name)[0] == "asking"
