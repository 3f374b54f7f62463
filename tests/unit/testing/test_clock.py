"""The clock that tests move by hand."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.clock import wait
from dragoman.testing import Clock


def test_time_stands_still_until_it_is_moved() -> None:
    clock = Clock(start_ms=5000)
    assert clock.now() == clock.now() == 5000
    clock.move(1.5)
    assert clock.now() == 6500


def test_a_timer_is_called_once_and_at_its_own_time() -> None:
    clock, called = Clock(start_ms=0), []
    clock.call_later(2, lambda: called.append(clock.now()))
    clock.move(1.999)
    assert called == []
    clock.move(10)
    clock.move(10)
    assert called == [2000]


def test_timers_are_called_in_the_order_they_are_due_and_equal_ones_as_they_were_set() -> None:
    clock, called = Clock(start_ms=0), []
    for name, seconds in (("c", 3), ("a1", 1), ("b", 2), ("a2", 1)):
        clock.call_later(seconds, lambda name=name: called.append(name))
    clock.move(3)
    assert called == ["a1", "a2", "b", "c"]


def test_a_timer_that_was_cancelled_is_never_called() -> None:
    clock, called = Clock(), []
    timer = clock.call_later(1, lambda: called.append("no"))
    assert clock.pending == 1
    timer.cancel()
    timer.cancel()
    assert clock.pending == 0
    clock.move(2)
    assert called == []


def test_a_timer_set_by_a_timer_is_called_in_the_same_move() -> None:
    clock, called = Clock(start_ms=0), []

    def tick() -> None:
        called.append(clock.now())
        clock.call_later(1, tick)

    clock.call_later(1, tick)
    clock.move(3.5)
    assert called == [1000, 2000, 3000]
    assert clock.now() == 3500
    assert clock.pending == 1


def test_time_does_not_go_back() -> None:
    clock = Clock(start_ms=0)
    with pytest.raises(ValueError, match="does not go back"):
        clock.move(-1)
    assert clock.now() == 0


def test_a_timer_that_is_already_due_waits_for_the_next_move() -> None:
    clock, called = Clock(), []
    clock.call_later(-5, lambda: called.append("due"))
    assert called == []
    clock.move(0)
    assert called == ["due"]


@given(st.integers(1, 2000), st.integers(1, 50))
def test_many_small_moves_reach_what_one_large_move_reaches(step_ms: int, steps: int) -> None:
    clock, called = Clock(start_ms=0), []
    clock.call_later(step_ms * steps / 1000, lambda: called.append(True))
    for _ in range(steps):
        assert not called
        clock.move(step_ms / 1000)
    assert called == [True]
    assert clock.now() == step_ms * steps


async def test_advancing_lets_tasks_run_between_the_timers() -> None:
    clock, seen = Clock(start_ms=0), []

    async def sleeper() -> None:
        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for _ in range(3):
            await wait(clock, never, 1)
            seen.append(clock.now())

    task = asyncio.create_task(sleeper())
    # The task has not even started: its first timer must still be set at the time it starts.
    await clock.advance(2.5)
    assert seen == [1000, 2000]
    assert clock.now() == 2500
    await clock.advance(0.5)
    assert seen == [1000, 2000, 3000]
    await task


async def test_advancing_back_is_refused() -> None:
    with pytest.raises(ValueError, match="does not go back"):
        await Clock().advance(-0.1)


async def test_an_exception_of_a_timer_reaches_the_test() -> None:
    clock = Clock(start_ms=0)
    clock.call_later(1, lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        await clock.advance(2)
    assert clock.now() == 1000
