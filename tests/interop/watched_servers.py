"""Servers in processes of their own, whose metrics are watched, and the load under which they are."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from interop.prometheus_server import until

from dragoman import Client
from dragoman.errors import DragomanError, TaskNotFound

SOURCE = Path(__file__).parents[2] / "src"
AGENTS = Path(__file__).with_name("watched_agents.py")
SECONDS = 30
SECRET = "the-same-on-all-nodes-and-long-enough"


class WatchedServer:
    """`dragoman serve` with metrics."""

    def __init__(self, folder: Path, name: str, store: str, *flags: str) -> None:
        self._log = folder / f"{name}.log"
        words = ("serve", f"{AGENTS}:server", "--port", "0", "--metrics", "0", "--store", store, *flags)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "dragoman.cli.main", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(SOURCE), "DRAGOMAN_SECRET": SECRET},
            )
        self.pid = self._process.pid
        self.url = self._address(r"card\s+(http://\S+?)/(?:agents/\w+/)?\.well-known")
        self.metrics_url = self._address(r"metrics\s+(http://\S+)")

    @property
    def target(self) -> str:
        """Host and port of its metrics."""
        return self.metrics_url.removeprefix("http://").removesuffix("/metrics")

    @property
    def output(self) -> str:
        """What it has printed."""
        return self._log.read_text(encoding="utf-8")

    def agent(self, name: str) -> str:
        """The URL of one of its agents."""
        return f"{self.url}/agents/{name}"

    def kill(self) -> None:
        """End it as a crash would."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(SECONDS)

    def stop(self) -> None:
        """End it, if it still runs."""
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait(SECONDS)

    def _address(self, pattern: str) -> str:
        until(lambda: self._process.poll() is not None or re.search(pattern, self.output), f"the server says {pattern}")
        found = re.search(pattern, self.output)
        assert found is not None, self.output
        return found[1]


@contextmanager
def receiver() -> Iterator[str]:
    """A receiver of webhooks, which takes what is sent to `/good`, is in trouble at `/bad`, and gone at `/gone`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response({"/good": 200, "/gone": 410}.get(self.path, 503))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join(SECONDS)
        server.server_close()


@asynccontextmanager
async def load(server: WatchedServer) -> AsyncIterator[None]:
    """Callers of one server, as long as the block lasts: good ones, of two versions, and some who are mistaken."""
    working = [asyncio.ensure_future(each) for each in (_send(server, "1.0"), _send(server, "0.3"), _stream(server))]
    try:
        yield
        for each in working:
            if each.done():
                each.result()
    finally:
        for each in working:
            each.cancel()
        await asyncio.gather(*working, return_exceptions=True)


async def _send(server: WatchedServer, version: str) -> None:
    async with Client(server.agent("watched"), protocol=version) as client:
        while True:
            # A store without room refuses.
            with suppress(DragomanError):
                task = await client.send("one two")
                await client.get_task(task)
                await client.send(tool="fail")
                if version != "0.3":
                    async with aclosing(client.list_tasks(page_size=10)) as tasks:
                        await anext(tasks)
            with suppress(TaskNotFound):
                await client.get_task("nothing")


async def _stream(server: WatchedServer) -> None:
    async with Client(server.agent("watched")) as client:
        while True:
            with suppress(DragomanError):
                async for _ in client.stream("one two three four five"):
                    pass
