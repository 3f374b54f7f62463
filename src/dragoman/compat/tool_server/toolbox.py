"""The example MCP server, and the agent made of its tools: the default agent of a `ToolServer`.

Run as a program, this module is the MCP server alone, on standard input and output. Five tools are public, one needs
the permission `counter`, one the permission `admin`. A tool whose `_meta` has `dragoman/user` is told who calls it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from threading import Lock
from typing import Annotated, Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from pydantic import Field

from dragoman.server.agent.agent import Agent

# The tools that need no permission. Every other tool does.
PUBLIC = ("get_greeting", "current_time", "is_admin", "get_counter", "add_numbers")
_WANTS_USER = {"dragoman/user": True}
_counter, _counting = 0, Lock()


def _caller(ctx: Context[Any, Any]) -> dict[str, Any]:
    """Return the user that the agent has sent in the `_meta` of this call."""
    meta: Any = ctx.request_context.meta or {}
    return meta.get("dragoman/user") or {"id": "", "name": "", "permissions": []}


def get_greeting(ctx: Context[Any, Any], name: Annotated[str, Field(description="Whom to greet")] = "") -> str:
    """Greet somebody by name."""
    return f"Hello, {name or _caller(ctx)['name'] or 'World'}!"


def current_time() -> str:
    """The time now, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def is_admin(ctx: Context[Any, Any]) -> str:
    """Whether you are an administrator."""
    return "true" if "admin" in _caller(ctx)["permissions"] else "false"


def get_counter() -> str:
    """The value of the counter."""
    return str(_counter)


def add_numbers(
    a: Annotated[float | int, Field(description="The first number")],
    b: Annotated[float | int, Field(description="The second number")],
) -> str:
    """Add two numbers."""
    total = a + b
    return str(int(total) if isinstance(total, float) and total.is_integer() else total)


def increment_counter() -> str:
    """Add one to the counter, and give its new value."""
    global _counter  # noqa: PLW0603 - the counter is the state of this server
    with _counting:
        _counter += 1
        return str(_counter)


def server_report(ctx: Context[Any, Any]) -> str:
    """How this server is: for administrators."""
    return f"Python {sys.version.split()[0]}, counter at {_counter}, asked for by {_caller(ctx)['name']}"


# The tools, each with its `_meta`.
TOOLS: dict[Callable[..., str], dict[str, Any] | None] = {
    get_greeting: _WANTS_USER,
    current_time: None,
    is_admin: _WANTS_USER,
    get_counter: None,
    add_numbers: None,
    increment_counter: {"dragoman/permission": "counter"},
    server_report: {"dragoman/permission": "admin", **_WANTS_USER},
}


def new_server() -> MCPServer:
    """Build the MCP server. Not done on import, because it configures the logging of the process."""
    server = MCPServer("toolbox", version="1.0.0", instructions="A greeting, the time, a counter and a sum.")
    for tool, meta in TOOLS.items():
        server.add_tool(tool, meta=meta, structured_output=False)
    return server


def new_agent(server: MCPServer | Sequence[str] | None = None) -> Agent:
    """Build the agent made of these tools. By default it runs this module as its MCP server when it is first used."""
    return Agent.from_mcp(
        [sys.executable, "-m", "dragoman.compat.tool_server.toolbox"] if server is None else server,
        permissions={**dict.fromkeys(PUBLIC), "increment_counter": "counter", "*": "admin"},
        name="elixir-mcp-agent",
        description="An Elixir MCP server exposed via the A2A protocol",
        version="1.0.0",
    )


if __name__ == "__main__":
    new_server().run("stdio")
