"""The answer repeated as the closing message, for agents of every kind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp.server import MCPServer

from dragoman import Agent, Client, State
from dragoman.testing import served


def echo() -> Agent:
    agent = Agent("echo")

    @agent.skill
    async def words(text: str) -> AsyncIterator[str]:
        for word in text.split():
            yield f"{word} "

    return agent


class Executor:
    """Answers with an artifact, as an executor of a2a-sdk does."""

    async def execute(self, context: Any, event_queue: Any) -> None:
        ids = {"taskId": context.task_id, "contextId": context.context_id}
        artifact = {"artifactId": "a", "parts": [{"text": "one two "}]}
        await event_queue.enqueue_event({**ids, "artifact": artifact})
        await event_queue.enqueue_event({**ids, "status": {"state": "completed"}})

    async def cancel(self, context: Any, event_queue: Any) -> None: ...


def of_program(folder: Path) -> Agent:
    return Agent.from_command(["cat"], cwd=folder)


def of_executor(folder: Path) -> Agent:
    return Agent.from_executor(Executor())


def of_remote(folder: Path) -> Agent:
    return Agent.from_a2a(echo())


def of_mcp(folder: Path) -> Agent:
    server = MCPServer("tools")

    @server.tool()
    def echo(text: str) -> str:
        return text

    return Agent.from_mcp(server)


def of_functions(folder: Path) -> Agent:
    return echo()


@pytest.mark.parametrize(
    "make",
    [of_functions, of_program, of_executor, of_remote, of_mcp],
    ids=lambda make: make.__name__.removeprefix("of_"),
)
async def test_the_setting_repeats_the_answer_of_every_kind_of_agent(tmp_path: Path, make: Any) -> None:
    with served(make(tmp_path), closing_message=True, drain=0) as url:
        async with Client(url) as client:
            task = await client.send("one two ")
    assert (task.state, task.text) == (State.COMPLETED, "one two ")
    assert task.status.message is not None
    assert task.status.message.text == "one two "
