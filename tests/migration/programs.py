"""What runs beside a test: a receiver of webhooks, and commands."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

SRC = Path(__file__).resolve().parents[2] / "src"
SECRET = "dk1_" + "s" * 43  # as if it were generated: no slow derivation


class Receiver:
    """Receives webhooks, and refuses them while it is not open."""

    def __init__(self) -> None:
        self._is_open = False
        self.received: SimpleQueue[tuple[str, dict[str, str]]] = SimpleQueue()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                if receiver._is_open:
                    receiver.received.put((self.path, dict(self.headers)))
                self.send_response(200 if receiver._is_open else 503)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Accept what comes for a while."""
        self._is_open = True
        try:
            yield
        finally:
            self._is_open = False

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Command(NamedTuple):
    """How a command has ended."""

    code: int
    out: str
    err: str


class Dragoman:
    """Runs commands in a folder, with a secret."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.environment = {**os.environ, "PYTHONPATH": str(SRC), "DRAGOMAN_SECRET": SECRET}

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command."""
        return subprocess.Popen(
            [sys.executable, "-m", "dragoman.cli.main", *words],
            cwd=self._folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *words: str) -> Command:
        process = self.start(*words)
        out, err = process.communicate(timeout=60)
        return Command(process.returncode, out, err)
