"""The bare transport: a plain ASGI app that writes the frames of a file, one for every line on its standard input.

Each reader is a coroutine that waits for a future and sends what it gives: less is not possible with ASGI.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from pathlib import Path
from typing import Any

import uvicorn

waiting: list[asyncio.Future[bytes]] = []
frames = [frame.encode() for frame in json.loads(Path(sys.argv[1]).read_text())]


def give(frame: bytes) -> None:
    due = waiting[:]
    waiting.clear()
    for future in due:
        future.set_result(frame)


def steer(loop: asyncio.AbstractEventLoop) -> None:
    for frame, _ in zip(frames[1:], sys.stdin, strict=False):
        loop.call_soon_threadsafe(give, frame)


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    loop = asyncio.get_running_loop()
    if scope["type"] == "lifespan":
        await receive()
        threading.Thread(target=steer, args=(loop,), daemon=True).start()
        await send({"type": "lifespan.startup.complete"})
        return
    headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": frames[0], "more_body": True})
    for _ in frames[1:]:
        future: asyncio.Future[bytes] = loop.create_future()
        waiting.append(future)
        await send({"type": "http.response.body", "body": await future, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


class Server(uvicorn.Server):
    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        port = self.servers[0].sockets[0].getsockname()[1]
        print(f"  card    http://127.0.0.1:{port}/.well-known/agent-card.json", file=sys.stderr, flush=True)


Server(uvicorn.Config(app, port=0, http="httptools", ws="none", log_config=None, access_log=False)).run()
