"""Running the MCP server: on standard input and output, or over HTTP."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from dragoman.mcp.server import A2AServer

if TYPE_CHECKING:
    from dragoman.mcp.options import McpOptions
    from dragoman.mcp.registry import Keeper

logger = logging.getLogger("dragoman.mcp")


async def serve_stdio(options: McpOptions, keeper: Keeper | None = None) -> None:
    """Serve the host that started this program, until it closes our input."""
    from mcp.server.stdio import stdio_server

    async with A2AServer(options, keeper=keeper) as mine, stdio_server() as (read, write):
        await mine.server.run(read, write, mine.server.create_initialization_options())
