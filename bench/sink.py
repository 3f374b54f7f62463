"""A collector of OpenTelemetry that swallows what it gets: a process of its own, beside the load generator.

It says where it listens by a line on stdout, as servers do, counts requests and bytes, tells them at `/count`, and ends
with its stdin.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from bench import cores
from bench.environments import ROOT


class Sink(BaseHTTPRequestHandler):
    """Answers every POST with nothing."""

    protocol_version = "HTTP/1.1"
    lock = threading.Lock()
    requests = 0
    received = 0

    def do_POST(self) -> None:
        """Read it, and forget it."""
        size = len(self.rfile.read(int(self.headers.get("content-length", 0))))
        with Sink.lock:
            Sink.requests += 1
            Sink.received += size
        self._answer(b"", "application/x-protobuf")

    def do_GET(self) -> None:
        """Tell what has come."""
        self._answer(json.dumps({"requests": Sink.requests, "bytes": Sink.received}).encode(), "application/json")

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Say nothing."""

    def _answer(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def swallowing() -> Generator[int]:
    """Run a sink; gives its port."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.sink"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        yield int(json.loads(process.stdout.readline())["port"])
    finally:
        process.stdin.close()
        process.wait(10)
        process.stdout.close()


def received(port: int) -> int:
    """How many requests a sink has got."""
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/count")
        return int(json.loads(connection.getresponse().read())["requests"])
    finally:
        connection.close()


def main() -> None:
    """Listen until stdin ends."""
    cores.pin(cores.load_core())
    server = ThreadingHTTPServer(("127.0.0.1", 0), Sink)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(json.dumps({"port": server.server_port}), flush=True)
    sys.stdin.read()
    server.shutdown()


if __name__ == "__main__":
    main()
