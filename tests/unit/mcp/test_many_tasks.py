"""Many tasks through one server: none is lost, mixed up or left behind."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from typing import Any

import pytest
from mcp import Client

from dragoman import Agent, Context, Failed
from dragoman.mcp.serve import McpOptions
from dragoman.mcp.server import McpServer
from dragoman.model.state import State
from dragoman.testing import served

AT_ONCE = 20
agent = Agent("Busy", description="Does much")


@agent.skill
async def work(ctx: Context) -> str:
    """End in the way that the number says."""
    number = int(ctx.text.removeprefix("task "))
    await ctx.progress("at it")
    if number % 10 == 3:
        raise Failed(f"no {number}")
    if number % 10 == 7:
        await ctx.ask(f"More for {number}?")
    return f"done {number}"


def expected(number: int) -> tuple[State, str]:
    if number % 10 == 3:
        return State.FAILED, f"no {number}"
    return (State.INPUT_REQUIRED, f"More for {number}?") if number % 10 == 7 else (State.COMPLETED, f"done {number}")


async def send(client: Client, url: str, numbers: range) -> dict[str, int]:
    """Send all of them, twenty at once, every fifth as a stream; gives the number of each task."""
    room = asyncio.Semaphore(AT_ONCE)
    sent: dict[str, int] = {}

    async def one(number: int) -> None:
        arguments: dict[str, Any] = {"agent_id": url, "text": f"task {number}"}
        async with room:
            if number % 5 == 0:
                begun = await client.call_tool("send_streaming_message", arguments)
                task_id = begun.structured_content["task_id"]
                shown = (await client.call_tool("subscribe_to_task", {"task_id": task_id})).structured_content
                sent[shown["task_id"]] = number
            else:
                sent[(await client.call_tool("send_message", arguments)).structured_content["id"]] = number

    await asyncio.gather(*(one(number) for number in numbers))
    return sent


async def is_right(server: McpServer, sent: dict[str, int]) -> None:
    records = {record.remote_id: record for record in server.context.registry.tasks()}
    for task_id, number in sent.items():
        task = records[task_id].task
        assert task is not None
        state, text = expected(number)
        assert task.state is state
        assert text in (task.text, task.question, task.error)
        assert records[task_id].problem == ""


async def through(count: int) -> float:
    """Send so many, look whether all is right, and give how many bytes each left behind, once it runs warm."""
    with served(agent) as url:
        async with McpServer(McpOptions()) as server, Client(server.server) as client:
            await client.call_tool("resolve_agent_card", {"base_url": url})
            half = count // 2
            sent = await send(client, url, range(half))
            gc.collect()
            tracemalloc.start()
            try:
                sent |= await send(client, url, range(half, count))
                gc.collect()
                grown, _ = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert sorted(sent.values()) == list(range(count))
            assert len(server.context.registry.tasks()) == count
            await is_right(server, sent)
            listed = (await client.call_tool("list_tasks", {"limit": count})).structured_content["tasks"]
            assert {each["id"] for each in listed} == set(sent)
            # Nothing is followed any more.
            assert server.context.followers.active_count == 0
            names = [task.get_coro().__qualname__ for task in asyncio.all_tasks()]
            assert not any(name.startswith(("TaskFollower", "Following", "CancelSafeEvents")) for name in names)
        return grown / (count - half)


async def test_two_hundred_tasks_leave_two_hundred_tasks_and_nothing_else() -> None:
    assert await through(200) < 60_000


@pytest.mark.soak
@pytest.mark.timeout(300)
async def test_a_thousand_tasks_leave_a_thousand_tasks_and_nothing_else() -> None:
    assert await through(1000) < 60_000
