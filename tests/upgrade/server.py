"""The server of a user of an earlier version, and a receiver for its webhooks."""

from __future__ import annotations

import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"
SECONDS = 60


class UserServer:
    """`dragoman serve` in the user's folder, with the user's settings file."""

    def __init__(self, folder: Path, *flags: str, **environment: str) -> None:
        self.folder = folder
        self.port = _free_port()
        self.output: list[str] = []
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "dragoman.cli.main", "serve", "--port", str(self.port), *flags],
            cwd=folder,
            env={**user_environment(), **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_ready(self) -> None:
        """Wait until it listens. Raises AssertionError when it ends instead."""
        while (line := self._lines.get(timeout=SECONDS)) is not None:
            if line.startswith("serving "):
                return
        raise AssertionError("the server did not start:\n" + "".join(self.output))

    def kill(self) -> None:
        """End it as a crash does."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it in order."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        self._process.send_signal(number)
        self._process.wait(SECONDS)
        self._reader.join(SECONDS)

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr:
            for line in self._process.stderr:
                self.output.append(line)
                self._lines.put(line)
        self._lines.put(None)


@contextmanager
def serving(folder: Path, *flags: str, **environment: str) -> Generator[UserServer]:
    """Serve as long as the context lasts."""
    server = UserServer(folder, *flags, **environment)
    try:
        server.wait_ready()
        yield server
    finally:
        server.kill()


def user_environment() -> dict[str, str]:
    """The environment of a user's commands: a Python with the package, and no settings of this machine."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("DRAGOMAN_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return {**own, "PYTHONPATH": str(SOURCE), "PATH": path}


def run_command(folder: Path, *words: str, text: str = "", **environment: str) -> str:
    """What a command of the user prints. Raises CalledProcessError."""
    command = [sys.executable, "-m", "dragoman.cli.main", *words]
    return subprocess.run(
        command,
        cwd=folder,
        env={**user_environment(), **environment},
        input=text,
        capture_output=True,
        text=True,
        check=True,
        timeout=SECONDS,
    ).stdout


def copy_program(folder: Path) -> None:
    """Put the user's programs and settings into a folder."""
    for path in (HERE / "program").iterdir():
        if path.is_file():
            shutil.copy(path, folder / path.name)


class Receiver:
    """Receives webhooks at one port; refuses those to `/owed` until it is opened."""

    def __init__(self, port: int = 0) -> None:
        self.received: queue.SimpleQueue[tuple[str, dict[str, str], str]] = queue.SimpleQueue()
        self.is_open = False
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                is_taken = receiver.is_open or not self.path.startswith("/owed")
                # Before the answer: whoever waits for the webhook finds it here.
                receiver.received.put((self.path if is_taken else "refused", dict(self.headers), body))
                self.send_response(200 if is_taken else 503)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def next(self, path: str) -> tuple[dict[str, str], str]:
        """The next webhook to a path. Raises queue.Empty when none comes."""
        while True:
            received, headers, body = self.received.get(timeout=SECONDS)
            if received == path:
                return headers, body

    def paths(self) -> list[str]:
        """Where the webhooks went that nobody has asked for."""
        return [self.received.get()[0] for _ in range(self.received.qsize())]

    def close(self) -> None:
        """Stop."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
