"""Skills that block: one caller's calls never keep another waiting."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from dragoman import Agent, Client, Context, User
from dragoman.model.state import State
from dragoman.testing import served

SECONDS = 20
CALLS = 200


async def by_name(request: Any) -> User:
    return User(request.headers["x-name"])


class Blocking:
    """An agent whose calls of `wait` and `wait_once` block until they are released."""

    def __init__(self, name: str = "blocking") -> None:
        self.agent = Agent(name)
        self.release = threading.Event()

        @self.agent.skill
        def wait() -> str:
            self.release.wait(SECONDS)
            return "waited"

        @self.agent.skill
        async def wait_once(ctx: Context) -> str:
            await ctx.once("wait", self.release.wait, SECONDS)
            return "waited"

        @self.agent.skill
        def quick() -> str:
            return "done"

        @self.agent.skill
        async def quick_once(ctx: Context) -> str:
            return await ctx.once("quick", lambda: "done")


@pytest.fixture
def blocking() -> Iterator[Blocking]:
    made = Blocking()
    yield made
    made.release.set()


def _as(name: str, url: str) -> Client:
    return Client(url, headers={"X-Name": name})


@pytest.mark.parametrize(("skill", "quick"), [("wait", "quick"), ("wait_once", "quick_once")])
async def test_a_caller_with_many_blocking_calls_keeps_nobody_else_waiting(
    blocking: Blocking, skill: str, quick: str
) -> None:
    with served(blocking.agent, auth=by_name, drain=0) as url:
        async with _as("alice", url) as alice, _as("bob", url) as bob:
            tasks = [await alice.send("go", metadata={"skillId": skill}, wait=False) for _ in range(CALLS)]
            async with asyncio.timeout(SECONDS / 2):
                assert (await bob.send("go", metadata={"skillId": quick})).text == "done"
            blocking.release.set()
            async with asyncio.timeout(SECONDS / 2):
                ended = [await alice.wait(task) for task in tasks]
            assert {task.state for task in ended} == {State.COMPLETED}
