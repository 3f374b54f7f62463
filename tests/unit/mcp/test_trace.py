"""The trace of a host, in the calls of agents that its calls of tools cause."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from mcp import Client
from opentelemetry import trace as otel
from support.otlp_collector import collected_spans
from unit.mcp import test_tasks_extension as tasks

from dragoman import Agent, Context
from dragoman.mcp.serve import McpOptions
from dragoman.mcp.server import McpServer
from dragoman.telemetry import trace
from dragoman.testing import served

PARENT = {"traceparent": f"00-{7:032x}-{8:016x}-01", "tracestate": "a=1", "baggage": "team=blue"}

agent = Agent("tracer")


@agent.skill
async def tell(ctx: Context) -> str:
    """Tell the trace of the request."""
    headers: dict[str, str] = {}
    trace.inject(headers)
    return json.dumps(headers)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served(agent) as address:
        yield address


async def call(host: Any, tool: str, meta: dict[str, Any] | None, **arguments: Any) -> dict[str, Any]:
    result = await host.client.call_tool(tool, arguments, meta=meta)
    assert not result.is_error, result.content
    return result.structured_content


async def test_an_agent_gets_the_trace_that_a_host_names(hosted: Any, url: str) -> None:
    async with hosted() as host:
        shown = await call(host, "send_message", PARENT, agent_id=url, text="tell", skill_id="tell")
        assert json.loads(shown["text"]) == PARENT


async def test_what_goes_on_in_the_background_keeps_the_trace(hosted: Any, url: str) -> None:
    async with hosted() as host:
        begun = await call(host, "send_streaming_message", PARENT, agent_id=url, text="tell", skill_id="tell")
        await call(host, "subscribe_to_task", None, task_id=begun["task_id"])
        shown = await call(host, "get_task", None, task_id=begun["task_id"])
        assert json.loads(shown["text"]) == PARENT


@pytest.mark.parametrize(
    "meta",
    [None, {}, {"traceparent": 7}, {"traceparent": ["x"], "tracestate": "a=1"}, {"tracestate": "a=1"}],
    ids=["no meta", "empty", "a number", "a list", "no parent"],
)
async def test_without_a_trace_none_is_passed_on(hosted: Any, url: str, meta: Any) -> None:
    async with hosted() as host:
        await call(host, "send_message", PARENT, agent_id=url, text="tell", skill_id="tell")
        shown = await call(host, "send_message", meta, agent_id=url, text="tell", skill_id="tell")
        assert json.loads(shown["text"]) == {}


async def test_calls_at_the_same_time_keep_their_traces_apart(hosted: Any, url: str) -> None:
    async with hosted() as host:

        async def one(number: int) -> None:
            meta = {"traceparent": f"00-{number:032x}-{1:016x}-01"}
            shown = await call(host, "send_message", meta, agent_id=url, text="tell", skill_id="tell")
            assert json.loads(shown["text"]) == meta

        await asyncio.gather(*(one(number) for number in range(1, 11)))


async def test_a_task_of_the_extension_has_the_trace_of_its_call_and_an_answer_its_own() -> None:
    agent = Agent("asking")

    @agent.skill
    async def ask(ctx: Context) -> str:
        """Ask with the trace of the request, and tell that of the answer."""
        answer = await ctx.ask(await ctx.once("first", tell, ctx))
        return f"{answer} {await tell(ctx)}"

    second = {"traceparent": f"00-{9:032x}-{9:016x}-01"}
    with served(agent) as url:
        async with (
            McpServer(McpOptions()) as mine,
            Client(mine.server, extensions=[tasks.Tasks()], elicitation_callback=tasks.never) as client,
        ):
            arguments = {"agent_id": url, "text": "go"}
            created = await client.session.call_tool("send_message", arguments, meta=PARENT, allow_claimed=True)
            shown = await tasks.settled(client.session, created.task_id)
            ((key, question),) = shown["inputRequests"].items()
            assert PARENT["traceparent"] in question["params"]["message"]
            answer = {key: {"action": "accept", "content": {"answer": "ok"}}}
            update = {"taskId": created.task_id, "inputResponses": answer, "_meta": second}
            params = tasks.UpdateParams.model_validate(update)
            await client.session.send_request(tasks.UpdateTask(params=params), tasks.Shown)
            shown = await tasks.settled(client.session, created.task_id, after=key)
            assert json.loads(shown["result"]["structuredContent"]["text"].removeprefix("ok ")) == second


async def test_a_call_of_a_tool_has_one_server_span_above_the_calls_of_agents(hosted: Any, url: str) -> None:
    with collected_spans() as spans:
        async with hosted() as host:
            with otel.get_tracer("host").start_as_current_span("asking") as asking:
                headers: dict[str, str] = {}
                trace.inject(headers)
                shown = await call(host, "send_message", headers, agent_id=url, text="tell", skill_id="tell")
    (call_span,) = (each for each in spans.named("tools/call send_message") if each.kind == "SERVER")
    assert (
        call_span.attributes.items()
        >= {
            "mcp.method.name": "tools/call",
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "send_message",
        }.items()
    )
    trace_id = f"{asking.get_span_context().trace_id:032x}"
    assert call_span.trace_id == trace_id
    assert json.loads(shown["text"])["traceparent"].split("-")[1] == trace_id
