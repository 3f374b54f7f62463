"""The disk of PostgreSQL is full, or can only be read: callers are told, nothing is lost, and nodes go on alone."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import httpx2
import pytest
from cluster.processes.nodes import Node
from faults.read_only_disk import ReadOnlyDisk
from postgres_server import NoPostgres, PostgresServer, with_database
from support.polling import until
from support.small_disk import small_disk

pytestmark = [
    pytest.mark.fault,
    pytest.mark.timeout(120),
    pytest.mark.skipif(sys.platform != "linux", reason="needs tmpfs mounts, which Linux has"),
]

COMPLETED, WAITING, WORKING = "TASK_STATE_COMPLETED", "TASK_STATE_INPUT_REQUIRED", "TASK_STATE_WORKING"
SERVER_ERROR = -32000
NO_WRITES = "the database cannot take writes now: try again with the same messageId"
# No answer takes so long, whatever the disk does.
SECONDS = 15


class Caller:
    """Calls one node."""

    def __init__(self, node: Node) -> None:
        self.node = node

    def rpc(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return httpx2.post(self.node.url, json=body, headers={"A2A-Version": "1.0"}, timeout=SECONDS).json()

    @staticmethod
    def message(skill: str, nonce: str = "n", ms: int = 0) -> dict[str, Any]:
        parts = [{"data": {"nonce": nonce, "ms": ms}}]
        return {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": parts, "metadata": {"skillId": skill}}

    def send(self, message: dict[str, Any], *, wait: bool = True) -> dict[str, Any]:
        return self.rpc("SendMessage", {"message": message, "configuration": {"returnImmediately": not wait}})

    def task(self, message: dict[str, Any], *, wait: bool = True) -> dict[str, Any]:
        return self.send(message, wait=wait)["result"]["task"]

    def get(self, task_id: str) -> dict[str, Any]:
        return self.rpc("GetTask", {"id": task_id})["result"]

    def readiness(self) -> tuple[int, str]:
        answer = httpx2.get(f"{self.node.url}/readyz", timeout=SECONDS)
        return answer.status_code, answer.json().get("reason", "")

    def is_completed(self, task: dict[str, Any]) -> bool:
        return self.get(task["id"])["status"]["state"] == COMPLETED

    def until_refused(self) -> tuple[list[dict[str, Any]], dict[str, Any], dict[str, Any]]:
        """Send until a message is refused. Gives the tasks so far, the message and its answer."""
        kept: list[dict[str, Any]] = []
        for _ in range(500):
            message = self.message("quick", "n" * 20_000)
            answer = self.send(message, wait=False)
            if "error" in answer:
                return kept, message, answer["error"]
            kept.append(answer["result"]["task"])
        raise AssertionError("nothing is refused")


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that everybody may enter: PostgreSQL runs as another user."""
    folder = Path(tempfile.mkdtemp(prefix="dragoman-disk-", dir="/var/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def store_on(disk: Path, place: Path) -> Iterator[str]:
    """The URL of a database whose tables are in a folder. The log of the server is elsewhere."""
    server = PostgresServer(place / "postgres")
    try:
        server.start()
    except NoPostgres as error:
        pytest.skip(f"no PostgreSQL: {error}")
    try:
        tables = disk / "tables"
        tables.mkdir()
        shutil.chown(tables, (server.data).owner())

        async def create() -> None:
            connection = await asyncpg.connect(server.url())
            await connection.execute(f"CREATE TABLESPACE small LOCATION '{tables}'")
            await connection.execute("CREATE DATABASE small TEMPLATE template0 TABLESPACE small")
            await connection.close()

        asyncio.run(create())
        yield with_database(server.url(), "small")
    finally:
        server.stop()


@contextmanager
def serving(place: Path, url: str) -> Iterator[Caller]:
    node = Node(1, place, url)
    try:
        node.launch()
        yield Caller(node)
    finally:
        node.close()
        print(*node.process.output)


def check_refusals(
    caller: Caller, trouble: Callable[[], None], ends: Callable[[], None], *, can_read: bool = True
) -> None:
    """A database that cannot write for some time. Without `can_read`, it may not open the files of tables either."""
    kept = [caller.task(caller.message("quick")) for _ in range(3)]
    question = caller.task(caller.message("plan"))
    assert question["status"]["state"] == WAITING
    running = caller.task(caller.message("talk", ms=6000), wait=False)
    trouble()
    accepted, refused, error = caller.until_refused()
    assert (error["code"], error["message"]) == (SERVER_ERROR, NO_WRITES)
    until(lambda: caller.readiness() == (503, NO_WRITES))
    assert httpx2.get(f"{caller.node.url}/healthz", timeout=SECONDS).status_code == 200

    # All are told the same, at once; over REST with the header, and the log says it once.
    for _ in range(20):
        assert caller.send(caller.message("quick", "n" * 20_000), wait=False)["error"]["message"] == NO_WRITES
    answer = httpx2.post(
        f"{caller.node.url}/message:send",
        json={"message": refused},
        headers={"A2A-Version": "1.0"},
        timeout=SECONDS,
    )
    assert (answer.status_code, answer.headers.get("retry-after")) == (503, "1")
    output = caller.node.process.output
    assert len([line for line in output if "the database cannot take writes (" in line]) == 1
    # What was acknowledged is there. Who answers a question is told too, unless there is room for a few words.
    for task in kept if can_read else ():
        assert caller.get(task["id"]) == task
    reply = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [{"text": "yes"}], "taskId": question["id"]}
    refusal = caller.send(reply, wait=False).get("error")
    assert refusal is None or refusal["message"] == NO_WRITES

    ends()
    until(lambda: caller.readiness()[0] == 200)
    # A refused message is accepted when it is sent again; what ran has waited and goes on.
    again = until(lambda: caller.send(refused).get("result"))
    assert again["task"]["status"]["state"] == COMPLETED
    assert caller.task(reply)["status"]["state"] == COMPLETED
    for task in (running, *accepted):
        until(lambda task=task: caller.get(task["id"])["status"]["state"] != WORKING)
        assert caller.is_completed(task)
    for task in kept:
        assert caller.get(task["id"]) == task
    assert not caller.node.process.tracebacks
    assert len(output) < 60


def test_a_full_disk_of_the_database_is_reported_and_loses_nothing(place: Path) -> None:
    with (
        small_disk(place / "disk", "40m") as disk,
        store_on(disk.folder, place) as url,
        serving(place, url) as caller,
    ):
        check_refusals(caller, disk.fill, disk.free)


def test_a_read_only_disk_of_the_database_is_reported_and_loses_nothing(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = place / "disk"
    folder.mkdir()
    disk = ReadOnlyDisk(folder, place)
    with monkeypatch.context() as patch:
        for name, value in disk.environment.items():
            patch.setenv(name, value)
        opened = store_on(folder, place)
        url = opened.__enter__()
    try:
        with serving(place, url) as caller:
            check_refusals(caller, disk.refuse, disk.allow, can_read=False)
    finally:
        opened.__exit__(None, None, None)
