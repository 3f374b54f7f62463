"""The metrics of runs: how long tasks take, and how long their callers wait for the first output."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dragoman import Agent, Client, Context, Event
from dragoman.client.streams.stream import EventStream
from dragoman.outputs import Reply

from .conftest import Recorded

NAME = "ends"


def agent_of_all_ends() -> Agent:
    agent = Agent(NAME)

    @agent.skill(default=True)
    async def act(ctx: Context, text: str) -> Any:
        if text == "ask":
            return await ctx.ask("What?")
        if text == "fail":
            raise RuntimeError
        return text

    @agent.skill(replies=True)
    async def answer() -> Reply:
        return Reply("hello")

    @agent.skill
    async def draw(ctx: Context) -> None:
        await ctx.artifact("a picture")

    @agent.skill
    async def nothing() -> None:
        return None

    return agent


@pytest.mark.parametrize(
    ("text", "state"),
    [("hello", "COMPLETED"), ("ask", "INPUT_REQUIRED"), ("fail", "FAILED")],
)
async def test_a_run_is_recorded_by_agent_skill_and_state(recorded: Recorded, text: str, state: str) -> None:
    async with Client(agent_of_all_ends()) as client:
        await client.send(text)
        await recorded.until(lambda: recorded.counts(recorded.metrics.tasks))
    assert recorded.counts(recorded.metrics.tasks) == {(NAME, "act", f"TASK_STATE_{state}"): 1}


async def test_each_run_of_a_task_is_recorded(recorded: Recorded) -> None:
    async with Client(agent_of_all_ends()) as client:
        task = await client.send("ask")
        await client.send("this", task=task)
        await recorded.until(lambda: len(recorded.counts(recorded.metrics.tasks)) == 2)
    assert recorded.counts(recorded.metrics.tasks) == {
        (NAME, "act", "TASK_STATE_INPUT_REQUIRED"): 1,
        (NAME, "act", "TASK_STATE_COMPLETED"): 1,
    }


async def test_an_answer_without_a_task_is_recorded_as_such(recorded: Recorded) -> None:
    async with Client(agent_of_all_ends()) as client:
        await client.send(tool="answer")
        await recorded.until(lambda: recorded.counts(recorded.metrics.tasks))
    assert recorded.counts(recorded.metrics.tasks) == {(NAME, "answer", "REPLIED"): 1}


async def test_a_canceled_run_is_recorded_and_one_that_is_cut_off_is_not(recorded: Recorded) -> None:
    began = asyncio.Event()

    async def run(_: object) -> AsyncIterator[str]:
        began.set()
        await asyncio.Event().wait()
        yield ""

    async with Client(Agent("slow", run=run)) as client:
        task = await client.send("go", wait=False)
        await began.wait()
        await client.cancel_task(task)
        await recorded.until(lambda: recorded.counts(recorded.metrics.tasks))
        began.clear()
        await client.send("go", wait=False)
        await began.wait()
    assert recorded.counts(recorded.metrics.tasks) == {("slow", "", "TASK_STATE_CANCELED"): 1}
    assert not recorded.counts(recorded.metrics.first_tokens)


@pytest.mark.parametrize(("tool", "count"), [("act", 1), ("draw", 1), ("answer", 1), ("nothing", 0)])
async def test_the_first_output_of_a_run_is_recorded(recorded: Recorded, tool: str, count: int) -> None:
    async with Client(agent_of_all_ends()) as client:
        arguments = {"text": "x"} if tool == "act" else {}
        assert [event async for event in client.stream(tool=tool, arguments=arguments)]
    assert recorded.counts(recorded.metrics.first_tokens) == ({(NAME, tool): 1} if count else {})


async def test_without_a_stream_no_first_output_is_recorded(recorded: Recorded) -> None:
    async with Client(agent_of_all_ends()) as client:
        await client.send("x")
        await recorded.until(lambda: recorded.counts(recorded.metrics.tasks))
    assert not recorded.counts(recorded.metrics.first_tokens)


async def _all(stream: EventStream) -> list[Event]:
    return [event async for event in stream]


async def test_only_the_first_of_many_outputs_is_recorded_and_at_once(recorded: Recorded) -> None:
    metric, first, finish = recorded.metrics.first_tokens, asyncio.Event(), asyncio.Event()

    async def run(_: object) -> AsyncIterator[str]:
        asyncio.get_running_loop().call_later(0.05, first.set)
        await first.wait()
        yield "one "
        await finish.wait()
        yield "two "
        yield "three"

    async with Client(Agent("talker", run=run)) as client:
        stream = client.stream("go")
        following = asyncio.ensure_future(_all(stream))
        await recorded.until(lambda: recorded.counts(metric))
        assert not recorded.counts(recorded.metrics.tasks)
        finish.set()
        await following
        assert stream.task is not None and stream.task.text == "one two three"
        await recorded.until(lambda: recorded.counts(recorded.metrics.tasks))
    assert recorded.counts(metric) == {("talker", ""): 1}
    assert 0.04 <= recorded.sums(metric)["talker", ""] < 5
    assert recorded.sums(recorded.metrics.tasks)["talker", "", "TASK_STATE_COMPLETED"] >= 0.04
