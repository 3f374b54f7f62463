"""The trace context of a task, in the calls of tools that it makes: SEP-414, and spans where OpenTelemetry is used."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from mcp.server import MCPServer
from opentelemetry import trace as otel
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from support.otlp_collector import SpanMemory, collected_spans

from dragoman import Agent, State
from dragoman.engine.settings import EngineSettings
from dragoman.telemetry import trace
from dragoman.testing import served

Start = Callable[..., Awaitable[Any]]
Command = Callable[..., list[str]]
Until = Callable[[Callable[[], object]], Awaitable[None]]
PARENT = {"traceparent": f"00-{7:032x}-{8:016x}-01", "tracestate": "a=1", "baggage": "team=blue"}
OLD = "2025-11-25"


@pytest.fixture(params=["object", "object of the handshake era", "handshake", "modern", "http", "http, older"])
def server(
    request: pytest.FixtureRequest, kit: MCPServer, handshake: Command, sdk_command: list[str]
) -> Iterator[tuple[Any, dict[str, str]]]:
    """A server of each kind, and how it is to be spoken to."""
    if request.param.startswith("http"):
        with served(kit.streamable_http_app()) as url:
            yield f"{url}/mcp", {"revision": OLD} if "older" in request.param else {}
        return
    servers: dict[str, tuple[Any, dict[str, str]]] = {
        "object": (kit, {}),
        "object of the handshake era": (kit, {"revision": OLD}),
        "handshake": (handshake(), {}),
        "modern": (sdk_command, {}),
    }
    yield servers[request.param]


@pytest.fixture
def spans() -> Iterator[SpanMemory]:
    with collected_spans() as memory:
        yield memory


@pytest.fixture
def incoming() -> Iterator[None]:
    """The trace of a request that has come in, as without OpenTelemetry."""
    trace.extract(PARENT)
    yield
    trace.extract({})


@pytest.mark.usefixtures("incoming")
async def test_a_call_carries_the_trace_of_its_task(start: Start, server: Any, tool_part: Any) -> None:
    engine = await start(Agent.from_mcp(server[0], **server[1]))
    task = await engine.send(None, parts=(tool_part("trace"),))
    assert json.loads(task.text) == PARENT


async def test_without_a_trace_none_is_invented(start: Start, server: Any, tool_part: Any) -> None:
    engine = await start(Agent.from_mcp(server[0], **server[1]))
    task = await engine.send(None, parts=(tool_part("trace"),))
    assert json.loads(task.text) == {}


async def test_a_call_has_one_client_span_whose_context_the_server_gets(
    start: Start, server: Any, tool_part: Any, spans: SpanMemory
) -> None:
    engine = await start(Agent.from_mcp(server[0], **server[1]))
    with otel.get_tracer("test").start_as_current_span("asking"):
        task = await engine.send(None, parts=(tool_part("trace"),))
    asking, calls = spans.one("asking"), [each for each in spans.named("tools/call trace") if each.kind == "CLIENT"]
    (call,) = calls
    context: dict[str, str] = json.loads(task.text)
    assert (list(context), context["traceparent"].split("-")[1:3]) == (["traceparent"], [call.trace_id, call.span_id])
    assert (call.trace_id, call.scope, call.failed) == (asking.trace_id, "dragoman", False)
    assert (
        call.attributes.items()
        >= {
            "mcp.method.name": "tools/call",
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "trace",
        }.items()
    )
    assert [each.name for each in spans.spans if each.name.startswith("MCP send tools/call")] == []


async def test_the_content_of_a_call_is_in_the_span_only_with_the_setting(
    start: Start, kit: MCPServer, tool_part: Any, spans: SpanMemory
) -> None:
    engine = await start(Agent.from_mcp(kit))
    await engine.send(None, parts=(tool_part("echo", text="a secret"),))
    assert "a secret" not in str(spans.spans)
    engine = await start(Agent.from_mcp(kit), settings=EngineSettings(drain=0, otel_content=True))
    await engine.send(None, parts=(tool_part("echo", text="a sécret"),))
    await engine.send(None, parts=(tool_part("echo", text="x" * 10_000),))
    _, call, long = (each.attributes for each in spans.named("tools/call echo") if each.kind == "CLIENT")
    assert call["gen_ai.tool.call.arguments"] == '{"text": "a sécret"}'
    assert json.loads(call["gen_ai.tool.call.result"])["content"] == [{"type": "text", "text": "a sécret"}]
    for name in ("gen_ai.tool.call.arguments", "gen_ai.tool.call.result"):
        assert (len(long[name]), long[name][-1]) == (8192, "…")


async def test_opening_a_server_belongs_to_no_trace(
    start: Start, handshake: Command, tool_part: Any, spans: SpanMemory
) -> None:
    with otel.get_tracer("test").start_as_current_span("asking"):
        engine = await start(Agent.from_mcp(handshake()))
        await engine.send(None, parts=(tool_part("trace"),))
    asking = spans.one("asking")
    of_session = [each for each in spans.spans if each.name in ("MCP send initialize", "MCP send tools/list")]
    assert len(of_session) == 2
    assert asking.trace_id not in {each.trace_id for each in of_session}


@pytest.mark.parametrize(
    ("part", "error_type"),
    [(("fail", {}), "tool_error"), (("refuse", {"n": -32602}), "-32602"), (("refuse", {"n": -1}), "-1")],
    ids=["its own", "of the protocol", "unknown"],
)
async def test_a_call_that_fails_is_marked_without_its_words(
    start: Start, handshake: Command, tool_part: Any, spans: SpanMemory, part: Any, error_type: str
) -> None:
    engine = await start(Agent.from_mcp(handshake()))
    tool, arguments = part
    task = await engine.send(None, parts=(tool_part(tool, **arguments),))
    assert task.state in (State.FAILED, State.REJECTED)
    call = spans.one(f"tools/call {tool}")
    assert (call.failed, call.attributes["error.type"], call.status) == (True, error_type, "")
    assert "the server will not" not in str(call)
    assert "disk" not in str(call)


async def test_a_call_that_is_canceled_says_so(
    start: Start, handshake: Command, tool_part: Any, spans: SpanMemory, until: Until, tmp_path: Any
) -> None:
    engine = await start(Agent.from_mcp(handshake()))
    task = await engine.send(None, parts=(tool_part("wait"),), wait=False)
    await until((tmp_path / "begun").exists)
    await engine.cancel(task)
    await until(lambda: spans.named("tools/call wait"))
    assert spans.one("tools/call wait").attributes["error.type"] == "CANCELED"


async def test_calls_at_the_same_time_keep_their_traces_apart(
    start: Start, server: Any, tool_part: Any, spans: SpanMemory
) -> None:
    engine = await start(Agent.from_mcp(server[0], **server[1]))
    tracer = otel.get_tracer("test")

    async def one(number: int) -> str:
        with tracer.start_as_current_span(f"asking {number}"):
            return (await engine.send(None, parts=(tool_part("trace"),))).text

    texts = await asyncio.gather(*(one(number) for number in range(10)))
    for number, text in enumerate(texts):
        assert json.loads(text)["traceparent"].split("-")[1] == spans.one(f"asking {number}").trace_id


async def test_a_trace_that_is_not_sampled_is_passed_on_and_has_no_spans(
    start: Start, server: Any, tool_part: Any
) -> None:
    with collected_spans(ALWAYS_OFF) as spans:
        engine = await start(Agent.from_mcp(server[0], **server[1]))
        with otel.get_tracer("test").start_as_current_span("asking") as asking:
            task = await engine.send(None, parts=(tool_part("trace"),))
    _, trace_id, _, flags = json.loads(task.text)["traceparent"].split("-")
    assert (trace_id, int(flags, 16) & 1) == (f"{asking.get_span_context().trace_id:032x}", 0)
    assert spans.spans == []
