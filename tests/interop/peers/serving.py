"""How a peer's server starts: it takes a port (0: any that is free), and prints one JSON line when it listens."""

import argparse
import json
import socket
from collections.abc import Callable
from typing import Any

import uvicorn


class Announcing(uvicorn.Server):
    """Says where it listens as soon as it does."""

    url = ""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            print(json.dumps({"url": self.url}), flush=True)


def serve(app_at: Callable[[str], Any], path: str = "", *, in_loop: bool = False) -> None:
    """Serve the app that `app_at` makes for a base URL, which its card has to name, until the process is ended.

    The agent is at `path` of it. `in_loop`: the app is made in the loop that it runs in, as a gRPC server needs it.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int, nargs="?", default=0)
    listening = socket.create_server(("127.0.0.1", parser.parse_args().port))
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    # A stream that still goes on must not hold up the end.
    config = uvicorn.Config(
        (lambda: app_at(url)) if in_loop else app_at(url),
        factory=in_loop,
        lifespan="on",
        ws="none",
        log_level="warning",
        timeout_graceful_shutdown=1,
    )
    server = Announcing(config)
    server.url = url + path
    server.run(sockets=[listening])
