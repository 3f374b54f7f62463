"""Real servers in processes of their own, on one file, and a caller for them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
from faults.program_server import Leash
from support.command import DRAGOMAN, inherited_environment
from support.server_process import ServerProcess

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


class Server(ServerProcess):
    """`dragoman serve` in a process of its own, and a caller for it."""

    def __init__(self, folder: Path, *flags: str, memory: int | None = None, agent: Path = AGENT) -> None:
        command = [*DRAGOMAN, "serve", str(agent), "--port", "0", "--store", f"sqlite:///{folder / 'tasks.db'}", *flags]
        if memory is not None:
            limited = f"import os, resource, sys; resource.setrlimit(resource.RLIMIT_AS, ({memory}, {memory}))"
            command = [sys.executable, "-c", f"{limited}; os.execv(sys.argv[1], sys.argv[1:])", *command]
        super().__init__(command, folder, environment=inherited_environment(FAULT_FOLDER=str(folder)))

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
        fields = {"messageId": message_id, "role": "ROLE_USER", "parts": parts or [{"text": "go"}], **message}
        return {"message": {**fields, "metadata": metadata}}

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


def text_of(task: dict[str, Any]) -> str:
    """The text of a task's artifacts."""
    return "".join(part.get("text", "") for artifact in task["artifacts"] for part in artifact["parts"])


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
        server.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    """One server for all tests of a module, none of which may end it."""
    with Server(tmp_path_factory.mktemp("shared")) as server:
        yield server


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """A pipe with a name in the folder of the servers, for which the runs of some skills wait."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


@pytest.fixture
def leash(tmp_path: Path) -> Iterator[Leash]:
    """A pipe that programs hold."""
    leash = Leash(tmp_path)
    yield leash
    leash.close()
