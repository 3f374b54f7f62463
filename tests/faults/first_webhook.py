"""A server process that has a webhook called and prints which modules that took which were not there before."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from dragoman import Agent

agent = Agent("first", description="Is asked once")


@agent.skill
async def echo(text: str) -> str:
    """Say it again."""
    return text


async def main(port: str, folder: str) -> None:
    """Serve on a file, wait until the server has warmed up, and send a message with a webhook at that port."""
    app: Any = agent.app(push_allow=["127.0.0.1"], store=f"sqlite:///{Path(folder, 'tasks.db')}")
    await app.start()
    delivery = app._delivery
    await delivery._warming
    before = set(sys.modules)
    over = asyncio.Event()
    body = {
        "message": {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "go"}]},
        "configuration": {"taskPushNotificationConfig": {"url": f"http://127.0.0.1:{port}/hook"}},
    }
    sent = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]

    async def receive() -> Any:
        if sent:
            return sent.pop()
        await over.wait()
        return {"type": "http.disconnect"}

    async def send(_: Any) -> None: ...

    headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json"), (b"a2a-version", b"1.0")]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/message:send",
        "raw_path": b"/message:send",
        "query_string": b"",
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    await app(scope, receive, send)
    over.set()
    while delivery.open_count:  # noqa: ASYNC110 - until all of it has arrived: nobody tells a process about itself
        await asyncio.sleep(0)
    print(json.dumps(sorted(set(sys.modules) - before)))
    await app.stop()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
