"""The spans of one call: of the client, of the server, and of the run, over every binding and version."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from support.otlp_collector import SpanMemory, collected_spans, trees

from dragoman import Agent, Client, Context
from dragoman.errors import CannotConnect, Failed, TaskNotFound
from dragoman.net.exchange import CallNext, HttpRequest, HttpResponse
from dragoman.outputs import Reply
from dragoman.sync import Client as SyncClient
from dragoman.testing import faults, served

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


def build_agent() -> Agent:
    agent = Agent("trip", description="Plans trips")

    @agent.skill
    async def book(city: str) -> AsyncIterator[str]:
        with trace.get_tracer("framework").start_as_current_span("think"):
            yield f"booked {city} "
        yield "and paid"

    @agent.skill
    def count(to: int) -> str:
        with trace.get_tracer("framework").start_as_current_span("compute"):
            return str(to)

    @agent.skill
    async def choose(ctx: Context) -> str:
        return f"took {await ctx.ask('which?')}"

    @agent.skill
    async def listen(ctx: Context) -> str:
        async for message in ctx.messages():
            return message.text
        return ""

    @agent.skill
    async def fail(kind: str) -> str:
        raise Failed("no money") if kind == "failed" else RuntimeError("secret")

    @agent.skill(replies=True)
    async def greet() -> Reply:
        return Reply("hello")

    return agent


def outline(spans: SpanMemory) -> list[str]:
    return [tree.outline("a2a.task.state", "error.type") for tree in trees(spans.spans)]


@pytest.mark.parametrize("transport", ["jsonrpc", "rest", "grpc"])
@pytest.mark.parametrize("protocol", ["0.3", "1.0"])
async def test_a_call_is_one_tree_over_every_binding(spans: SpanMemory, protocol: str, transport: str) -> None:
    with served(build_agent(), grpc=0) as url:
        async with Client(url, protocol=protocol, transport=transport) as client:
            task = await client.send(tool="book", arguments={"city": "Rome"})
            async for _ in client.stream(tool="book", arguments={"city": "Oslo"}):
                pass
            with pytest.raises(TaskNotFound):
                await client.get_task("nothing")
    done = "TASK_STATE_COMPLETED"
    assert outline(spans) == [
        f"CLIENT {name} {done}\n  SERVER {name} {done}\n    INTERNAL invoke_agent trip {done}\n      INTERNAL think"
        for name in ("SendMessage", "SendStreamingMessage")
    ] + ["CLIENT GetTask TASK_NOT_FOUND\n  SERVER GetTask TASK_NOT_FOUND"]
    call, server, run = (
        next(span for span in spans.spans if span.kind == kind and span.attributes.get("a2a.task.id") == task.id)
        for kind in ("CLIENT", "SERVER", "INTERNAL")
    )
    common = {
        "a2a.method.name": "SendMessage",
        "a2a.protocol.version": protocol,
        "a2a.message.id": server.attributes["a2a.message.id"],
        "a2a.task.id": task.id,
        "a2a.task.state": done,
        "gen_ai.agent.name": "trip",
        "gen_ai.conversation.id": task.context_id,
    }
    assert (call.attributes, server.attributes) == (common, common)
    assert run.attributes == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "trip",
        "gen_ai.conversation.id": task.context_id,
        "a2a.task.id": task.id,
        "a2a.task.state": done,
        "dragoman.skill": "book",
    }
    assert call.start_ns <= server.start_ns <= run.start_ns <= run.end_ns <= server.end_ns <= call.end_ns


async def test_a_call_of_version_0_1_has_the_name_of_today(spans: SpanMemory) -> None:
    async with Client(build_agent().app(store="memory:"), protocol="0.1") as client:
        await client.send(tool="book", arguments={"city": "Rome"})
    server = next(span for span in spans.spans if span.kind == "SERVER")
    assert (server.name, server.attributes["a2a.protocol.version"]) == ("SendMessage", "0.1")


async def test_a_call_in_this_process_has_only_a_run_below_its_caller(spans: SpanMemory) -> None:
    async with Client(build_agent()) as client:
        with trace.get_tracer("program").start_as_current_span("program"):
            await client.send(tool="book", arguments={"city": "Rome"})
            async for _ in client.stream(tool="count", arguments={"to": 3}):
                pass
    done = "TASK_STATE_COMPLETED"
    assert outline(spans) == [
        f"INTERNAL program\n  INTERNAL invoke_agent trip {done}\n    INTERNAL think"
        f"\n  INTERNAL invoke_agent trip {done}\n    INTERNAL compute"
    ]


def test_calls_of_the_client_without_async_are_below_their_caller(spans: SpanMemory) -> None:
    program = trace.get_tracer("program").start_as_current_span("program")
    with served(build_agent()) as url, SyncClient(url) as client, program:
        client.call("book", city="Rome")
        for _ in client.stream(tool="count", arguments={"to": 3}):
            pass
    (tree,) = trees(spans.spans)
    assert [child.span.name for child in tree.children] == ["SendMessage", "SendStreamingMessage"]


async def test_an_agent_that_calls_an_agent_continues_the_trace(spans: SpanMemory) -> None:
    with served(build_agent()) as url:
        front = Agent("front")

        @front.skill
        async def plan(city: str) -> Any:
            async with Client(url) as client:
                return await client.call("book", city=city)

        with served(front) as front_url:
            async with Client(front_url, headers={"traceparent": TRACEPARENT}) as client:
                await client.call("plan", city="Rome")
    done = "TASK_STATE_COMPLETED"
    lines = [
        *(f"SERVER SendMessage {done}", f"INTERNAL invoke_agent front {done}", f"CLIENT SendMessage {done}"),
        *(f"SERVER SendMessage {done}", f"INTERNAL invoke_agent trip {done}", "INTERNAL think"),
    ]
    expected = "\n".join("  " * depth + line for depth, line in enumerate(lines))
    # The header of the user is what is sent, whatever span the client has.
    assert expected in outline(spans)
    first = next(span for span in spans.spans if span.name == "invoke_agent front")
    assert first.trace_id == TRACE


async def test_an_error_of_a_run_is_named_by_its_class_or_reason_and_never_by_its_text(spans: SpanMemory) -> None:
    async with Client(build_agent()) as client:
        await client.send(tool="fail", arguments={"kind": "failed"})
        await client.send(tool="fail", arguments={"kind": "other"})
    failed_run, other = spans.named("invoke_agent trip")
    assert (failed_run.attributes["error.type"], failed_run.failed) == (Failed.reason, True)
    assert (other.attributes["error.type"], other.failed) == ("RuntimeError", True)
    assert "secret" not in str(spans.spans) and "no money" not in str(spans.spans)


async def test_a_bare_reply_has_no_state(spans: SpanMemory) -> None:
    async with Client(build_agent().app(store="memory:")) as client:
        await client.send(tool="greet")
        async for _ in client.stream(tool="greet"):
            pass
    assert {tuple(span.attributes.get(name) for name in ("a2a.task.state", "error.type")) for span in spans.spans} == {
        (None, None)
    }


async def test_an_answer_is_a_run_of_its_own_trace_linked_to_that_of_its_task(spans: SpanMemory) -> None:
    async with Client(build_agent().app(store="memory:")) as client:
        task = await client.send(tool="choose")
        spans_before = spans.spans
        spans.clear()
        await client.send("this", task=task)
    first = next(span for span in spans_before if span.kind == "SERVER")
    assert next(span for span in spans_before if span.kind == "INTERNAL").attributes["a2a.task.state"] == (
        "TASK_STATE_INPUT_REQUIRED"
    )
    answer, run = (next(span for span in spans.spans if span.kind == kind) for kind in ("SERVER", "INTERNAL"))
    assert (run.trace_id, run.parent_id) == (answer.trace_id, answer.span_id)
    assert answer.trace_id != first.trace_id
    assert run.links == answer.links == ((first.trace_id, first.span_id),)


async def test_a_message_to_a_working_task_is_linked_to_its_trace(spans: SpanMemory) -> None:
    async with Client(build_agent().app(store="memory:")) as client:
        task = await client.send(tool="listen", wait=False)
        await client.send("over", task=task)
    first, followup = (span for span in spans.spans if span.kind == "SERVER")
    assert followup.links == ((first.trace_id, first.span_id),)
    assert first.links == ()
    (run,) = spans.named("invoke_agent trip")
    assert (run.trace_id, run.links) == (first.trace_id, ())


async def test_a_run_that_waits_for_its_turn_belongs_to_its_own_request(spans: SpanMemory, tmp_path: Path) -> None:
    gate, agent = asyncio.Event(), Agent("slow")

    @agent.skill
    async def work(name: str) -> str:
        await gate.wait()
        return name

    async with Client(agent.app(store=f"sqlite:///{tmp_path}/tasks.db")) as client:
        first = await client.send(tool="work", arguments={"name": "a"}, wait=False)
        second = await client.send(tool="work", arguments={"name": "b"}, context=first.context_id, wait=False)
        gate.set()
        await client.wait(second)
    servers = {span.attributes["a2a.task.id"]: span for span in spans.named("SendMessage") if span.kind == "SERVER"}
    runs = {span.attributes["a2a.task.id"]: span for span in spans.named("invoke_agent slow")}
    for task in (first, second):
        assert runs[task.id].parent_id == servers[task.id].span_id
    assert servers[first.id].trace_id != servers[second.id].trace_id


async def test_retries_are_one_span(spans: SpanMemory) -> None:
    tries: list[str] = []

    async def break_twice(request: HttpRequest, call_next: CallNext) -> HttpResponse:
        if request.method == "POST":
            tries.append(request.headers["traceparent"])
            if len(tries) < 3:
                raise CannotConnect("broken", reason="CONNECTION_LOST")
        return await call_next(request)

    async with Client(build_agent().app(store="memory:"), interceptors=[break_twice]) as client:
        await client.send(tool="count", arguments={"to": 3})
    (call,) = [span for span in spans.spans if span.kind == "CLIENT"]
    assert [each[:53] for each in tries] == [call.traceparent[:53]] * 3
    assert not call.failed


async def test_a_stream_that_is_resumed_is_one_span_with_events(spans: SpanMemory) -> None:
    with served(faults(build_agent(), cut_after=2)) as url:
        async with Client(url) as client:
            text = "".join([event.text async for event in client.stream(tool="book", arguments={"city": "Rome"})])
    assert text == "booked Rome and paid"
    (call,) = [span for span in spans.spans if span.kind == "CLIENT"]
    assert set(call.events) == {"resumed"}
    assert not call.failed
    assert {span.parent_id for span in spans.spans if span.kind == "SERVER"} == {call.span_id}


async def test_leaving_a_stream_ends_its_span_without_an_error(spans: SpanMemory) -> None:
    async with Client(build_agent().app(store="memory:")) as client:
        async with aclosing(aiter(client.stream(tool="book", arguments={"city": "Rome"}))) as events:
            await anext(events)
            assert not [span for span in spans.spans if span.kind == "CLIENT"]
            with trace.get_tracer("reader").start_as_current_span("reader") as reader:
                assert reader.parent is None
        (call,) = [span for span in spans.spans if span.kind == "CLIENT"]
    assert (call.name, call.failed) == ("SendStreamingMessage", False)


async def test_an_agent_that_cannot_be_reached_is_an_error_by_its_reason(spans: SpanMemory) -> None:
    async with Client("http://127.0.0.1:9", retries=0) as client:
        with pytest.raises(CannotConnect):
            await client.send("go")
    assert spans.one("SendMessage").attributes["error.type"] == "CANNOT_CONNECT"


async def test_a_request_that_cannot_be_read_is_a_span_with_its_error(spans: SpanMemory) -> None:
    import aiohttp

    with served(build_agent()) as url:
        async with aiohttp.ClientSession() as http:
            body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": 3}}
            headers = {"traceparent": TRACEPARENT, "A2A-Version": "1.0"}
            async with http.post(url, json=body, headers=headers) as response:
                assert "error" in await response.json()
    found = spans.one("SendMessage")
    assert (found.trace_id, found.parent_id, found.kind) == (TRACE, PARENT, "SERVER")
    assert found.attributes["error.type"] == "INVALID_PARAMS"


async def test_a_trace_that_its_caller_does_not_sample_has_no_spans_and_goes_on() -> None:
    with collected_spans() as spans:
        unsampled = TRACEPARENT[:-1] + "0"
        passed_on: list[str] = []
        agent = Agent("front")

        @agent.skill
        async def plan() -> str:
            headers: dict[str, str] = {}
            from dragoman.telemetry.trace import inject

            inject(headers)
            passed_on.append(headers["traceparent"])
            return ""

        context = trace.set_span_in_context(
            trace.NonRecordingSpan(trace.SpanContext(int(TRACE, 16), int(PARENT, 16), True, trace.TraceFlags(0)))
        )
        from opentelemetry import context as contexts

        token = contexts.attach(context)
        try:
            async with Client(agent.app(store="memory:")) as client:
                await client.call("plan")
        finally:
            contexts.detach(token)
        assert passed_on[0].startswith(unsampled[:36]) and passed_on[0].endswith("-00")
        assert spans.spans == []


async def test_content_is_in_spans_only_where_it_is_asked_for(spans: SpanMemory) -> None:
    agent = Agent("echo")

    @agent.skill
    async def echo(text: str) -> str:
        return f"heard {text}"

    async def run(app: Any, text: str) -> dict[str, Any]:
        spans.clear()
        async with Client(app) as client:
            await client.send(text)
        return spans.one("invoke_agent echo").attributes

    without = await run(agent.app(store="memory:"), "blue moon")
    assert "blue moon" not in str(without)
    app = agent.app(store="memory:", otel_content=True)
    attributes = await run(app, "blue moon")
    assert attributes["gen_ai.input.messages"] == ('[{"role":"user","parts":[{"type":"text","content":"blue moon"}]}]')
    assert attributes["gen_ai.output.messages"] == (
        '[{"role":"assistant","parts":[{"type":"text","content":"heard blue moon"}]}]'
    )
    assert not [span for span in spans.spans if span.name != "invoke_agent echo" and "blue moon" in str(span)]
    for text in ("x" * 100_000, "\x01é" * 50_000):
        attributes = await run(agent.app(store="memory:", otel_content=True), text)
        for name in ("gen_ai.input.messages", "gen_ai.output.messages"):
            assert 7000 < len(attributes[name].encode()) <= 8192
            assert attributes[name].endswith('…"}]}]')
