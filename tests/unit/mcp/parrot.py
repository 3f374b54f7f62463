"""An agent that answers with a mere message, and makes no task."""

from __future__ import annotations

import json
from typing import Any


def replying(*parts: dict[str, Any]) -> Any:
    """An agent that answers with a mere message."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body = b""
        while (message := await receive()).get("more_body"):
            body += message["body"]
        body += message.get("body", b"")
        if scope["method"] == "GET":
            host = dict(scope["headers"])[b"host"].decode()
            answer: dict[str, Any] = {
                "name": "parrot",
                "description": "",
                "url": f"http://{host}/",
                "version": "1",
                "protocolVersion": "0.3.0",
                "capabilities": {},
                "defaultInputModes": ["text/plain"],
                "defaultOutputModes": ["text/plain"],
                "skills": [],
            }
        else:
            reply = {"kind": "message", "messageId": "said/1", "role": "agent", "parts": parts}
            answer = {"jsonrpc": "2.0", "id": json.loads(body)["id"], "result": reply}
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(answer).encode()})

    return app
