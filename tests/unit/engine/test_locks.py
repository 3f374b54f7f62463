"""One at a time, per key."""

from __future__ import annotations

import asyncio

import pytest

from dragoman.engine.locks import KeyedLocks

from .conftest import turns


class Visits:
    """Who is inside, and who was, under the locks of a test."""

    def __init__(self) -> None:
        self.locks = KeyedLocks()
        self.inside: list[str] = []
        self.order: list[str] = []

    async def visit(self, key: str, name: str, leave: asyncio.Event) -> None:
        async with self.locks.hold(key):
            self.inside.append(name)
            self.order.append(name)
            await leave.wait()
            self.inside.remove(name)

    def start(self, key: str, name: str, leave: asyncio.Event) -> asyncio.Task[None]:
        return asyncio.create_task(self.visit(key, name, leave))


def kept(locks: KeyedLocks) -> int:
    return len(locks._locks)


async def test_a_lock_is_held_by_one_at_a_time_in_the_order_of_arrival() -> None:
    visits = Visits()
    leave = [asyncio.Event() for _ in range(3)]
    tasks = [visits.start("k", str(place), leave[place]) for place in range(3)]
    for place in range(3):
        await turns()
        assert visits.inside == [str(place)]
        leave[place].set()
    await asyncio.gather(*tasks)
    assert visits.order == ["0", "1", "2"]


async def test_different_keys_do_not_wait_for_each_other() -> None:
    visits, leave = Visits(), asyncio.Event()
    tasks = [visits.start(key, key, leave) for key in ("a", "b")]
    await turns()
    assert sorted(visits.inside) == ["a", "b"]
    leave.set()
    await asyncio.gather(*tasks)


async def test_no_lock_is_kept_for_a_key_that_nobody_holds_or_waits_for() -> None:
    visits, leave = Visits(), asyncio.Event()
    tasks = [visits.start(key, key, leave) for key in ("a", "a", "b")]
    await turns()
    assert kept(visits.locks) == 2
    leave.set()
    await asyncio.gather(*tasks)
    assert kept(visits.locks) == 0


async def test_a_canceled_waiter_holds_nobody_up() -> None:
    visits, leave = Visits(), asyncio.Event()
    first, second, third = (visits.start("k", name, leave) for name in ("first", "second", "third"))
    await turns()
    second.cancel()
    await turns()
    assert visits.inside == ["first"]
    leave.set()
    await asyncio.gather(first, third)
    with pytest.raises(asyncio.CancelledError):
        await second
    assert visits.order == ["first", "third"]
    assert kept(visits.locks) == 0


async def test_an_error_inside_lets_the_next_one_in() -> None:
    locks = KeyedLocks()
    with pytest.raises(ZeroDivisionError):
        async with locks.hold("k"):
            raise ZeroDivisionError
    async with asyncio.timeout(10), locks.hold("k"):
        assert kept(locks) == 1
    assert kept(locks) == 0


async def test_a_waiter_that_arrives_while_the_lock_is_released_waits_its_turn() -> None:
    visits = Visits()
    gates = [asyncio.Event() for _ in range(3)]
    first = visits.start("k", "first", gates[0])
    second = visits.start("k", "second", gates[1])
    await turns()
    gates[0].set()
    third = visits.start("k", "third", gates[2])
    await turns()
    assert visits.inside == ["second"]
    gates[1].set()
    gates[2].set()
    await asyncio.gather(first, second, third)
    assert visits.order == ["first", "second", "third"]
