"""One trace from an MCP host over an agent to the program that it is made of, in processes of their own."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from support import traced_processes as processes
from support.otlp_collector import OtlpCollector

PROGRAM = "import os; print(os.environ['TRACEPARENT'], os.environ['BAGGAGE'])"


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Generator[OtlpCollector]:
    monkeypatch.delenv("OTEL_SDK_DISABLED", raising=False)
    with OtlpCollector() as collector:
        yield collector


async def test_a_program_continues_the_trace_of_an_mcp_host(collector: OtlpCollector, tmp_path: Path) -> None:
    command = shlex.join([sys.executable, "-c", PROGRAM])
    with processes.serving(collector, "program", tmp_path, "--command", command, "--name", "printer") as url:
        async with processes.mcp_host(collector, tmp_path) as host:
            answer = await host.ask(url, "go")
    names = ["ask", "tools/call send_message", "SendMessage", "SendMessage", "invoke_agent printer"]
    spans = await asyncio.to_thread(collector.wait_for_spans, *names)
    path = processes.path_to(processes.tree_of(spans), "program", "invoke_agent printer")
    assert processes.lines_of(path) == [
        "INTERNAL ask @host",
        "SERVER tools/call send_message @bridge",
        "CLIENT SendMessage @bridge",
        "SERVER SendMessage @program",
        "INTERNAL invoke_agent printer @program",
    ]
    run = path[-1]
    traceparent, baggage = answer["text"].split()
    assert (traceparent.split("-")[1:3], baggage) == ([run.trace_id, run.span_id], "team=blue")


async def test_without_opentelemetry_the_trace_of_the_host_reaches_the_program_unchanged(tmp_path: Path) -> None:
    command = shlex.join([sys.executable, "-c", PROGRAM])
    meta: Any = {"traceparent": f"00-{7:032x}-{8:016x}-01", "baggage": "team=blue"}
    with processes.serving(None, "", tmp_path, "--command", command, "--name", "printer") as url:
        async with processes.mcp_client(None, tmp_path) as client:
            result = await client.call_tool("send_message", {"agent_id": url, "text": "go"}, meta=meta)
    assert result.structured_content is not None
    assert result.structured_content["text"].split() == [meta["traceparent"], meta["baggage"]]
