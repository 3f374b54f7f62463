"""PostgreSQL has no connection left, or ends those of a node in the middle of its work."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import httpx2
import pytest
from cluster.processes.nodes import Node
from postgres_server import NoPostgres, PostgresServer

pytestmark = [pytest.mark.fault, pytest.mark.timeout(120)]

COMPLETED = "TASK_STATE_COMPLETED"
# Some are PostgreSQL's own, and the node has up to eight.
MOST = 20
OURS = "FROM pg_stat_activity WHERE usename = 'app' AND application_name = 'dragoman'"


class Setup:
    """A node whose role is no superuser, and a connection that is."""

    def __init__(self, node: Node, url: str, admin: Any, http: httpx2.AsyncClient) -> None:
        self.node = node
        self._url = url
        self.admin = admin
        self._http = http
        self._occupied: list[Any] = []

    async def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return (await self._http.post(self.node.url, json=body, headers={"A2A-Version": "1.0"})).json()

    async def send(self, skill: str = "quick", ms: int = 0) -> dict[str, Any]:
        parts = [{"data": {"nonce": "n", "ms": ms}}]
        message = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": parts, "metadata": {"skillId": skill}}
        return (await self.call("SendMessage", {"message": message}))["result"]["task"]

    async def occupy(self) -> int:
        """Take all connections that are left."""
        while True:
            try:
                self._occupied.append(await asyncpg.connect(self._url))
            except asyncpg.TooManyConnectionsError:
                return len(self._occupied)

    async def give_back(self) -> None:
        for connection in self._occupied:
            await connection.close()
        self._occupied.clear()

    async def terminate(self) -> int:
        """End the connections of the node. Returns how many there were."""
        return len(await self.admin.fetch(f"SELECT pg_terminate_backend(pid) {OURS}"))


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that everybody may enter: PostgreSQL runs as another user."""
    with tempfile.TemporaryDirectory(prefix="dragoman-pool-", dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
async def setup(tmp_path: Path, folder: Path) -> AsyncIterator[Setup]:
    async with AsyncExitStack() as stack:
        server = PostgresServer(folder / "postgres", max_connections=str(MOST), superuser_reserved_connections="2")
        try:
            await asyncio.to_thread(server.start)
        except NoPostgres as error:
            pytest.skip(f"no PostgreSQL: {error}")
        stack.callback(server.stop)
        admin = await asyncpg.connect(server.url())
        stack.push_async_callback(admin.close)
        await admin.execute("CREATE ROLE app LOGIN")
        await admin.execute("CREATE DATABASE app OWNER app")
        url = server.url("app").replace("postgres@", "app@")
        node = Node(1, tmp_path, url)
        stack.callback(node.close)
        await asyncio.to_thread(node.launch)
        http = await stack.enter_async_context(httpx2.AsyncClient(timeout=60))
        setup = Setup(node, url, admin, http)
        yield setup
        await setup.give_back()
        print(*node.process.output)
        assert not node.process.tracebacks


async def test_a_node_works_with_the_connections_it_has_when_there_are_no_more(setup: Setup) -> None:
    first = await setup.send()
    assert await setup.occupy()
    tasks = await asyncio.gather(*(setup.send() for _ in range(50)))
    assert {task["status"]["state"] for task in tasks} == {COMPLETED}
    # More readers than our pool has connections wait for each other.
    found = await asyncio.gather(*(setup.call("GetTask", {"id": first["id"]}) for _ in range(50)))
    assert [each["result"] for each in found] == [first] * 50


async def test_connections_that_are_ended_in_the_middle_cost_nothing(setup: Setup) -> None:
    running = [asyncio.ensure_future(setup.send("talk", ms=2000)) for _ in range(10)]
    ended = 0
    while not all(task.done() for task in running):
        ended += await setup.terminate()
        await asyncio.wait(running, timeout=0.3)
    assert ended > 5
    tasks = await asyncio.gather(*running)
    assert {task["status"]["state"] for task in tasks} == {COMPLETED}
    for task in tasks:
        assert (await setup.call("GetTask", {"id": task["id"]}))["result"] == task
    # Nor when others take the places of those that were ended: as soon as there are some again, it goes on.
    await setup.occupy()
    await setup.terminate()
    await setup.occupy()
    waiting = asyncio.ensure_future(setup.send())
    await setup.give_back()
    assert (await waiting)["status"]["state"] == COMPLETED
