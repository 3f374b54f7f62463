"""A caller gives up while its webhook is stored or deleted: what is stored is delivered to, and what is not is not."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dragoman.engine import shielded
from dragoman.engine.call import CallContext
from dragoman.model.operation import GetPushConfigRequest
from dragoman.stores.sqlite.store import SqliteStore

TURNS = 12


async def give_up(work: Any, turns: int) -> None:
    """Cancel work after some turns of the loop."""
    task = asyncio.create_task(work)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def until_written(world: Any, task: Any) -> None:
    """Wait for the work that goes on without its caller, and for one commit more."""
    await asyncio.gather(*shielded._running, return_exceptions=True)
    await world.hook(task, "https://hooks.example.com/other", id="other")


@pytest.mark.parametrize("deletes", [False, True], ids=["stored", "deleted"])
async def test_only_a_webhook_that_is_stored_is_delivered_to(make: Any, tmp_path: Path, deletes: bool) -> None:
    world = await make(SqliteStore(tmp_path / "tasks.db"))
    for turns in range(1, TURNS):
        task = await world.send("wait_for_go", push=None, wait=False, message_id=f"m{turns}")
        if deletes:
            await world.hook(task, id="mine")
            await give_up(world.service.delete_push(CallContext(), GetPushConfigRequest(task.id, "mine")), turns)
        else:
            await give_up(world.hook(task, f"https://hooks.example.com/{turns}", id="mine"), turns)
        await until_written(world, task)
        stored = {push.id for push in await world.pushes(task)}
        assert {push_id for number, push_id in world.sender._deliveries if number == _number(world, task)} == stored
        await world.send("", "go", push=None, task=task.id, message_id=f"n{turns}")
        await world.settle()


def _number(world: Any, task: Any) -> int:
    return world.service._tasks.live[task.id].row.number
