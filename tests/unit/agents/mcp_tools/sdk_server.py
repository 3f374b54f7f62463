"""An MCP server made with the official SDK, which serves both eras.

As a program it is started with `stdio FOLDER` or `http PORT FOLDER ERA`. What its tools notice is left in files of
FOLDER. Over HTTP it can be one that knows the handshake era only.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import anyio
import mcp_types as types
from mcp import MCPError
from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Elicit, RequestStateSecurity, Resolve
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types.version import LATEST_MODERN_VERSION
from pydantic import BaseModel

KEY = b"k" * 32
URL = types.ElicitRequestURLParams(message="Sign in first.", url="https://login.example.com/", elicitation_id="1")


class Name(BaseModel):
    name: str


class Size(BaseModel):
    size: int


def ask_who(label: str = "") -> Elicit[Name]:
    return Elicit(f"Who is {label or 'it'}?", Name)


def ask_size(who: Annotated[Name, Resolve(ask_who)]) -> Elicit[Size]:
    return Elicit(f"How tall is {who.name}?", Size)


def build(folder: Path, key: bytes = KEY) -> MCPServer:  # noqa: C901 - many small tools
    """The server. What its tools notice is left in files of the folder; `key` seals what it has its callers keep."""
    server = MCPServer(
        "kit",
        instructions="Tools for tests.",
        version="7",
        log_level="CRITICAL",
        request_state_security=RequestStateSecurity(keys=[key]),
    )

    def note(name: str) -> None:
        with (folder / name).open("a") as file:
            file.write("\n")

    @server.tool(structured_output=False)
    def add(a: int, b: int) -> str:
        """Add two numbers."""
        return json.dumps([a + b, type(a).__name__, type(b).__name__])

    @server.tool(structured_output=False, title="Say it again")
    def echo(text: str) -> str:
        """Say it again, as it is."""
        return text

    @server.tool(structured_output=False, meta={"dragoman/user": True})
    def who(ctx: Context[Any, Any]) -> str:
        """Who calls."""
        return json.dumps((ctx.request_context.meta or {}).get("dragoman/user"))

    @server.tool(structured_output=False)
    def nobody(ctx: Context[Any, Any]) -> str:
        """What is told to who did not ask."""
        return json.dumps((ctx.request_context.meta or {}).get("dragoman/user"))

    @server.tool(structured_output=False)
    def trace(ctx: Context[Any, Any]) -> str:
        """The trace context that came with the call."""
        meta: dict[str, Any] = dict(ctx.request_context.meta or {})
        return json.dumps({name: meta[name] for name in ("traceparent", "tracestate", "baggage") if name in meta})

    @server.tool(structured_output=False, meta={"dragoman/permission": "admin"})
    def secret() -> str:
        """For administrators."""
        return "the secret"

    @server.tool(structured_output=False)
    def fail() -> str:
        """Fail."""
        raise ValueError("the disk is full")

    @server.tool(structured_output=False)
    def refuse(n: int) -> str:
        """Refuse with an error of the protocol."""
        raise MCPError(code=n, message="the server will not")

    @server.tool(structured_output=False)
    async def wait() -> str:
        """Begin and never end."""
        note("begun")
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            note("canceled")
            raise
        return ""

    @server.tool(structured_output=False)
    async def introduce(who: Annotated[Name, Resolve(ask_who)], label: str = "") -> str:
        """Ask for a name."""
        return f"{label}: {who.name}"

    @server.tool(structured_output=False)
    async def measure(
        size: Annotated[Size, Resolve(ask_size)], who: Annotated[Name, Resolve(ask_who)], label: str = ""
    ) -> str:
        """Ask for a name and a size, one after the other."""
        return f"{who.name}: {size.size}"

    @server.tool(structured_output=False)
    async def inquire(ctx: Context[Any, Any], label: str = "", wrapped: bool = False) -> str:
        """Ask within the call, which only the handshake era has; `wrapped` reports that as FastMCP does."""
        note("asked")
        try:
            answer = await ctx.elicit(f"Who is {label or 'it'}?", Name)
        except MCPError:
            if not wrapped:
                raise
            raise ToolError("elicitation via server-initiated requests is unavailable on these connections.") from None
        return f"{label}: {answer.action} {getattr(answer, 'data', None)}"

    @server.tool(structured_output=False)
    def pid() -> str:
        """Tell the number of the process."""
        return str(os.getpid())

    @server.tool(structured_output=False)
    async def held() -> str:
        """Begin, and end when somebody writes into the pipe."""
        note("begun")
        await anyio.to_thread.run_sync((folder / "pipe").read_bytes)
        return f"held by {os.getpid()}"

    @server.tool(structured_output=False)
    async def sign_in(ctx: Context[Any, Any]) -> Any:
        """Ask to visit a page."""
        if ctx.input_responses is None:
            return types.InputRequiredResult(input_requests={"it": types.ElicitRequest(params=URL)})
        return str(getattr(ctx.input_responses["it"], "action", ""))

    @server.tool(structured_output=False)
    def rounds(n: int, ctx: Context[Any, Any]) -> Any:
        """Go on in another round, without a question."""
        done = int(ctx.request_state or 0)
        return types.InputRequiredResult(request_state=str(done + 1)) if done < n else f"after {done}"

    @server.tool(structured_output=False)
    def think() -> Any:
        """Ask for what only a language model could give."""
        params = types.CreateMessageRequestParams(messages=[], max_tokens=5)
        return types.InputRequiredResult(input_requests={"it": types.CreateMessageRequest(params=params)})

    @server.tool(structured_output=False)
    async def more(ctx: Context[Any, Any]) -> str:
        """Have another tool from now on."""
        server.add_tool(lambda: "late", name="late")
        await ctx.notify_tools_changed()
        return "done"

    return server


class HandshakeOnly:
    """An MCP server over HTTP that does not know the newest revision."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if (b"mcp-protocol-version", LATEST_MODERN_VERSION.encode()) in scope.get("headers", ()):
            await send({"type": "http.response.start", "status": 400, "headers": []})
            await send({"type": "http.response.body", "body": b""})
        else:
            await self._app(scope, receive, send)


def web_app(server: MCPServer, era: str) -> Any:
    """The server over HTTP."""
    app: Any = server.streamable_http_app()
    return HandshakeOnly(app) if era == "handshake" else app


if __name__ == "__main__":
    kind, *rest = sys.argv[1:]
    if kind == "stdio":
        build(Path(rest[0])).run("stdio")
    else:
        import uvicorn

        class ListeningServer(uvicorn.Server):
            async def startup(self, sockets: Any = None) -> None:
                await super().startup(sockets)
                print("listening", flush=True)

        port, folder, era = rest
        app = web_app(build(Path(folder)), era)
        ListeningServer(uvicorn.Config(app, host="127.0.0.1", port=int(port), log_level="critical")).run()
