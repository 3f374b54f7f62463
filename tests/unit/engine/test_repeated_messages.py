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

from .conftest import Gate


async def test_a_repeated_message_to_a_running_task_is_delivered_once(start: Any) -> None:
    agent, message_id = Gate(), str(uuid4())
    engine = await start(agent.run)
    task = await engine.send(wait=False)
    for _ in range(3):
        await engine.send("more", task=task, message_id=message_id, wait=False)
    agent.open.set()
    ended = await engine.until_state(task, State.COMPLETED)
    assert [message.text for message in ended.history] == ["go", "more"]


async def test_a_repeat_of_a_reply_under_way_gets_the_same_reply(start: Any, turns: Any) -> None:
    agent, message_id = Gate(), str(uuid4())
    engine = await start(agent.run)
    answers = [asyncio.create_task(engine.answer("reply", message_id=message_id)) for _ in range(2)]
    request = engine.request("reply", message_id=message_id)
    streaming = asyncio.create_task(engine.service.stream(CallContext(), request))
    await turns()
    agent.open.set()
    first, second = await asyncio.gather(*answers)
    assert first.result == second.result
    assert (first.repeat, second.repeat, (await streaming).repeat) == (False, True, True)


async def test_after_the_window_a_message_is_new(start: Any, clock: Any) -> None:
    agent, message_id = Gate(), str(uuid4())
    agent.open.set()
    engine = await start(agent.run, settings=EngineSettings(dedupe=60, drain=0))
    await engine.send("go", message_id=message_id)
    clock.move(59.999)
    await engine.send("go", message_id=message_id)
    assert agent.runs == 1
    clock.move(0.001)
    await engine.send("go", message_id=message_id)
    assert agent.runs == 2


async def test_a_message_the_store_refused_can_be_sent_again(start: Any, failing_store: Any) -> None:
    agent, message_id = Gate(), str(uuid4())
    agent.open.set()
    engine = await start(agent.run, store=failing_store)
    failing_store.refuses = lambda write: True
    with pytest.raises(ServerError):
        await engine.send("go", message_id=message_id)
    await engine.idle()
    failing_store.refuses = lambda write: False
    again = await engine.answer("go", message_id=message_id)
    assert (again.repeat, again.result.state) == (False, State.COMPLETED)
