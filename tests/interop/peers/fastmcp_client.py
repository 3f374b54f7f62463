"""FastMCP's client, driven line by line: `fastmcp_client.py auto|legacy URL` or `... COMMAND ARGUMENT...`.

It reads one JSON object a line, `{"tool": …, "arguments": {…}, "answers": […]}`, and writes one for each: the result
and what was asked. Progress is written as it comes, `{"progress": […]}`. `{"tool": null}` lists the tools,
`{"resource": uri}` reads one.
"""

import asyncio
import json
import sys
from typing import Any

from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport

Json = dict[str, Any]


class Driver:
    """Calls tools, answers questions as it is told, and keeps what was asked."""

    def __init__(self) -> None:
        self._answers: list[Any] = []
        self._asked: list[str] = []

    async def on_question(self, message: str, kind: Any, params: Any, context: Any) -> Any:
        """Answer with the next answer; null declines."""
        self._asked.append(message)
        answer = self._answers.pop(0)
        if answer is None:
            return ElicitResult(action="decline")
        return ElicitResult(action="accept", content=answer)

    async def on_progress(self, done: float, total: float | None, message: str | None) -> None:
        """Write it."""
        print(json.dumps({"progress": [done, total, message]}), flush=True)

    async def run(self, client: Client, request: Json) -> Json:
        """Do what one line says."""
        if "resource" in request:
            contents = await client.read_resource(request["resource"])
            return {"contents": [each.model_dump(mode="json", by_alias=True) for each in contents]}
        if request["tool"] is None:
            return {"tools": [tool.name for tool in await client.list_tools()]}
        self._answers, self._asked = request.get("answers") or [], []
        result = await client.call_tool_mcp(
            request["tool"], request.get("arguments") or {}, progress_handler=self.on_progress
        )
        return {
            "error": result.is_error,
            "structured": result.structured_content,
            "content": [each.model_dump(mode="json", by_alias=True, exclude_none=True) for each in result.content],
            "asked": self._asked,
        }


async def main() -> None:
    mode, *target = sys.argv[1:]
    transport: Any = (
        StreamableHttpTransport(target[0]) if len(target) == 1 else StdioTransport(command=target[0], args=target[1:])
    )
    driver = Driver()
    async with Client(transport, mode=mode, elicitation_handler=driver.on_question) as client:
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            print(json.dumps(await driver.run(client, json.loads(line))), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
