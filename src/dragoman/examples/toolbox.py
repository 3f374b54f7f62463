"""An MCP server with a few tools, and the agent made of them: `dragoman serve dragoman.examples.toolbox`.

As a program, `python -m dragoman.examples.toolbox`, it is the MCP server alone, on standard input and output. Five of
its tools are for everybody; one needs the permission `counter`, one the permission `admin`. Tools that want to know who
calls them say so in their `_meta`.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from itertools import count
from typing import Annotated, Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from pydantic import Field

from dragoman.server.agent import Agent

# The tools that strangers may see and use. Whatever else is registered needs a permission.
PUBLIC = ("get_greeting", "current_time", "is_admin", "get_counter", "add_numbers")
_WANTS_USER = {"dragoman/user": True}

server = MCPServer("toolbox", version="1.0.0", instructions="A greeting, the time, a counter and a sum.")
_steps = count(1)
_counter = 0


def _caller(ctx: Context[Any, Any]) -> dict[str, Any]:
    """Who calls, as the agent in front says: it is told with each call, and kept nowhere."""
    meta: Any = ctx.request_context.meta or {}
    return meta.get("dragoman/user") or {"id": "", "name": "", "permissions": []}


@server.tool(structured_output=False, meta=_WANTS_USER)
def get_greeting(ctx: Context[Any, Any], name: Annotated[str, Field(description="Whom to greet")] = "") -> str:
    """Greet somebody by name."""
    return f"Hello, {name or _caller(ctx)['name'] or 'World'}!"


@server.tool(structured_output=False)
def current_time() -> str:
    """The time now, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@server.tool(structured_output=False, meta=_WANTS_USER)
def is_admin(ctx: Context[Any, Any]) -> str:
    """Whether you are an administrator."""
    return "true" if "admin" in _caller(ctx)["permissions"] else "false"


@server.tool(structured_output=False)
def get_counter() -> str:
    """The value of the counter."""
    return str(_counter)


@server.tool(structured_output=False)
def add_numbers(
    a: Annotated[float | int, Field(description="The first number")],
    b: Annotated[float | int, Field(description="The second number")],
) -> str:
    """Add two numbers."""
    total = a + b
    return str(int(total) if isinstance(total, float) and total.is_integer() else total)


@server.tool(structured_output=False, meta={"dragoman/permission": "counter"})
def increment_counter() -> str:
    """Add one to the counter, and give its new value."""
    global _counter  # noqa: PLW0603 - the counter is the state of this server
    _counter = next(_steps)
    return str(_counter)


@server.tool(structured_output=False, meta={"dragoman/permission": "admin", **_WANTS_USER})
def server_report(ctx: Context[Any, Any]) -> str:
    """How this server is: for administrators."""
    return f"Python {sys.version.split()[0]}, counter at {_counter}, asked for by {_caller(ctx)['name']}"


agent = Agent.from_mcp(
    [sys.executable, "-m", "dragoman.examples.toolbox"],
    permissions={**dict.fromkeys(PUBLIC), "increment_counter": "counter", "*": "admin"},
    name="elixir-mcp-agent",
    description="An Elixir MCP server exposed via the A2A protocol",
    version="1.0.0",
)

if __name__ == "__main__":
    server.run("stdio")
