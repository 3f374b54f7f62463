"""The MCP server of the contract, made with the official SDK: `mcp_program.py PORT [again]`.

With `again` its tool says that it may be called twice.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
import mcp_types as types
from contract.bridges.checkpoints import wait_at
from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Image

FORM = {"type": "object", "properties": {"days": {"type": "integer"}}, "required": ["days"]}
LOGIN = types.ElicitRequestURLParams(message="Log in, please", url="https://login.example.com/", elicitation_id="1")


def asked(question: types.ElicitRequestURLParams | types.ElicitRequestFormParams) -> types.InputRequiredResult:
    return types.InputRequiredResult(input_requests={"it": types.ElicitRequest(params=question)})


def server(port: int, *, may_repeat: bool) -> MCPServer:
    server = MCPServer("worker", log_level="CRITICAL")

    @server.tool(
        structured_output=False,
        meta={"dragoman/user": True},
        annotations=types.ToolAnnotations(idempotent_hint=may_repeat),
    )
    async def work(text: str, ctx: Context[Any, Any]) -> Any:
        """Do the work of the contract."""
        match text.split()[0]:
            case "ask":
                if ctx.input_responses is None:
                    return asked(types.ElicitRequestFormParams(message="How many days?", requested_schema=FORM))
                answer: Any = ctx.input_responses["it"]
                return f"Well. {answer.content['days']} days."
            case "wait":
                await wait_at(port, "wait")
                return "done"
            case "refuse":
                return types.CallToolResult(content=[types.TextContent(text="no bread left")], is_error=True)
            case "draw":
                return Image(data=b"\x89PNG\r\n\x1a\n\x00\xff", format="png")
            case "plan":
                return types.CallToolResult(content=[], structured_content={"city": "Porto", "days": 3})
            case "step":
                await ctx.report_progress(1, 2, "looking")
                return "found"
            case "login":
                return asked(LOGIN) if ctx.input_responses is None else "done"
            case "who":
                meta: Any = ctx.request_context.meta
                return meta["dragoman/user"]["id"]
            case order:
                raise AssertionError(f"an unknown order: {order}")

    return server


if __name__ == "__main__":
    server(int(sys.argv[1]), may_repeat="again" in sys.argv).run("stdio")
