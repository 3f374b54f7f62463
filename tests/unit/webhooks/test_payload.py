"""What is told, in the words of the version in which the webhook was registered."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dragoman import Agent, Context
from dragoman.engine.journal.replay import JournalCompacted
from dragoman.engine.ports.store import Sweep
from dragoman.webhooks.payload import PayloadBuilder


def texts(payload: Any) -> list[str]:
    update = payload.get("artifactUpdate")
    return [part["text"] for part in update["artifact"]["parts"]] if update else []


async def deliveries_of(make: Any, skill: str, origin: str, **options: Any) -> list[Any]:
    world = await make(agent=options.pop("agent", None), **options)
    await world.send(skill, "hi", origin=origin)
    await world.pass_time(1, step=0.1)
    return world.receiver.accepted


@pytest.mark.parametrize("origin", ["1.0", "1.1"])
async def test_1_x_gets_stream_responses(make: Any, origin: str) -> None:
    deliveries = await deliveries_of(make, "echo", origin)
    assert [list(each.json) for each in deliveries] == [["statusUpdate"], ["artifactUpdate"], ["statusUpdate"]]
    assert {each.headers["content-type"] for each in deliveries} == {"application/a2a+json"}
    assert {each.headers["a2a-version"] for each in deliveries} == {origin}


@pytest.mark.parametrize(("origin", "kind"), [("0.3", "task"), ("0.1", None)])
async def test_older_versions_get_the_task_at_status_changes(make: Any, origin: str, kind: str | None) -> None:
    deliveries = await deliveries_of(make, "echo", origin)
    assert [each.json.get("kind") for each in deliveries] == [kind, kind]
    assert [each.state for each in deliveries] == ["working", "completed"]
    assert [len(each.json.get("artifacts", [])) for each in deliveries] == [0, 1]
    assert {each.headers["content-type"] for each in deliveries} == {"application/json"}
    assert [each.number for each in deliveries] == [2, 4]


@pytest.mark.parametrize("closing", ["whole", "last"])
async def test_a_streamed_text_is_delivered_once_and_whole(make: Any, agents: Any, closing: Any) -> None:
    deliveries = await deliveries_of(make, "talk", "1.0", agent=agents(closing=closing))
    assert ["".join(texts(each.json)) for each in deliveries] == ["", "one two three", ""]
    update = deliveries[1].json["artifactUpdate"]
    assert update["lastChunk"] is True
    assert not update.get("append")


@pytest.mark.parametrize(
    ("closing", "pieces"),
    [("whole", ["", "one ", "two ", "three", "one two three"]), ("last", ["one ", "two ", "three"])],
)
async def test_chunks_are_delivered_where_the_setting_asks_for_them(
    make: Any, agents: Any, closing: Any, pieces: list[str]
) -> None:
    deliveries = await deliveries_of(make, "talk", "1.0", agent=agents(closing=closing), chunks=True)
    assert [each.number for each in deliveries] == list(range(2, len(deliveries) + 2))
    assert [text for each in deliveries[1:-1] for text in texts(each.json)] == pieces


async def test_the_task_delivered_in_0_3_has_the_question_and_the_answer(make: Any) -> None:
    world = await make()
    task = await world.send("plan", "hi", origin="0.3")
    await world.pass_time(1, step=0.1)
    world.receiver.down = True
    await world.send("", "3", None, task=task.id)
    await world.settle()
    world.receiver.down = False
    await world.pass_time(10)
    deliveries = world.receiver.accepted
    assert [each.state for each in deliveries] == ["working", "input-required", "working", "completed"]
    texts_of_history = [
        [part["text"] for message in each.json["history"] for part in message["parts"]] for each in deliveries
    ]
    assert texts_of_history[2] == ["hi", "How many days?", "3"]
    assert texts_of_history[3] == texts_of_history[2]


async def test_0_3_gets_each_state_as_it_was_then(make: Any) -> None:
    agent = Agent("steps")

    @agent.skill
    async def steps(ctx: Context):
        for number in range(3):
            await ctx.progress(f"step {number}")
            yield f"{number} "

    world = await make(agent=agent)
    world.receiver.down = True
    await world.send("steps", "hi", origin="0.3")
    await world.settle()
    world.receiver.down = False
    await world.pass_time(10)
    lengths = [
        sum(len(part["text"]) for artifact in each.json.get("artifacts", []) for part in artifact["parts"])
        for each in world.receiver.accepted
    ]
    assert lengths == sorted(lengths)
    assert lengths[-1] == 6
    assert len(lengths) >= 4


async def test_a_long_journal_is_folded_without_keeping_the_loop(make: Any) -> None:
    agent = Agent("long", closing="last")

    @agent.skill
    async def stream(text: str):
        for number in range(3000):
            yield f"{number} "

    world = await make(agent=agent)
    world.receiver.down = True
    await world.send("stream", "hi")
    await world.settle()
    world.receiver.down = False
    turns = 0

    async def count() -> None:
        nonlocal turns
        while len(world.receiver.accepted) < 3:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.ensure_future(count())
    await world.pass_time(10)
    await counting
    assert "".join(texts(world.receiver.accepted[1].json)) == "".join(f"{number} " for number in range(3000))
    assert turns > 3000 / 256


async def test_a_compacted_record_cannot_be_built(make: Any) -> None:
    world = await make()
    task = await world.send("talk", push=None)
    stored = await world.store.task(task.id)
    records = await world.store.records(stored.row.number, 0, 100)
    await world.store.sweep(Sweep(compact_before_ms=world.clock.now() + 1))
    with pytest.raises(JournalCompacted):
        await PayloadBuilder(world.store, stored, "0.3", chunks=False).build(records[1])
