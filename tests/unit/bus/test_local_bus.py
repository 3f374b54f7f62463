"""Wake-ups within one process."""

from __future__ import annotations

import asyncio

import pytest

from dragoman.bus.local import LocalBus
from dragoman.testing import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def bus(clock: Clock) -> LocalBus:
    return LocalBus(clock)


async def test_a_listener_wakes_when_its_task_has_come_further(bus: LocalBus, clock: Clock) -> None:
    with bus.watch("a") as watch:
        waiting = asyncio.create_task(watch.wait_past(3, 60))
        await clock.advance(59)
        assert not waiting.done()
        bus.notify("a", 4)
        assert await waiting is True


async def test_an_older_notice_after_a_newer_one_changes_nothing(bus: LocalBus) -> None:
    with bus.watch("a") as watch:
        bus.notify("a", 5)
        bus.notify("a", 2)
        assert await watch.wait_past(4, 60) is True


async def test_the_time_is_up_when_nothing_happens(bus: LocalBus, clock: Clock) -> None:
    with bus.watch("a") as watch:
        waiting = asyncio.create_task(watch.wait_past(0, 15))
        await clock.advance(14.999)
        assert not waiting.done()
        await clock.advance(0.001)
        assert await waiting is False


async def test_a_listener_can_wait_again_after_its_time_was_up(bus: LocalBus, clock: Clock) -> None:
    with bus.watch("a") as watch:
        waiting = asyncio.create_task(watch.wait_past(0, 15))
        await clock.advance(15)
        assert await waiting is False
        waiting = asyncio.create_task(watch.wait_past(0, 15))
        await clock.advance(1)
        bus.notify("a", 1)
        assert await waiting is True


async def test_a_notice_that_is_not_newer_ends_the_wait_with_false(bus: LocalBus, clock: Clock) -> None:
    with bus.watch("a") as watch:
        waiting = asyncio.create_task(watch.wait_past(3, 60))
        await clock.advance(1)
        bus.notify("a", 3)
        assert await waiting is False


async def test_all_listeners_of_a_task_wake_and_those_of_others_do_not(bus: LocalBus, clock: Clock) -> None:
    with bus.watch("a") as one, bus.watch("a") as two, bus.watch("b") as other:
        first, second = asyncio.create_task(one.wait_past(0, 60)), asyncio.create_task(two.wait_past(0, 60))
        third = asyncio.create_task(other.wait_past(0, 60))
        await clock.advance(1)
        bus.notify("a", 1)
        assert await asyncio.gather(first, second) == [True, True]
        assert not third.done()
        bus.notify("b", 1)
        assert await third is True


async def test_everybody_looks_up_when_the_server_stops(bus: LocalBus, clock: Clock) -> None:
    with bus.watch("a") as one, bus.watch("b") as two:
        waiting = [asyncio.create_task(one.wait_past(0, 60)), asyncio.create_task(two.wait_past(0, 60))]
        await clock.advance(1)
        bus.wake_all()
        assert await asyncio.gather(*waiting) == [False, False]


async def test_nothing_is_left_of_a_listener_that_went(bus: LocalBus, clock: Clock) -> None:
    with bus.watch("a") as one:
        with bus.watch("a") as two:
            waiting = asyncio.create_task(two.wait_past(0, 60))
            await clock.advance(1)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        bus.notify("a", 1)
        assert await one.wait_past(0, 60) is True
    assert bus.listeners == {}
    assert clock.pending == 0


async def test_a_listener_that_fails_is_forgotten_too(bus: LocalBus) -> None:
    with pytest.raises(ZeroDivisionError), bus.watch("a"):
        raise ZeroDivisionError
    assert bus.listeners == {}


async def test_a_notice_without_listeners_is_kept_nowhere(bus: LocalBus) -> None:
    bus.notify("a", 1)
    bus.wake_all()
    assert bus.listeners == {}


async def test_a_waiter_ahead_of_the_store_is_woken_and_waits_for_later_notices(bus: LocalBus) -> None:
    with bus.watch("a") as watch:
        bus.notify("a", 5)
        waiting = asyncio.create_task(watch.wait_past(5, 60))
        await asyncio.sleep(0)
        bus.observe("a", 3)
        assert await waiting is False
        waiting = asyncio.create_task(watch.wait_past(3, 60))
        await asyncio.sleep(0)
        assert not waiting.done(), "what was announced before counts no more"
        bus.observe("a", 4)
        assert await waiting is True
