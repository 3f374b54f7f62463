"""Processes of a trace that goes through several of them, and the MCP host where it begins."""

from __future__ import annotations

import shlex
import sys
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import warm_start
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from opentelemetry import baggage, context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import Tracer

from support.command import DRAGOMAN, clean_environment
from support.otlp_collector import CollectedSpan, OtlpCollector, SpanTree, trees
from support.server_process import ServerProcess

HERE = Path(__file__).parent
TOOL = shlex.join([sys.executable, str(HERE / "traced_tool.py")])
# What a2a-sdk makes of each step of its own.
FOREIGN_SCOPE = "a2a-python-sdk"


def environment(collector: OtlpCollector | None, service: str) -> dict[str, str]:
    """The environment of a process that exports its spans; without a collector it knows nothing of OpenTelemetry."""
    return clean_environment(**({} if collector is None else {**collector.environment(), "OTEL_SERVICE_NAME": service}))


@contextmanager
def serving(collector: OtlpCollector | None, service: str, folder: Path, *args: str) -> Generator[str]:
    """`dragoman serve` with these arguments, on any port; yields its URL. It is stopped, so that all is exported."""
    with ServerProcess.serve(folder, *args, environment=environment(collector, service)) as server:
        yield server.url
        server.end()


@contextmanager
def tracer(collector: OtlpCollector, service: str) -> Generator[Tracer]:
    """A tracer of this process that exports its spans at once. It is not the one that libraries use."""
    provider = TracerProvider(resource=Resource.create({"service.name": service}), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{collector.url}/v1/traces")))
    yield provider.get_tracer(service)
    provider.shutdown()


class Host:
    """An MCP host of the official SDK, with `dragoman mcp` as its server, and a span of its own for what it does."""

    def __init__(self, client: Client, tracer: Tracer) -> None:
        self._client = client
        self._tracer = tracer

    async def ask(self, agent: str, text: str, **arguments: Any) -> dict[str, Any]:
        """Have a message sent to an agent, within a span `ask`, and with the baggage `team=blue`."""
        token = context.attach(baggage.set_baggage("team", "blue"))
        with self._tracer.start_as_current_span("ask"):
            arguments = {"agent_id": agent, "text": text, **arguments}
            result = await self._client.call_tool("send_message", arguments)
        context.detach(token)
        assert not result.is_error, result.content
        assert result.structured_content is not None
        return result.structured_content


@asynccontextmanager
async def mcp_host(collector: OtlpCollector, folder: Path) -> AsyncGenerator[Host]:
    """An MCP host, which has started `dragoman mcp` as a process; both export their spans."""
    with tracer(collector, "host") as host_tracer:
        async with mcp_client(collector, folder) as client:
            yield Host(client, host_tracer)


@asynccontextmanager
async def mcp_client(collector: OtlpCollector | None, folder: Path) -> AsyncGenerator[Client]:
    """The client of an MCP host, which has started `dragoman mcp` as a process."""
    warm_start.write_command(folder)
    warm = folder / "dragoman"
    command, *words = [*([str(warm)] if warm.exists() else DRAGOMAN), "mcp"]
    server = StdioServerParameters(command=command, args=words, env=environment(collector, "bridge"), cwd=folder)
    with (folder / "mcp.log").open("w") as log:
        async with Client(stdio_client(server, errlog=log)) as client:
            yield client


def tree_of(spans: list[CollectedSpan]) -> SpanTree:
    """The tree below the span `ask` of the host, which is all of its trace: no span of it stands elsewhere.

    Only a2a-sdk has spans of its own steps that never end, because its process does.
    """
    (root,) = (each for each in trees(spans) if (each.span.service, each.span.name) == ("host", "ask"))
    of_trace = [each.span for each in trees(spans) if each.span.trace_id == root.span.trace_id]
    assert [span for span in of_trace if span.scope != FOREIGN_SCOPE] == [root.span]
    return root


def path_to(tree: SpanTree, service: str, name: str) -> list[CollectedSpan]:
    """What leads to the only span of a service with this name, the root first, without the steps of a2a-sdk."""
    (path,) = _paths(tree, service, name)
    return [span for span in path if span.scope != FOREIGN_SCOPE]


def _paths(tree: SpanTree, service: str, name: str) -> Iterator[list[CollectedSpan]]:
    if (tree.span.service, tree.span.name) == (service, name):
        yield [tree.span]
    for child in tree.children:
        for path in _paths(child, service, name):
            yield [tree.span, *path]


def lines_of(path: list[CollectedSpan]) -> list[str]:
    """The spans as lines: kind, name and service."""
    return [f"{span.kind} {span.name} @{span.service}" for span in path]


def has(span: CollectedSpan, **attributes: Any) -> None:
    """Fail unless a span has these attributes; `__` in their names stands for a dot, and ... for any value."""
    for name, value in attributes.items():
        found = span.attributes.get(name.replace("__", "."))
        assert found is not None if value is ... else found == value, (name, span.attributes)
