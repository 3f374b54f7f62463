"""The trace of a task goes on at the node that takes it over."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from pathlib import Path

import pytest
from cluster.processes.nodes import Node, effects_of, two_nodes
from support import traced_processes as processes
from support.otlp_collector import OtlpCollector

from dragoman import Client, State, Task

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Generator[OtlpCollector]:
    with OtlpCollector() as collector:
        for name, value in collector.environment().items():
            monkeypatch.setenv(name, value)
        yield collector


@pytest.fixture
def nodes(tmp_path: Path, postgres_url: str, collector: OtlpCollector) -> Generator[list[Node]]:
    with two_nodes(tmp_path, postgres_url, "--lease", "2", "--drain", "1") as nodes:
        yield nodes


async def test_a_run_that_is_taken_over_is_in_the_trace_of_its_task(
    nodes: list[Node], collector: OtlpCollector, tmp_path: Path
) -> None:
    first, second = nodes
    with processes.tracer(collector, "host") as tracer:
        async with Client(first.url, reconnect=0) as client:
            with tracer.start_as_current_span("ask"):
                task = await client.send(tool="again", arguments={"nonce": "n", "ms": 1000}, wait=False)
            assert isinstance(task, Task)
            await asyncio.to_thread(collector.wait_for_spans, "SendMessage")
            async for event in client.subscribe(task):
                if event.kind == "artifact":
                    break
            await asyncio.to_thread(first.process.kill)
    async with Client(second.url) as client:
        async for _ in client.subscribe(task):
            pass
        assert (await client.get_task(task)).state is State.COMPLETED
    begun = [each["pid"] for each in effects_of(tmp_path) if (each["kind"], each["key"]) == ("begin", "run")]
    assert begun == [first.process.pid, second.process.pid]
    spans = await asyncio.to_thread(collector.wait_for_spans, "ask", "SendMessage", "invoke_agent effects")
    path = processes.path_to(processes.tree_of(spans), "node2", "invoke_agent effects")
    assert processes.lines_of(path) == [
        "INTERNAL ask @host",
        "SERVER SendMessage @node1",
        "INTERNAL invoke_agent effects @node2",
    ]
    processes.has(path[-1], a2a__task__id=task.id, gen_ai__agent__name="effects", dragoman__skill="again")
