"""Queues of events."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dragoman.compat.executor import EventQueue, EventQueues, Message, Role, Subscription, TextPart
from dragoman.compat.executor.event_queue import QUEUE_LIMIT


def event(text: str) -> Message:
    return Message(Role.AGENT, (TextPart(text),), text)


async def texts(subscription: Subscription) -> list[str]:
    return [event.text async for event in subscription if isinstance(event, Message)]


@pytest.mark.requirement("S2-23")
async def test_a_subscriber_gets_every_event_in_order_until_the_queue_is_closed() -> None:
    queue = EventQueue("t")
    subscription = queue.subscribe()
    for number in range(5):
        assert await queue.enqueue(event(str(number))) == ("ok", event(str(number)))
    queue.close()
    assert await texts(subscription) == ["0", "1", "2", "3", "4"]


@pytest.mark.requirement("S2-23")
async def test_several_subscribers_get_the_same_events_in_the_same_order() -> None:
    queue = EventQueue("t", limit=2)
    subscriptions = [queue.subscribe(name) for name in ("slow", "quick")]
    reading = [asyncio.create_task(texts(subscription)) for subscription in subscriptions]
    await asyncio.gather(*(queue.enqueue(event(str(number))) for number in range(20)))
    queue.close()
    first, second = await asyncio.gather(*reading)
    assert first == second
    assert sorted(first, key=int) == first
    assert len(first) == 20


@pytest.mark.requirement("S2-23")
async def test_a_subscriber_that_subscribes_again_gets_nothing_twice() -> None:
    queue = EventQueue("t")
    assert queue.subscribe() is queue.subscribe()
    assert queue.subscribe("me") is queue.subscribe("me")
    assert queue.subscribers == 2


async def test_a_subscriber_receives_only_later_events() -> None:
    queue = EventQueue("t")
    await queue.enqueue(event("before"))
    subscription = queue.subscribe()
    await queue.enqueue(event("after"))
    queue.close()
    assert await texts(subscription) == ["after"]


@pytest.mark.requirement("S2-23")
async def test_closing_twice_is_closing_once() -> None:
    queue = EventQueue("t")
    queue.close()
    queue.close()
    assert queue.closed


async def test_done_returns_when_the_queue_is_closed() -> None:
    queue = EventQueue("t")
    waiting = asyncio.create_task(queue.done())
    await asyncio.sleep(0)
    assert not waiting.done()
    queue.close()
    await waiting


@pytest.mark.requirement("S2-23")
async def test_a_closed_queue_takes_no_events_and_no_subscribers() -> None:
    queue = EventQueue("t")
    queue.close()
    assert await queue.enqueue(event("late")) == ("error", "not_found")
    assert await texts(queue.subscribe()) == []
    assert queue.subscribers == 0


@pytest.mark.requirement("S2-118")
async def test_an_executor_that_is_too_far_ahead_waits_for_its_slowest_subscriber() -> None:
    queue = EventQueue("t", limit=2)
    subscription = queue.subscribe()
    await queue.enqueue(event("1"))
    await queue.enqueue(event("2"))
    third = asyncio.create_task(queue.enqueue(event("3")))
    await asyncio.sleep(0)
    assert not third.done()
    assert await anext(subscription) == event("1")
    assert (await third)[0] == "ok"


@pytest.mark.requirement("S2-118")
async def test_a_subscriber_that_leaves_lets_an_executor_go_that_waits_for_it() -> None:
    queue = EventQueue("t", limit=1)
    reading = queue.subscribe("reading")
    subscribed = asyncio.Event()

    async def fall_behind() -> None:
        queue.subscribe()
        subscribed.set()
        await asyncio.Event().wait()

    slow = asyncio.create_task(fall_behind())
    await subscribed.wait()
    await queue.enqueue(event("1"))
    assert await anext(reading) == event("1")
    second = asyncio.create_task(queue.enqueue(event("2")))
    await asyncio.sleep(0)
    assert not second.done()
    slow.cancel()
    assert (await second)[0] == "ok"
    assert (queue.subscribers, await anext(reading)) == (1, event("2"))


@pytest.mark.requirement("S2-118")
async def test_a_subscriber_of_a_handler_holds_its_executor_back_and_one_that_leaves_lets_it_end(
    calling: Any, doing: Any
) -> None:
    sent: list[int] = []
    subscribed, full, one_more = asyncio.Event(), asyncio.Event(), asyncio.Event()
    thresholds = {QUEUE_LIMIT: full, QUEUE_LIMIT + 1: one_more}

    async def work(reporter: Any) -> None:
        await subscribed.wait()
        for number in range(3 * QUEUE_LIMIT):
            await reporter.artifact("a", "x", append=number > 0)
            sent.append(number)
            thresholds.get(len(sent), subscribed).set()

    caller = calling(doing(work))
    task = await caller.send("hi", blocking=False)
    queue = caller.handler.queues.lookup(task["id"])[1]
    subscription = queue.subscribe("slow")
    subscribed.set()
    await full.wait()
    for _ in range(200):  # time enough for many more, if nothing held it back
        await asyncio.sleep(0)
    assert len(sent) == QUEUE_LIMIT
    await anext(subscription)
    await one_more.wait()
    subscription.leave()
    await queue.done()
    assert len(sent) == 3 * QUEUE_LIMIT


async def test_closing_lets_an_executor_go_that_waits_for_room() -> None:
    queue = EventQueue("t", limit=1)
    subscription = queue.subscribe()
    await queue.enqueue(event("1"))
    second = asyncio.create_task(queue.enqueue(event("2")))
    await asyncio.sleep(0)
    queue.close()
    assert await second == ("error", "not_found")
    assert await texts(subscription) == ["1"]


@pytest.mark.requirement("S2-93")
async def test_a_subscriber_is_removed_when_its_task_is_cancelled() -> None:
    queue = EventQueue("t")
    subscribed = asyncio.Event()

    async def listen() -> None:
        subscription = queue.subscribe()
        subscribed.set()
        await texts(subscription)

    listener = asyncio.create_task(listen())
    await subscribed.wait()
    assert queue.subscribers == 1
    listener.cancel()
    await asyncio.wait([listener])
    await asyncio.sleep(0)
    assert queue.subscribers == 0


@pytest.mark.requirement("S2-93")
async def test_a_dead_subscriber_does_not_hold_the_executor_up() -> None:
    queue = EventQueue("t", limit=1)

    async def listen() -> None:
        queue.subscribe()
        await queue.enqueue(event("1"))

    await asyncio.create_task(listen())
    assert (await queue.enqueue(event("2")))[0] == "ok"
    assert queue.subscribers == 0


async def test_a_subscriber_may_leave() -> None:
    queue = EventQueue("t")
    staying, leaving = queue.subscribe("a"), queue.subscribe("b")
    await queue.enqueue(event("1"))
    leaving.leave()
    await queue.enqueue(event("2"))
    queue.close()
    assert await texts(leaving) == []
    assert await texts(staying) == ["1", "2"]


@pytest.mark.requirement("S2-46")
async def test_a_task_has_one_queue_however_often_it_is_asked_for() -> None:
    queues = EventQueues()
    queue = queues.get_or_create("t")
    assert queues.get_or_create("t") is queue
    assert queues.get_or_create("u") is not queue
    assert queues.lookup("t") == ("ok", queue)
    assert len(queues) == 2


@pytest.mark.requirement("S2-46")
async def test_a_queue_that_is_missing_is_not_found() -> None:
    queues = EventQueues()
    assert queues.lookup("t") == ("error", "not_found")
    assert await queues.enqueue("t", event("1")) == ("error", "not_found")
    assert queues.subscribe("t") == ("error", "not_found")
    queues.close("t")


@pytest.mark.requirement("S2-46")
async def test_a_queue_is_spoken_to_by_its_tasks_id() -> None:
    queues = EventQueues()
    queues.get_or_create("t")
    status, subscription = queues.subscribe("t")
    assert status == "ok"
    await queues.enqueue("t", event("1"))
    queues.close("t")
    assert isinstance(subscription, Subscription)
    assert await texts(subscription) == ["1"]


@pytest.mark.requirement("S2-46")
async def test_a_closed_queue_makes_room_for_a_new_one() -> None:
    queues = EventQueues()
    queue = queues.get_or_create("t")
    queue.close()
    assert queues.lookup("t") == ("error", "not_found")
    assert queues.get_or_create("t") is not queue
