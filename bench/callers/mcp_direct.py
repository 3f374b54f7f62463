"""The official MCP client, calling the tool itself."""

from __future__ import annotations

import sys

from mcp import Client, StdioServerParameters
from mcp_types import TextContent


class DirectCaller:
    """See `Caller`. The address says nothing: it starts its own server."""

    def __init__(self) -> None:
        self._client = Client(StdioServerParameters(command=sys.executable, args=["-m", "bench.agents.mcp_echo"]))

    async def echo(self, text: str) -> str:
        """See `Caller.echo`."""
        result = await self._client.call_tool("echo", {"text": text})
        block = result.content[0]
        if result.is_error or not isinstance(block, TextContent):
            raise ValueError("the tool failed")
        return block.text

    async def open(self) -> None:
        """Start the server."""
        await self._client.__aenter__()

    async def count(self, chunks: int) -> tuple[str, int]:
        """See `Caller.count`."""
        raise NotImplementedError

    async def close(self) -> None:
        """See `Caller.close`."""
        await self._client.__aexit__(None, None, None)


def caller(url: str) -> DirectCaller:
    """A caller of a server of its own."""
    return DirectCaller()
