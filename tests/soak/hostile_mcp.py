"""An MCP server that means harm: huge, deep, endless and broken answers, and schemas that want to hang their reader."""

from __future__ import annotations

import json
import sys
from typing import Any

NESTED: dict[str, Any] = {"type": "string"}
for _ in range(3000):
    NESTED = {"type": "object", "properties": {"a": NESTED}}
BACKTRACKS = "^" + "(a|aa)" * 40 + "$"
TOOLS = [
    {"name": "pattern", "inputSchema": {"type": "object", "properties": {"text": {"type": "string", "pattern": p}}}}
    if p
    else {"name": name, "inputSchema": {"type": "object"}}
    for name, p in (("pattern", BACKTRACKS), ("huge", ""), ("deep", ""), ("nan", ""), ("flood", ""), ("silent", ""))
]


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def answer(request: dict[str, Any], result: Any) -> None:
    say(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}))


def call(request: dict[str, Any]) -> None:
    name = request["params"]["name"]
    if name == "huge":
        answer(request, {"content": [{"type": "text", "text": "x" * 5_000_000}]})
    elif name == "deep":
        deep = "[" * 50_000 + "]" * 50_000
        say(f'{{"jsonrpc": "2.0", "id": {json.dumps(request["id"])}, "result": {{"content": [], "x": {deep}}}}}')
    elif name == "nan":
        say(f'{{"jsonrpc": "2.0", "id": {json.dumps(request["id"])}, "result": {{"content": [], "x": NaN}}}}')
    elif name == "flood":
        for number in range(2000):
            note = {"progressToken": request["params"].get("_meta", {}).get("progressToken", 1), "progress": number}
            say(json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": note}))
        answer(request, {"content": [{"type": "text", "text": "flooded"}]})
    elif name != "silent":
        answer(request, {"content": [{"type": "text", "text": name}]})


def main() -> None:
    for line in sys.stdin:
        try:
            request = json.loads(line)
        except ValueError:
            continue
        method = request.get("method")
        if method == "initialize":
            offered = request["params"].get("protocolVersion", "2025-06-18")
            info = {"protocolVersion": offered, "capabilities": {"tools": {}}}
            answer(request, {**info, "serverInfo": {"name": "hostile", "version": "0"}})
        elif method == "tools/list":
            answer(request, {"tools": [*TOOLS, {"name": "nested", "inputSchema": NESTED}]})
        elif method == "tools/call":
            call(request)
        elif "id" in request and method:
            error = {"code": -32601, "message": "no such method"}
            say(json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}))


if __name__ == "__main__":
    sys.setrecursionlimit(100_000)
    main()
