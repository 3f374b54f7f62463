"""Real servers in processes of their own, on one file, and a caller for them."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest

ROOT = Path(__file__).resolve().parents[2]
AGENT = Path(__file__).with_name("fault_agent.py")
SECONDS = 30  # healthy waits take milliseconds, a start half a second


class Event(NamedTuple):
    """One event of a stream: its number, its bytes, and what they say."""

    id: int
    data: str

    @property
    def result(self) -> dict[str, Any]:
        return json.loads(self.data)["result"]

    @property
    def state(self) -> str | None:
        update = self.result.get("statusUpdate") or self.result.get("task")
        return update["status"]["state"] if update else None

    @property
    def text(self) -> str:
        update = self.result.get("artifactUpdate")
        return "".join(part.get("text", "") for part in update["artifact"]["parts"]) if update else ""


class Server:
    """`dragoman serve` in a process of its own."""

    def __init__(self, folder: Path, *flags: str, memory: int | None = None, agent: Path = AGENT) -> None:
        self.folder = folder
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "FAULT_FOLDER": str(folder)}
        command = [sys.executable, "-m", "dragoman.cli.main", "serve", str(agent), "--port", "0"]
        if memory is not None:
            limited = f"import os, resource, sys; resource.setrlimit(resource.RLIMIT_AS, ({memory}, {memory}))"
            command = [sys.executable, "-c", f"{limited}; os.execv(sys.argv[1], sys.argv[1:])", *command]
        self.process = subprocess.Popen(
            [*command, "--store", f"sqlite:///{folder / 'tasks.db'}", *flags],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            env=environment,
        )
        self.pid = self.process.pid
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.output: list[str] = []
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self.url = ""

    def _listen(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr:
            for line in self.process.stderr:
                self.output.append(line)
                self._lines.put(line)
        self._lines.put(None)

    def ready(self) -> Server:
        """Wait until it announces its address."""
        while (line := self._lines.get(timeout=SECONDS)) is not None:
            if found := re.match(r"\s+card\s+(http://\S+?)/\.well-known", line):
                self.url = found[1]
                return self
        raise AssertionError("the server did not start:\n" + "".join(self.output))

    def until(self, text: str) -> str:
        """Wait until it says that on stderr, and give the line."""
        while (line := self._lines.get(timeout=SECONDS)) is not None:
            if text in line:
                return line
        raise AssertionError(f"the server did not say {text!r}:\n" + "".join(self.output))

    def kill(self) -> None:
        """End it as a crash would."""
        self.process.send_signal(signal.SIGKILL)
        self.wait()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Ask it to end."""
        self.process.send_signal(number)

    def wait(self) -> int:
        """Its exit code, once it has ended."""
        code = self.process.wait(timeout=SECONDS)
        self._listener.join(SECONDS)
        return code

    # Calling it

    def post(self, method: str, params: dict[str, Any], path: str = "/", **headers: str) -> httpx2.Response:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return httpx2.post(f"{self.url}{path}", json=body, headers=headers, timeout=SECONDS)

    def rpc(self, method: str, params: dict[str, Any], path: str = "/", version: str = "1.0") -> Any:
        headers = {"A2A-Version": version} if version else {}
        return self.post(method, params, path, **headers).json()

    def send(self, skill: str, text: str = "", **message: Any) -> dict[str, Any]:
        return self.rpc("SendMessage", self.params(skill, text, **message))["result"]["task"]

    def begin(self, skill: str, **message: Any) -> dict[str, Any]:
        """Send a message without waiting for its end."""
        params = {**self.params(skill, "", **message), "configuration": {"returnImmediately": True}}
        return self.rpc("SendMessage", params)["result"]["task"]

    def get(self, task_id: str) -> dict[str, Any]:
        return self.rpc("GetTask", {"id": task_id})["result"]

    def follow(self, task_id: str, after: int | None = None) -> list[Event]:
        """Everything SubscribeToTask gives, up to the end."""
        with self.stream("SubscribeToTask", {"id": task_id}, after) as events:
            return list(events)

    @staticmethod
    def params(skill: str, text: str = "", *, message_id: str = "m", **message: Any) -> dict[str, Any]:
        parts = [{"text": text}] if text else []
        metadata = {"skillId": skill} if skill else {}
        said = {"messageId": message_id, "role": "ROLE_USER", "parts": parts or [{"text": "go"}], **message}
        return {"message": {**said, "metadata": metadata}}

    @contextmanager
    def stream(self, method: str, params: dict[str, Any], after: int | None = None) -> Iterator[Iterator[Event]]:
        headers = {"A2A-Version": "1.0"} | ({} if after is None else {"Last-Event-ID": str(after)})
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        with (
            httpx2.Client(timeout=SECONDS) as client,
            client.stream("POST", self.url + "/", json=body, headers=headers) as response,
        ):
            yield _events(response)


def _events(response: httpx2.Response) -> Iterator[Event]:
    if not response.headers["content-type"].startswith("text/event-stream"):
        raise AssertionError(f"this is no stream: {response.read()!r}")
    number = 0
    for line in response.iter_lines():
        name, _, value = line.partition(": ")
        if name == "id":
            number = int(value)
        elif name == "data":
            yield Event(number, value)


@pytest.fixture
def launch(tmp_path: Path) -> Generator[Callable[..., Server]]:
    """Start servers, all on one file. Those that still run at the end are killed."""
    servers: list[Server] = []

    def launch(*flags: str, ready: bool = True, memory: int | None = None, agent: Path = AGENT) -> Server:
        server = Server(tmp_path, *flags, memory=memory, agent=agent)
        servers.append(server)
        return server.ready() if ready else server

    yield launch
    for server in servers:
        if server.process.poll() is None:
            server.kill()
        else:
            server.wait()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    """One server for all tests of a module, none of which may end it."""
    server = Server(tmp_path_factory.mktemp("shared")).ready()
    yield server
    server.kill()
