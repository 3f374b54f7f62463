"""An MCP server over stdio, whose tool reports the trace that its call carries. It exports its own spans, too.

The official SDK makes them; this program only says where they go, by OTEL_EXPORTER_OTLP_ENDPOINT.
"""

from __future__ import annotations

import json
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

server = MCPServer("tool", version="1", log_level="CRITICAL")


@server.tool(structured_output=False)
def report(ctx: Context[Any, Any]) -> str:
    """Report the trace."""
    meta: dict[str, Any] = dict(ctx.request_context.meta or {})
    return json.dumps({name: meta[name] for name in ("traceparent", "tracestate", "baggage") if name in meta})


if __name__ == "__main__":
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    server.run("stdio")
