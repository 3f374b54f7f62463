"""One trace from an MCP host through two agents to an MCP tool, in five processes and three SDKs, over OTLP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from interop.field import PEERS, PROGRAMS, serving
from support import traced_processes as processes
from support.otlp_collector import CollectedSpan, OtlpCollector, SpanTree

pytestmark = [pytest.mark.interop, pytest.mark.timeout(60)]
A2A_SDK = next(peer for peer in PEERS if peer.folder == "a2a-sdk")


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Generator[OtlpCollector]:
    monkeypatch.delenv("OTEL_SDK_DISABLED", raising=False)
    with OtlpCollector() as collector:
        yield collector


@contextmanager
def in_the_middle(
    collector: OtlpCollector, behind: str, binding: str, monkeypatch: pytest.MonkeyPatch
) -> Generator[str]:
    """The agent on a2a-sdk, in its own environment, that asks the one behind."""
    if A2A_SDK.missing:
        pytest.skip(A2A_SDK.missing)
    variables = {**collector.environment(), "OTEL_SERVICE_NAME": "middle", "BEHIND": behind, "BINDING": binding}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with serving(replace(A2A_SDK, server=(A2A_SDK.server[0], PROGRAMS / "traced_server.py"))) as url:
        for name in variables:
            monkeypatch.delenv(name)
        yield url


async def traced(
    collector: OtlpCollector, folder: Path, binding: str, monkeypatch: pytest.MonkeyPatch
) -> tuple[dict[str, Any], SpanTree]:
    """Ask, and give what the tool has reported and the tree of the trace."""
    tool = [f"{name}={value}" for name, value in collector.environment().items()]
    variables = [word for each in [*tool, "OTEL_SERVICE_NAME=tool"] for word in ("--env", each)]
    served = ["--mcp", processes.TOOL, "--name", "behind", *variables, *(("--grpc", "0") if binding == "GRPC" else ())]
    with (
        processes.serving(collector, "behind", folder, *served) as behind,
        in_the_middle(collector, behind, binding, monkeypatch) as middle,
    ):
        async with processes.mcp_host(collector, folder) as host:
            answer = await host.ask(middle, "report, please")
    names = ["ask", "ask", "tools/call send_message", "invoke_agent behind"]
    names += ["SendMessage", "tools/call report"] * 2
    spans = await asyncio.to_thread(collector.wait_for_spans, *names)
    return json.loads(answer["text"]), processes.tree_of(spans)


def check_attributes(path: list[CollectedSpan], reported: dict[str, str]) -> None:
    """Fail unless the spans of a path have what they should have, and the tool got the context of the last call."""
    tool_call = {"mcp__method__name": "tools/call", "gen_ai__operation__name": "execute_tool"}
    send = {"a2a__method__name": "SendMessage", "a2a__protocol__version": "1.0", "a2a__message__id": ...}
    task = {"a2a__task__id": ..., "gen_ai__conversation__id": ...}
    processes.has(path[1], **tool_call, gen_ai__tool__name="send_message")
    processes.has(path[2], **send, **task, gen_ai__agent__name="middle")
    request, run, call, _ = path[-4:]
    processes.has(request, **send, **task, gen_ai__agent__name="behind", a2a__task__state="TASK_STATE_COMPLETED")
    processes.has(run, **task, gen_ai__operation__name="invoke_agent", gen_ai__agent__name="behind")
    processes.has(run, a2a__task__id=request.attributes["a2a.task.id"], dragoman__skill="report")
    for each in path[-2:]:
        processes.has(each, **tool_call, gen_ai__tool__name="report")
    assert reported["traceparent"].split("-")[1:3] == [call.trace_id, call.span_id]
    assert reported["baggage"] == "team=blue"


@pytest.mark.smoke
@pytest.mark.parametrize(("binding", "between"), [("JSONRPC", ["SERVER POST @middle"]), ("GRPC", [])])
async def test_a_trace_from_an_mcp_host_over_two_agents_to_a_tool_is_one_tree(
    collector: OtlpCollector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, binding: str, between: list[str]
) -> None:
    reported, tree = await traced(collector, tmp_path, binding, monkeypatch)
    path = processes.path_to(tree, "tool", "tools/call report")
    assert processes.lines_of(path) == [
        "INTERNAL ask @host",
        "SERVER tools/call send_message @bridge",
        "CLIENT SendMessage @bridge",
        *between,
        "CLIENT ask @middle",
        "SERVER SendMessage @behind",
        "INTERNAL invoke_agent behind @behind",
        "CLIENT tools/call report @behind",
        "SERVER tools/call report @tool",
    ]
    check_attributes(path, reported)
    assert not any(span.failed for span in path)
    # Contents are in spans only if the operator asks for them.
    assert "report, please" not in str(collector.spans)
