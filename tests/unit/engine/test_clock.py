"""Waiting with a time limit, on any clock."""

from __future__ import annotations

import asyncio
import time

import pytest

from dragoman.clock import SystemClock, wait
from dragoman.testing import Clock


@pytest.fixture
async def future() -> asyncio.Future[int]:
    return asyncio.get_running_loop().create_future()


async def test_a_future_that_is_done_is_not_waited_for(clock: Clock, future: asyncio.Future[int]) -> None:
    future.set_result(1)
    assert await wait(clock, future, 60) is True
    assert clock.pending == 0


async def test_waiting_ends_when_the_future_is_done_and_leaves_no_timer(
    clock: Clock, future: asyncio.Future[int]
) -> None:
    waiting = asyncio.create_task(wait(clock, future, 60))
    await clock.advance(30)
    assert clock.pending == 1
    future.set_result(1)
    assert await waiting is True
    assert clock.pending == 0


async def test_waiting_ends_when_the_time_is_up_and_leaves_the_future_alone(
    clock: Clock, future: asyncio.Future[int]
) -> None:
    waiting = asyncio.create_task(wait(clock, future, 60))
    await clock.advance(60)
    assert await waiting is False
    assert not future.done()
    future.set_result(7)
    assert await future == 7


async def test_a_future_that_failed_or_was_cancelled_is_done_as_well(clock: Clock) -> None:
    loop = asyncio.get_running_loop()
    failed, cancelled = loop.create_future(), loop.create_future()
    waiting = [asyncio.create_task(wait(clock, future, 60)) for future in (failed, cancelled)]
    await clock.advance(1)
    failed.set_exception(LookupError("kept for whoever asks"))
    cancelled.cancel()
    assert await asyncio.gather(*waiting) == [True, True]
    with pytest.raises(LookupError):
        await failed


async def test_a_canceled_wait_leaves_nothing_behind(clock: Clock, future: asyncio.Future[int]) -> None:
    waiting = asyncio.create_task(wait(clock, future, 60))
    await clock.advance(1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert clock.pending == 0
    assert not future.cancelled()


async def test_several_can_wait_for_one_future(clock: Clock, future: asyncio.Future[int]) -> None:
    short, long = (asyncio.create_task(wait(clock, future, seconds)) for seconds in (1, 60))
    await clock.advance(1)
    assert await short is False
    future.set_result(1)
    assert await long is True


async def test_the_system_clock_tells_the_time_in_milliseconds() -> None:
    before = time.time_ns() // 1_000_000
    now = SystemClock().now()
    assert before <= now <= time.time_ns() // 1_000_000


async def test_the_system_clock_calls_back_on_the_loop() -> None:
    called: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    never = SystemClock().call_later(0, lambda: called.set_exception(AssertionError("it was cancelled")))
    never.cancel()
    SystemClock().call_later(0, lambda: called.set_result(None))
    await called
