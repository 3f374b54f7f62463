"""A receiver of webhooks on a real port of this machine."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SECONDS = 20


class Receiver:
    """Keeps what comes, and answers what `answer` says for it: a status, by default 200. Used with `with`."""

    def __init__(self, answer: Callable[[Any], int] = lambda body: 200, port: int = 0) -> None:
        self.came: list[Any] = []
        self.tries: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self._news = threading.Condition()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status = answer(body)
                with receiver._news:
                    receiver.tries.append(body)
                    receiver.headers.append({name.lower(): value for name, value in self.headers.items()})
                    if 200 <= status < 300:
                        receiver.came.append(body)
                        receiver.paths.append(self.path)
                    receiver._news.notify_all()
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}/hooks/?secret=in-the-query"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    def __enter__(self) -> Receiver:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until it is so."""

        def wait() -> bool:
            with self._news:
                return self._news.wait_for(condition, SECONDS)

        assert await asyncio.to_thread(wait), self.tries

    def events(self) -> list[str]:
        """What came, each event with its state or its text."""
        return [
            each["status"]["state"]
            if each["event"] == "status_update"
            else "".join(part["text"] for part in each["artifact"]["parts"])
            for each in self.came
        ]

    def states(self) -> list[str]:
        """The states that came, whoever posted them, in whatever version."""
        found = [(each.get("statusUpdate") or each.get("task") or each).get("status") for each in self.came]
        return [each["state"] for each in found if each]
