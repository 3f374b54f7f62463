"""Long work takes turns, and leaves the loop to others in between."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise

import pytest

from dragoman.transports.limits import CpuThrottle


def work(seconds: float = 0.01) -> None:
    """Hold up the loop."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


async def test_a_single_caller_does_not_wait() -> None:
    turn = CpuThrottle().wait_for_turn()
    with pytest.raises(StopIteration):
        turn.send(None)


async def test_between_two_turns_the_loop_belongs_to_others_for_as_long_as_the_first_took() -> None:
    throttle = CpuThrottle()
    spans: list[tuple[float, float]] = []

    async def piece() -> None:
        await throttle.wait_for_turn()
        began = time.monotonic()
        work()
        spans.append((began, time.monotonic()))

    async with asyncio.timeout(10):
        await asyncio.gather(*(piece() for _ in range(5)))
    assert len(spans) == 5
    for (began, ended), (following, _) in pairwise(spans):
        assert following - ended >= (ended - began) * 0.9


async def test_turns_are_given_in_order_and_a_cancelled_waiter_is_skipped() -> None:
    throttle = CpuThrottle()
    order: list[int] = []

    async def piece(number: int) -> None:
        await throttle.wait_for_turn()
        order.append(number)

    async with asyncio.timeout(10):
        await throttle.wait_for_turn()
        tasks = [asyncio.create_task(piece(number)) for number in range(5)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.wait(tasks)
    assert order == [0, 2, 3, 4]


async def test_a_turn_of_a_cancelled_waiter_goes_to_the_next() -> None:
    throttle = CpuThrottle()
    await throttle.wait_for_turn()
    first, second = asyncio.create_task(throttle.wait_for_turn()), asyncio.create_task(throttle.wait_for_turn())
    await asyncio.sleep(0)
    throttle._next()  # its turn comes while it is being cancelled
    first.cancel()
    async with asyncio.timeout(10):
        await second
    assert first.cancelled()
