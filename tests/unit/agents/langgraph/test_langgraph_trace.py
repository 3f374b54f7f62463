"""LangGraph makes no spans of OpenTelemetry itself: those of nodes and tools are below the run."""

from __future__ import annotations

from functools import partial
from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from opentelemetry import trace as otel
from otlp_collector import collected_spans

from dragoman import Agent, Client
from dragoman.agents.langgraph.run import LangGraphRuns

TRACER = otel.get_tracer("test")


async def call(state: MessagesState) -> dict[str, Any]:
    with TRACER.start_as_current_span("in a node"):
        wanted: list[Any] = [{"name": name, "args": {}, "id": name} for name in ("look", "look_aside")]
        return {"messages": [AIMessage("", tool_calls=wanted)]}


def answer(state: MessagesState) -> dict[str, Any]:
    with TRACER.start_as_current_span("in a blocking node"):
        return {"messages": [AIMessage("done")]}


@tool
async def look() -> str:
    """Look."""
    with TRACER.start_as_current_span("in a tool"):
        return "here"


@tool
def look_aside() -> str:
    """Look aside."""
    with TRACER.start_as_current_span("in a blocking tool"):
        return "there"


async def test_spans_of_nodes_and_tools_are_below_the_run() -> None:
    builder = StateGraph(MessagesState)
    builder.add_node(call)
    builder.add_node("tools", ToolNode([look, look_aside]))
    builder.add_node(answer)
    builder.add_edge(START, "call")
    builder.add_edge("call", "tools")
    builder.add_edge("tools", "answer")
    runs = LangGraphRuns(builder.compile())
    with collected_spans() as spans:
        with TRACER.start_as_current_span("asking"):
            async with Client(Agent("graph", run=partial(runs.run))) as client:
                assert (await client.send("go")).text == "done"
        for name in ("in a node", "in a blocking node", "in a tool", "in a blocking tool"):
            assert spans.path(name)[-2:] == ["invoke_agent graph", name]
            assert spans.path(name)[0] == "asking"
