"""A server in front of another agent is killed, or the agent behind is: the work is done once, and told once."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from support.command import DRAGOMAN, inherited_environment
from support.server_process import ServerProcess

from dragoman import Client, State, Task

pytestmark = pytest.mark.fault

HALVES = [f"{number} " for number in range(28)]


@pytest.fixture
def front(tmp_path: Path) -> Generator[Callable[..., ServerProcess]]:
    """Start servers in front of an agent, all on one file. Those that still run at the end are killed."""
    fronts: list[ServerProcess] = []

    def start(behind: str, *flags: str) -> ServerProcess:
        command = [*DRAGOMAN, "serve", "--a2a", behind, "--port", "0", "--store", f"sqlite:///{tmp_path / 'front.db'}"]
        fronts.append(ServerProcess([*command, *flags], tmp_path, environment=inherited_environment()))
        return fronts[-1].ready()

    yield start
    for each in fronts:
        each.close()


@pytest.fixture
def behind(launch: Any) -> Any:
    """The agent behind; it forgets everything when it ends."""
    return launch("--store", "memory:")


async def read(events: Any, text: str) -> list[Any]:
    """The events of a stream until that text has been said."""
    seen: list[Any] = []
    async for event in events:
        seen.append(event)
        if event.text == text:
            return seen
    raise AssertionError(f"it ended before it said {text!r}")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_a_task_that_runs_when_the_front_ends_is_taken_up_where_it_is(
    front: Any, behind: Any, pipe: Path, how: signal.Signals
) -> None:
    first = front(behind.url, "--drain", "0")
    async with Client(first.url) as client:
        stream = client.stream(tool="halves", arguments={"pipe": pipe.name})
        seen = await read(stream, HALVES[13])
        first.end(how)
        task = stream.task
    second = front(behind.url)
    async with Client(second.url) as client:
        assert (await client.get_task(task)).state is State.WORKING
        await asyncio.to_thread(pipe.write_text, "go on")
        rest = [event async for event in client.subscribe(task, after=seen[-1].id)]
        ended = await client.get_task(task)
    # Numbered without a gap over both processes, and every word once.
    assert [event.id for event in (*seen, *rest)] == list(range(1, len(seen) + len(rest) + 1))
    assert [event.text for event in (*seen, *rest) if event.text][:14] == HALVES[:14]
    assert "".join(event.text for event in (*seen, *rest)) == ended.text == "".join(HALVES)
    assert (ended.state, len(ended.artifacts)) == (State.COMPLETED, 1)


async def test_an_agent_behind_that_dies_fails_its_task_and_serves_again_when_it_is_back(
    front: Any, behind: Any, launch: Any
) -> None:
    first = front(behind.url)
    async with Client(first.url) as client:
        stream = client.stream(tool="hang", arguments={"words": 3})
        events = aiter(stream)
        while (await anext(events)).text != "2 ":
            pass
        behind.kill()
        again = launch("--store", "memory:", "--port", behind.url.rpartition(":")[2])
        async for _ in events:
            pass
        task = stream.task
        assert isinstance(task, Task)
        reason = "the agent behind this one does not know the task any more"
        assert (task.state, task.error) == (State.FAILED, reason)
        assert again.url not in str(task)
        assert (await client.send(tool="echo", arguments={"text": "hello"})).text == "hello"


async def test_a_front_does_not_start_without_the_agent_behind(front: Any, behind: Any) -> None:
    behind.kill()
    with pytest.raises(AssertionError, match=r"cannot be reached|refused"):
        front(behind.url)
