"""An MCP server of a user. It is never changed."""

from __future__ import annotations

from mcp.server import MCPServer

server = MCPServer("tools", version="1.0.0")


@server.tool()
def shout(text: str) -> str:
    """Say it loud."""
    return text.upper()


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def secret() -> str:
    """For administrators."""
    return "42"


@server.tool()
def hidden() -> str:
    """Not offered."""
    return "no"


if __name__ == "__main__":
    server.run("stdio")
