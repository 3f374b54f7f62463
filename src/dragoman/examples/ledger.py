"""An MCP server with one tool that adds up money: `python -m dragoman.examples.ledger`, on standard input and output.

`dragoman.examples.team` serves it as an agent.
"""

from __future__ import annotations

import re
from typing import Annotated

from mcp.server import MCPServer
from pydantic import Field


def add_up(text: Annotated[str, Field(description="A text with amounts, such as `12 euros`")]) -> str:
    """Add up the amounts in a text."""
    amounts = [int(amount) for amount in re.findall(r"(\d+) euros", text)]
    return f"{' + '.join(map(str, amounts)) or '0'} = {sum(amounts)} euros."


def new_server() -> MCPServer:
    """Return the MCP server. Creating it configures the logging of the process, so it is not created on import."""
    server = MCPServer("ledger", instructions="Adds up what things cost.")
    server.add_tool(add_up, structured_output=False)
    return server


if __name__ == "__main__":
    new_server().run("stdio")
