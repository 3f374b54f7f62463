"""A receiver of webhooks on this machine, for tests of their deliveries."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

SECONDS = 15.0


class Delivery(NamedTuple):
    """A request to the receiver."""

    headers: dict[str, str]
    body: dict[str, Any]


class Receiver:
    """Answers each delivery with `status`. What it refuses is not sent again for an hour, unless somebody asks."""

    def __init__(self) -> None:
        self.status = 200
        self.deliveries: list[Delivery] = []
        self._changed = threading.Condition()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                headers = {name.lower(): value for name, value in self.headers.items()}
                self.send_response(receiver.status)
                self.send_header("Content-Length", "0")
                if receiver.status != 200:
                    self.send_header("Retry-After", "3600")
                self.end_headers()
                with receiver._changed:
                    receiver.deliveries.append(Delivery(headers, body))
                    receiver._changed.notify_all()

            def log_message(self, format: str, *args: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        """Where webhooks are to be sent."""
        return f"http://127.0.0.1:{self._server.server_port}/hook"

    def wait(self, deliveries: int) -> list[Delivery]:
        """Wait until so many have come, and return them.

        Raises:
            AssertionError: they did not.
        """
        with self._changed:
            came = self._changed.wait_for(lambda: len(self.deliveries) >= deliveries, SECONDS)
        assert came, f"{len(self.deliveries)} of {deliveries} came"
        return self.deliveries

    def close(self) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()
