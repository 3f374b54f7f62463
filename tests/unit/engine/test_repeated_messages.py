"""The same message twice runs nothing twice."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from dragoman import User
from dragoman.engine.call import CallContext
from dragoman.engine.operations import EngineSettings
from dragoman.model.error import ServerError
from dragoman.model.state import State
from dragoman.outputs import Ask, Reply


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


async def test_a_repeat_gives_the_first_task_and_says_so(start: Any) -> None:
    agent, message_id = Counting(), str(uuid4())
    engine = await start(agent.run)
    first = await engine.answer("go", message_id=message_id)
    again = await engine.answer("go", message_id=message_id)
    assert (first.repeat, again.repeat) == (False, True)
    assert again.result == first.result
    assert agent.runs == 1
    assert len(again.result.history) == 1


async def test_a_repeat_while_the_first_is_under_way_waits_for_it(start: Any, turns: Any) -> None:
    agent, message_id = Counting(), str(uuid4())
    agent.go_on.clear()
    engine = await start(agent.run)
    answers = [asyncio.create_task(engine.answer("go", message_id=message_id)) for _ in range(5)]
    await turns()
    agent.go_on.set()
    results = await asyncio.gather(*answers)
    assert sorted(answer.repeat for answer in results) == [False, True, True, True, True]
    assert len({answer.result.id for answer in results}) == 1
    assert agent.runs == 1


async def test_a_repeated_stream_shows_the_task_from_its_beginning_also_when_it_has_ended(start: Any) -> None:
    agent, message_id = Counting(), str(uuid4())
    engine = await start(agent.run)
    first = await engine.stream("go", message_id=message_id)
    again = await engine.service.stream(CallContext(), engine.request("go", message_id=message_id))
    assert again.repeat is True
    records = [record async for batch in again.batches for record in batch.records]
    assert [(record.generation, record.body) for record in records] == [
        (record.generation, record.body) for record in first
    ]
    assert agent.runs == 1


async def test_a_repeated_answer_shows_what_came_of_it(start: Any) -> None:
    async def run(ctx: Any) -> Any:
        yield Ask("?") if ctx.resume is None else "done"

    engine = await start(run)
    task = await engine.send()
    message_id = str(uuid4())
    ended = await engine.send("3", task=task, message_id=message_id)
    again = await engine.answer("3", task=task, message_id=message_id)
    assert (again.repeat, again.result) == (True, ended)
    records = await engine.stream("3", task=task, message_id=message_id)
    assert records[-1].state is State.COMPLETED
    assert records[-1].event.text == "done"
    assert [message.text for message in (await engine.get(task)).history] == ["go", "?", "3"]


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


async def test_the_same_id_with_other_words_or_from_somebody_else_is_no_repeat(start: Any) -> None:
    agent, message_id = Counting(), str(uuid4())
    engine = await start(agent.run)
    await engine.send("go", message_id=message_id)
    await engine.send("stop", message_id=message_id)
    await engine.send("go", message_id=message_id, call=CallContext(user=User("me")))
    await engine.send("go", message_id=message_id, tenant="other")
    assert agent.runs == 4


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


async def test_repeats_can_be_turned_off(start: Any) -> None:
    agent, message_id = Counting(), str(uuid4())
    engine = await start(agent.run, settings=EngineSettings(dedupe=0, drain=0))
    for _ in range(2):
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
