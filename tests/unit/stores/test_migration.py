"""Files of older versions open, and are brought up to date."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

from dragoman import Agent, Context
from dragoman.engine.call import Call
from dragoman.model.message import Message
from dragoman.model.operation import Operation
from dragoman.model.part import Part
from dragoman.model.request import GetTaskRequest, ListTasksRequest, SendMessageRequest
from dragoman.model.state import Role, State
from dragoman.server.in_process import connect
from dragoman.stores.sqlite.schema import VERSION
from dragoman.stores.sqlite.store import SqliteStore

GOLDEN = Path(__file__).parents[2] / "contract" / "golden" / "store-v1.db"


def golden_agent() -> Agent:
    agent = Agent("golden", description="What wrote the golden file")

    @agent.skill
    async def echo(text: str) -> str:
        """Echo."""
        return text

    @agent.skill
    async def name(ctx: Context):
        """Ask."""
        answer = await ctx.ask("Your name?")
        yield f"Hello {answer}"

    @agent.skill
    async def slow(ctx: Context):
        """Never end."""

    return agent


async def test_a_store_of_version_1_opens_with_all_its_tasks(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    shutil.copy(GOLDEN, path)
    connection = connect(golden_agent(), store=SqliteStore(path))
    await connection.open()
    try:
        listed = await connection.service.list(Call(), ListTasksRequest(include_artifacts=True))
        talk = await connection.service.list(Call(), ListTasksRequest(context_id="talk"))
        done = await connection.service.list(Call(), ListTasksRequest(status=State.COMPLETED, include_artifacts=True))
        parked = next(task for task in listed.tasks if task.state is State.INPUT_REQUIRED)
        answer = Message("m", Role.USER, (Part(text="Ada"),), task_id=parked.id)
        answered = await connection.perform(Operation.SEND, SendMessageRequest(answer))
        again = await connection.perform(Operation.GET, GetTaskRequest(parked.id))
    finally:
        await connection.close()

    assert (listed.total_size, talk.total_size, done.total_size) == (5, 2, 3)
    assert sorted(task.text for task in done.tasks) == ["text 0", "text 1", "text 2"]
    # The one that was at work when that server stopped was decided about at this start.
    assert [task.error for task in listed.tasks if task.state is State.FAILED] == ["interrupted by a restart"]
    assert answered.text == "Hello Ada"
    assert again == answered


def version_of(path: Path) -> int:
    connection = sqlite3.connect(path)
    try:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])
    finally:
        connection.close()


async def test_an_old_file_becomes_one_of_this_version(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    shutil.copy(GOLDEN, path)
    assert version_of(path) == 1

    store = SqliteStore(path)
    await store.open()
    await store.close()

    assert version_of(path) == VERSION
