"""A task that is restarted, or taken over by another node, stays in the trace in which it began."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import msgspec
import pytest
from cluster.processes.nodes import Node
from support.otlp_collector import OtlpCollector, SpanMemory

from dragoman import Agent, Client, Context
from dragoman.engine.call import CallContext
from dragoman.engine.journal.replay import StoredRequest
from dragoman.model.user import User
from dragoman.telemetry.trace import current, inject
from dragoman.testing import served

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


class Interrupted:
    """An agent whose first run hangs; the next one finishes, and says which context it would pass on."""

    def __init__(self) -> None:
        self.agent = Agent("test")
        self.began = asyncio.Event()
        self.agent.skill(restart=True)(self.work)

    async def work(self, ctx: Context) -> dict[str, str]:
        if not ctx.restarted:
            self.began.set()
            await asyncio.Event().wait()
        headers: dict[str, str] = {}
        inject(headers)
        return headers


async def send(url: str, traceparent: str, skill: str = "work", data: Any = None) -> str:
    """Send a message with a trace context, and return the id of its task without waiting for it."""
    parts = [{"data": data or {}}]
    message = {
        "messageId": str(uuid4()),
        "role": "ROLE_USER",
        "parts": parts,
        "metadata": {"skillId": skill},
    }
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "SendMessage",
        "params": {"message": message, "configuration": {"returnImmediately": True}},
    }
    headers = {"traceparent": traceparent, "tracestate": "vendor=1", "A2A-Version": "1.0"}
    async with aiohttp.ClientSession() as http, http.post(url, json=body, headers=headers) as response:
        return (await response.json())["result"]["task"]["id"]


async def restarted(tmp_path: Path) -> dict[str, str]:
    """What a run passes on that was restarted by another server on the same store."""
    work = Interrupted()
    store = f"sqlite:///{tmp_path}/tasks.db"
    with served(work.agent, store=store, drain=0) as url:
        task_id = await send(url, TRACEPARENT)
        await until(work.began.is_set)
    with served(work.agent, store=store) as url:
        async with Client(url) as client:
            task = await client.wait(task_id)
    return task.value


async def until(condition: Callable[[], bool]) -> None:
    """Let others run until something is so, in another thread or process."""
    async with asyncio.timeout(15):
        while not condition():  # noqa: ASYNC110 - any condition
            await asyncio.sleep(0.005)


async def test_a_restarted_run_has_the_request_as_its_parent_again(spans: SpanMemory, tmp_path: Path) -> None:
    passed_on = await restarted(tmp_path)
    request = next(span for span in spans.named("SendMessage") if span.kind == "SERVER")
    interrupted, again = spans.named("invoke_agent test")
    assert (request.trace_id, request.parent_id, request.tracestate) == (TRACE, PARENT, "vendor=1")
    for run in (interrupted, again):
        assert (run.trace_id, run.parent_id, run.tracestate) == (TRACE, request.span_id, "vendor=1")
    assert interrupted.attributes["error.type"] == "INTERRUPTED"
    assert again.attributes["dragoman.attempt"] == 1
    assert (again.attributes["a2a.task.state"], again.failed) == ("TASK_STATE_COMPLETED", False)
    assert passed_on["traceparent"][:53] == again.traceparent[:53]


async def test_without_opentelemetry_a_restarted_run_passes_on_the_context_of_the_request(tmp_path: Path) -> None:
    assert await restarted(tmp_path) == {"traceparent": TRACEPARENT, "tracestate": "vendor=1"}


async def test_an_untraced_task_is_stored_without_a_trace_context() -> None:
    call = CallContext(user=User("ada"), origin="1.0")
    stored = msgspec.json.encode(StoredRequest(call, {"a": 1}))
    assert b"trace" not in stored
    assert msgspec.json.decode(stored, type=StoredRequest).call == call
    assert current.get() is None


@pytest.mark.timeout(60)
async def test_a_killed_process_leaves_its_task_in_the_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with OtlpCollector() as collector:
        for name, value in collector.environment().items():
            monkeypatch.setenv(name, value)
        node = Node(1, tmp_path, f"sqlite:///{tmp_path}/tasks.db")
        try:
            await asyncio.to_thread(node.launch)
            task_id = await send(node.url, TRACEPARENT, "again", {"nonce": "n", "ms": 60_000})
            await asyncio.to_thread(collector.wait_for_spans, "SendMessage")
            await begun(tmp_path, task_id)
            await asyncio.to_thread(node.process.kill)
            await asyncio.to_thread(node.launch)
            async with Client(node.url) as client:
                await client.cancel_task(task_id)
            found = await asyncio.to_thread(collector.wait_for_spans, "invoke_agent effects")
        finally:
            node.close()
    request = next(span for span in found if span.name == "SendMessage")
    run = next(span for span in found if span.name == "invoke_agent effects")
    assert (request.trace_id, request.parent_id) == (TRACE, PARENT)
    assert (run.trace_id, run.parent_id) == (TRACE, request.span_id)
    assert run.attributes["dragoman.attempt"] == 2
    assert request.resource["service.instance.id"] != run.resource["service.instance.id"]
    assert request.service == run.service == node.name


@pytest.mark.timeout(60)
async def test_a_task_that_another_node_takes_over_stays_in_its_trace(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with OtlpCollector() as collector:
        for name, value in collector.environment().items():
            monkeypatch.setenv(name, value)
        nodes = [Node(number, tmp_path, postgres_url, ["--lease", "2"]) for number in (1, 2)]
        try:
            for node in nodes:
                await asyncio.to_thread(node.launch)
            task_id = await send(nodes[0].url, TRACEPARENT, "again", {"nonce": "n", "ms": 1000})
            await asyncio.to_thread(collector.wait_for_spans, "SendMessage")
            await begun(tmp_path, task_id)
            await asyncio.to_thread(nodes[0].process.kill)
            found = await asyncio.to_thread(collector.wait_for_spans, "invoke_agent effects", seconds=30)
        finally:
            for node in nodes:
                node.close()
    request = next(span for span in found if span.name == "SendMessage")
    run = next(span for span in found if span.name == "invoke_agent effects")
    assert (run.trace_id, run.parent_id) == (TRACE, request.span_id)
    assert run.attributes["a2a.task.state"] == "TASK_STATE_COMPLETED"
    assert request.resource["service.instance.id"] != run.resource["service.instance.id"]


async def begun(folder: Path, task_id: str) -> None:
    """Wait until the code of a skill was called for a task."""
    file = folder / "effects.jsonl"
    await until(lambda: any(json.loads(line)["task"] == task_id for line in file.read_text().splitlines()))
