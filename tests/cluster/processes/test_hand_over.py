"""Two nodes on one PostgreSQL, of which one stops: what it had begun elsewhere is left to the node that goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cluster.processes.nodes import Node, effects_of, two_nodes

from dragoman import Agent, Client, State, Task
from dragoman.testing import served

pytestmark = pytest.mark.timeout(60)
FLAGS = ("--lease", "2", "--drain", "0")


class Behind:
    """A foreign agent, and what has become of its work."""

    def __init__(self) -> None:
        self.agent = Agent("behind")
        self.agent.skill(self.work)
        self.go_on = threading.Event()
        self.canceled = threading.Event()
        self.begun: list[str] = []

    async def work(self, text: str) -> Any:
        self.begun.append(text)
        try:
            yield "one "
            await asyncio.to_thread(self.go_on.wait)
            yield "two"
        except asyncio.CancelledError:
            self.canceled.set()
            raise

    @contextmanager
    def served(self) -> Iterator[str]:
        with served(self.agent) as url:
            try:
                yield url
            finally:
                self.go_on.set()


async def begin(client: Client, wanted: str, **message: Any) -> Task:
    """Send a message whose caller does not wait, and follow its task until it has said that."""
    task = await client.send(wait=False, **message)
    assert isinstance(task, Task)
    async for event in client.subscribe(task):
        if event.text == wanted:
            return task
    raise AssertionError(f"it ended before it said {wanted!r}")


async def stop(node: Node) -> None:
    """Tell a node to stop, and wait until it has ended."""
    node.process.stop()
    assert await asyncio.to_thread(node.process.wait) == 0


async def test_a_front_that_stops_leaves_the_foreign_task_to_the_next_node_which_completes_ours(
    tmp_path: Path, postgres_url: str
) -> None:
    behind = Behind()
    with behind.served() as url, two_nodes(tmp_path, postgres_url, *FLAGS, target=("--a2a", url)) as (first, second):
        async with Client(first.url) as client:
            task = await begin(client, "one ", text="go")
        await stop(first)
        async with Client(url) as client:
            [theirs] = [each async for each in client.list_tasks()]
            assert theirs.state is State.WORKING
        behind.go_on.set()
        async with Client(second.url) as client:
            ours = await client.wait(task)
    assert (ours.state, ours.text) == (State.COMPLETED, "one two")
    assert behind.begun == ["go"]
    assert not behind.canceled.is_set()


async def test_a_cancel_that_comes_to_the_other_node_reaches_the_foreign_task(
    tmp_path: Path, postgres_url: str
) -> None:
    behind = Behind()
    with behind.served() as url, two_nodes(tmp_path, postgres_url, *FLAGS, target=("--a2a", url)) as (first, second):
        async with Client(first.url) as client, Client(second.url) as other:
            task = await begin(client, "one ", text="go")
            assert (await other.cancel_task(task)).state is State.CANCELED
            assert await asyncio.to_thread(behind.canceled.wait, 20)


async def test_an_effect_in_a_finally_happens_once_though_the_node_stops_in_the_middle_of_the_run(
    tmp_path: Path, postgres_url: str
) -> None:
    with two_nodes(tmp_path, postgres_url, *FLAGS) as (first, second):
        async with Client(first.url) as client:
            task = await begin(client, f"{first.process.pid} ", tool="leave", arguments={"nonce": "n", "ms": 0})
        await stop(first)
        async with Client(second.url) as client:
            assert (await client.wait(task)).state is State.COMPLETED
        effects = [(each["kind"], each["key"], each["pid"]) for each in effects_of(tmp_path)]
        assert effects == [(kind, "leave", second.process.pid) for kind in ("begin", "end")]
