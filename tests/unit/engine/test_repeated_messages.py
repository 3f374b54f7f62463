"""The same message twice runs nothing twice."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from dragoman.engine.call import CallContext
from dragoman.engine.settings import EngineSettings
from dragoman.model.error import ServerError
from dragoman.model.state import State
from dragoman.outputs import Reply


class Counting:
    """Counts its runs."""

    def __init__(self) -> None:
        self.runs = 0
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def run(self, ctx: Any) -> Any:
        self.runs += 1
        await self.go_on.wait()
        yield f"run {self.runs}"


async def test_a_repeated_word_to_a_task_at_work_is_told_once(start: Any, turns: Any) -> None:
    agent, message_id = Counting(), str(uuid4())
    agent.go_on.clear()
    engine = await start(agent.run)
    task = await engine.send(wait=False)
    for _ in range(3):
        await engine.send("more", task=task, message_id=message_id, wait=False)
    agent.go_on.set()
    ended = await engine.until_state(task, State.COMPLETED)
    assert [message.text for message in ended.history] == ["go", "more"]


async def test_a_repeat_of_a_reply_under_way_gets_the_same_reply(start: Any, turns: Any) -> None:
    go_on, message_id = asyncio.Event(), str(uuid4())

    async def run(ctx: Any) -> Any:
        await go_on.wait()
        yield Reply("hi")

    engine = await start(run)
    answers = [asyncio.create_task(engine.answer(message_id=message_id)) for _ in range(2)]
    streaming = asyncio.create_task(engine.service.stream(CallContext(), engine.request(message_id=message_id)))
    await turns()
    go_on.set()
    first, second = await asyncio.gather(*answers)
    assert first.result == second.result
    assert (first.repeat, second.repeat, (await streaming).repeat) == (False, True, True)


@pytest.mark.parametrize("message_id", ["m1", "1"])
async def test_ids_typed_by_hand_are_never_repeats(start: Any, message_id: str) -> None:
    agent = Counting()
    engine = await start(agent.run)
    tasks = [await engine.send("go", message_id=message_id) for _ in range(2)]
    assert tasks[0].id != tasks[1].id
    assert agent.runs == 2


async def test_after_the_window_a_message_is_new(start: Any, clock: Any) -> None:
    agent, message_id = Counting(), str(uuid4())
    engine = await start(agent.run, settings=EngineSettings(dedupe=60, drain=0))
    await engine.send("go", message_id=message_id)
    clock.move(59.999)
    await engine.send("go", message_id=message_id)
    assert agent.runs == 1
    clock.move(0.001)
    await engine.send("go", message_id=message_id)
    assert agent.runs == 2


async def test_after_a_restart_the_repeat_is_known(start: Any) -> None:
    agent, message_id = Counting(), str(uuid4())
    before = await start(agent.run)
    first = await before.send("go", message_id=message_id)
    after = await start(agent.run, store=before.store)
    again = await after.answer("go", message_id=message_id)
    assert (again.repeat, again.result) == (True, first)
    assert agent.runs == 1


async def test_a_message_the_store_refused_can_be_sent_again(start: Any, failing_store: Any) -> None:
    agent, message_id = Counting(), str(uuid4())
    engine = await start(agent.run, store=failing_store)
    failing_store.refuses = lambda write: True
    with pytest.raises(ServerError):
        await engine.send("go", message_id=message_id)
    await engine.idle()
    failing_store.refuses = lambda write: False
    again = await engine.answer("go", message_id=message_id)
    assert (again.repeat, again.result.state) == (False, State.COMPLETED)
