"""An hour without the receiver, a crash, and a receiver that is slow: nothing is lost, nobody waits."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dragoman import Agent
from dragoman.engine.call import CallContext
from dragoman.engine.ports.store import PushState
from dragoman.model.message import Message
from dragoman.model.operation import SendMessageConfiguration, SendMessageRequest, TaskPushNotificationConfig
from dragoman.model.part import Part
from dragoman.model.state import Role
from dragoman.stores.sqlite.store import SqliteStore

TASKS = 250
FEWER = 100
HOUR = 3600
URL = "https://hooks.example.com/in"
STATES = ["TASK_STATE_WORKING", None, "TASK_STATE_COMPLETED"]


async def send_all(world: Any, number: int) -> list[str]:
    """That many tasks at once, each with its webhook; gives their ids."""
    tasks = await asyncio.gather(*(world.send("echo", message_id=f"m{each}") for each in range(number)))
    return [task.id for task in tasks]


def check(world: Any, tasks: list[str]) -> None:
    """Every task's events, in order, once each."""
    found = world.receiver.by_task()
    assert set(found) == set(tasks)
    for deliveries in found.values():
        assert [each.number for each in deliveries] == [2, 3, 4]
        assert [each.state for each in deliveries] == STATES


@pytest.mark.requirement("S2-29")
async def test_an_hour_without_the_receiver_loses_nothing_of_many_tasks(make: Any) -> None:
    world = await make()
    world.receiver.down = True
    tasks = await send_all(world, TASKS)
    await world.pass_time(HOUR)
    assert world.receiver.accepted == []
    # Some twenty tries each in an hour, and not one after the other without a pause.
    assert 10 * TASKS < world.receiver.tries < 40 * TASKS
    world.receiver.down = False
    await world.pass_time(HOUR // 4)
    check(world, tasks)
    assert len(world.receiver.accepted) == 3 * TASKS
    assert await world.store.undelivered_pushes() == []
    assert world.sender.open_count == world.sender.busy_count == 0


async def test_a_crash_in_that_hour_loses_nothing_either(make: Any, tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    before = await make(SqliteStore(path), closes=False)
    before.receiver.down = True
    tasks = await send_all(before, FEWER)
    await before.pass_time(HOUR // 2, step=300)
    await before.drop()
    after = await make(SqliteStore(path), clock=before.clock, keys=before.keys)
    assert after.sender.open_count == FEWER
    after.receiver.down = True
    await after.pass_time(HOUR // 2, step=300)
    after.receiver.down = False
    await after.pass_time(HOUR // 4, step=300)
    check(after, tasks)
    # Time is virtual, the thread that writes down what has arrived is not: each look waits for a real read.
    while await after.store.undelivered_pushes():
        assert after.sender.open_count + after.sender.busy_count <= FEWER


async def test_a_crash_in_the_middle_of_bringing_repeats_at_most_what_was_on_its_way(make: Any, tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    before = await make(SqliteStore(path), closes=False)
    enough = asyncio.Event()

    async def count(_: Any) -> None:
        if len(before.receiver.accepted) >= 100:
            enough.set()

    before.receiver.does = count
    sending = asyncio.ensure_future(send_all(before, 200))
    await enough.wait()
    tasks = await sending
    await before.drop()
    after = await make(SqliteStore(path), clock=before.clock, keys=before.keys)
    await after.pass_time(60, step=10)
    by_task: dict[str, list[int]] = {task: [] for task in tasks}
    for each in (*before.receiver.accepted, *after.receiver.accepted):
        by_task[each.task].append(each.number)
    for numbers in by_task.values():
        # In order, with at most one event twice: the one whose arrival had not been written down.
        assert sorted(set(numbers)) == [2, 3, 4]
        assert numbers == sorted(numbers)
        assert len(numbers) <= 4


# -- nobody waits ----------------------------------------------------------------------------------------------------


def talker() -> Agent:
    agent = Agent("talker")

    @agent.skill
    async def talk(text: str):
        for number in range(20):
            yield f"{number} "

    return agent


async def test_a_webhook_that_takes_half_a_minute_delays_no_stream_at_all(make: Any) -> None:
    world = await make(agent=talker())
    done = 0

    async def slow(_: Any) -> None:
        nonlocal done
        waiter = asyncio.get_running_loop().create_future()
        world.clock.call_later(30, lambda: waiter.set_result(None))
        await waiter
        done += 1

    world.receiver.does = slow
    began = world.clock.now()
    message = Message("m", Role.USER, (Part(text="go"),))
    config = SendMessageConfiguration(task_push_notification_config=TaskPushNotificationConfig(URL))
    stream = await world.service.stream(CallContext(), SendMessageRequest(message, config))
    records = [record async for batch in stream.batches for record in batch.records]
    assert records[-1].state is not None
    assert records[-1].state.final
    # Not a millisecond has passed, and the receiver has not answered yet.
    assert (world.clock.now() - began, done) == (0, 0)
    await world.clock.advance(200)
    assert [each.state for each in world.receiver.accepted] == STATES
    (push,) = await world.pushes(await world_task(world, records[0].event.id))
    assert push.state is PushState.DONE


async def world_task(world: Any, task_id: str) -> Any:
    stored = await world.store.task(task_id)
    assert stored is not None
    return stored.row
