"""ADK makes spans of its own: they are below the run. A remote agent passes the trace on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import trace as otel
from support.otlp_collector import collected_spans
from unit.agents.adk import remote_talk as talks
from unit.agents.adk.scripted import call, llm, parts, says, served

from dragoman import Client
from dragoman.adk import RemoteAgent
from dragoman.telemetry import trace

TRACER = otel.get_tracer("test")
PARENT = {"traceparent": f"00-{7:032x}-{8:016x}-01", "tracestate": "a=1", "baggage": "team=blue"}
Make = Callable[..., RemoteAgent]


async def look() -> str:
    """Look."""
    with TRACER.start_as_current_span("in a tool"):
        return "here"


async def test_spans_of_adk_are_below_the_run_and_none_of_ours_repeats_them() -> None:
    agent = llm([parts(call("look"))], says("done"), tools=[look])
    with collected_spans() as spans:
        with TRACER.start_as_current_span("asking"):
            async with Client(served(agent)) as client:
                assert (await client.send("go")).text == "done"
        (run,) = (each for each in spans.named("invoke_agent helper") if each.scope == "dragoman")
        own = [each for each in spans.spans if each.scope.startswith("gcp.vertex.agent")]
        assert {each.trace_id for each in own} == {run.trace_id}
        assert [each.name for each in own if each.parent_id == run.span_id] == ["invoke_workflow helper"]
        assert "execute_tool look" in spans.path("in a tool")
        assert len(spans.named("execute_tool look")) == 1


async def test_a_remote_agent_passes_the_trace_on(remote: Make, trace_reporter: str) -> None:
    trace.extract(PARENT)
    events = await talks.Talk(remote(trace_reporter)).say("go")
    trace.extract({})
    assert json.loads(talks.text_of(events[-1])) == PARENT


async def test_a_remote_agent_is_below_the_spans_of_adk(remote: Make, trace_reporter: str) -> None:
    with collected_spans() as spans:
        with TRACER.start_as_current_span("asking"):
            events = await talks.Talk(remote(trace_reporter)).say("go")
        _, trace_id, _, _ = json.loads(talks.text_of(events[-1]))["traceparent"].split("-")
        assert trace_id == spans.one("asking").trace_id
        (sent,) = (each for each in spans.named("SendMessage") if each.kind == "CLIENT")
        by_id: dict[str, Any] = {each.span_id: each for each in spans.spans}
        assert by_id[sent.parent_id].name == "invoke_agent far"


async def test_a_canceled_run_leaves_no_span_open_and_no_complaint(caplog: pytest.LogCaptureFixture) -> None:
    agent = llm([parts("one ", piece=True), asyncio.Event(), parts("one two")])
    with collected_spans() as spans:
        async with Client(served(agent)) as client:
            async for event in client.stream("go"):
                if event.kind == "artifact":
                    await client.cancel_task(event.task.id)
        (run,) = (each for each in spans.named("invoke_agent helper") if each.scope == "dragoman")
        assert run.attributes["a2a.task.state"] == "TASK_STATE_CANCELED"
        assert spans.path("generate_content scripted")[0] == "invoke_agent helper"
    assert "detach" not in caplog.text
