"""How much one caller may have going on, and how often it may ask."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clocks import SettableClock

from dragoman import Agent, User
from dragoman.engine import quota as quota_module
from dragoman.engine.call import CallContext
from dragoman.engine.quota import (
    SMALL_REQUEST_BYTES,
    CallerCounter,
    Lease,
    MemoryQuota,
    Quota,
    RateLimiter,
    caller_of,
)
from dragoman.engine.settings import EngineSettings
from dragoman.model.error import InvalidParams, Overloaded
from dragoman.model.operation import SubscribeToTaskRequest
from dragoman.model.state import State
from dragoman.stores.memory import MemoryStore
from dragoman.testing import Clock

from .conftest import Gate

ALICE, BOB = "user alice", "user bob"
MESSAGE = "2f1b8a6e-3c4d-4e5f-8a9b-0c1d2e3f4a5b"


def limited(**settings: int) -> EngineSettings:
    return EngineSettings(drain=0, **settings)


def begin(engine: Any, caller: str, *args: Any, **options: Any) -> Any:
    """Send a message for a caller and do not wait for its end."""
    return engine.service.send(CallContext(), engine.request(*args, wait=False, **options), caller)


def test_a_user_and_a_stranger_of_the_same_name_are_two_callers() -> None:
    assert caller_of(User("10.0.0.1")) != caller_of(None, "10.0.0.1")
    assert caller_of(User("a"), "10.0.0.1") == caller_of(User("a"), "10.0.0.2")
    assert caller_of(None) == caller_of(None, "")
    assert caller_of(None)


# Memory

LARGE = SMALL_REQUEST_BYTES + 1


def test_memory_is_counted_for_its_caller_and_for_all() -> None:
    memory = MemoryQuota(10 * LARGE, 2 * LARGE)
    lease = Lease(memory, ALICE)
    lease.resize(LARGE)
    Lease(memory, BOB).resize(LARGE)
    lease.resize(2 * LARGE)
    assert (memory.used, memory.callers) == (3 * LARGE, {ALICE: 2 * LARGE, BOB: LARGE})
    with pytest.raises(Overloaded, match="your requests") as caught:
        lease.resize(2 * LARGE + 1)
    assert caught.value.metadata == {"limit": "caller_memory", "retryAfter": "1"}
    assert memory.callers[ALICE] == 2 * LARGE
    lease.release()
    assert (memory.used, memory.callers) == (LARGE, {BOB: LARGE})


def test_the_last_quarter_of_the_memory_is_for_small_requests() -> None:
    memory = MemoryQuota(4 * LARGE)
    for _ in range(3):
        Lease(memory, ALICE).resize(LARGE)
    large, small = Lease(memory, BOB), Lease(memory, BOB)
    with pytest.raises(Overloaded, match="the memory for requests is full") as caught:
        large.resize(LARGE)
    assert caught.value.metadata == {"limit": "memory", "retryAfter": "1"}
    small.resize(SMALL_REQUEST_BYTES)
    with pytest.raises(Overloaded):
        small.resize(LARGE)
    with pytest.raises(Overloaded):
        Lease(memory, BOB).resize(2)


def test_memory_is_free_with_its_last_holder() -> None:
    memory = MemoryQuota(100)
    lease = Lease(memory, ALICE)
    lease.resize(60)
    lease.hold()
    lease.release()
    assert memory.used == 60
    lease.release()
    assert (memory.used, memory.callers) == (0, {})


def test_an_answer_is_counted_where_it_is_larger_than_its_request() -> None:
    memory = MemoryQuota(100)
    lease = Lease(memory, ALICE)
    lease.resize(40)
    with lease.covering(30):
        assert memory.used == 40
    with lease.covering(70):
        assert memory.used == 70
    assert memory.used == 40
    with pytest.raises(Overloaded), lease.covering(120):
        pytest.fail("there is no room")
    with lease.covering(120, force=True):
        assert memory.used == 120
    assert memory.used == 40


async def test_the_memory_of_a_message_is_held_until_its_run_is_over(start: Any) -> None:
    gate, memory = Gate(), MemoryQuota(1000)
    engine = await start(gate.run)
    task = None
    for size, context in ((10, "a"), (20, "a"), (30, "b")):  # the second waits for the first
        lease = Lease(memory, ALICE)
        lease.resize(size)
        answer = await engine.service.send(
            CallContext(), engine.request("go", context=context, wait=False), ALICE, lease
        )
        task = task or answer.result
        lease.release()  # the request has been answered
    lease = Lease(memory, ALICE)
    lease.resize(40)
    await engine.service.send(CallContext(), engine.request("more", task=task, wait=False), ALICE, lease)
    lease.release()
    assert memory.used == 100
    gate.open.set()
    await engine.idle()
    assert memory.used == 0


async def test_a_message_that_is_refused_or_repeated_holds_no_memory(start: Any) -> None:
    gate, memory = Gate(), MemoryQuota(1000)
    engine = await start(gate.run, settings=limited(caller_tasks=1))

    async def send(message_id: str) -> None:
        lease = Lease(memory, ALICE)
        lease.resize(10)
        try:
            request = engine.request("go", message_id=message_id, wait=False)
            await engine.service.send(CallContext(), request, ALICE, lease)
        finally:
            lease.release()

    await send(MESSAGE)
    assert memory.used == 10
    with pytest.raises(Overloaded):
        await send("2f1b8a6e-3c4d-4e5f-8a9b-0c1d2e3f4a5c")
    assert memory.used == 10
    gate.open.set()
    await engine.idle()
    await send(MESSAGE)
    assert memory.used == 0


# Tasks


async def test_a_caller_at_its_limit_is_refused_with_a_time_to_retry_and_others_go_on(start: Any) -> None:
    gate = Gate()
    engine = await start(gate.run, settings=limited(caller_tasks=2))
    first = (await begin(engine, ALICE)).result
    await begin(engine, ALICE)
    with pytest.raises(Overloaded, match="you have 2 tasks at work") as caught:
        await begin(engine, ALICE)
    assert caught.value.metadata == {"limit": "caller_tasks", "retryAfter": "1"}
    assert (await begin(engine, BOB)).result.state in (State.SUBMITTED, State.WORKING)
    await engine.cancel(first)
    await _until_free(engine, ALICE, 1)
    await begin(engine, ALICE)
    gate.open.set()
    await engine.idle()
    assert engine.service._quota.tasks.counts == {}


async def _until_free(engine: Any, caller: str, count: int) -> None:
    async with asyncio.timeout(10):
        while engine.service._quota.tasks.counts.get(caller, 0) > count:  # noqa: ASYNC110
            await asyncio.sleep(0)


async def test_many_who_ask_at_the_same_time_get_no_more_than_the_limit(start: Any) -> None:
    gate = Gate()
    engine = await start(gate.run, settings=limited(caller_tasks=5))
    answers = await asyncio.gather(*(begin(engine, ALICE) for _ in range(50)), return_exceptions=True)
    assert sum(isinstance(answer, Overloaded) for answer in answers) == 45
    gate.open.set()
    await engine.idle()
    assert engine.service._quota.tasks.counts == {}


async def test_many_who_answer_at_the_same_time_get_no_more_than_the_limit(start: Any) -> None:
    gate = Gate()
    engine = await start(gate.run, settings=limited(caller_tasks=3))
    tasks = [await engine.send("ask") for _ in range(10)]
    await engine.idle()
    answers = await asyncio.gather(*(begin(engine, ALICE, task=task) for task in tasks), return_exceptions=True)
    assert sum(isinstance(answer, Overloaded) for answer in answers) == 7
    gate.open.set()
    await engine.idle()
    assert engine.service._quota.tasks.counts == {}


async def test_words_for_a_task_at_work_are_taken_at_the_limit_too(start: Any) -> None:
    gate = Gate()
    engine = await start(gate.run, settings=limited(caller_tasks=1, max_tasks=1))
    task = (await begin(engine, ALICE)).result
    assert (await begin(engine, ALICE, "more", task=task)).result.id == task.id
    assert engine.service._quota.tasks.counts == {ALICE: 1}
    gate.open.set()
    await engine.idle()


async def test_a_task_that_waits_for_its_caller_holds_no_place(start: Any) -> None:
    engine = await start(Gate().run, settings=limited(caller_tasks=1))
    for _ in range(3):
        answer = await engine.service.send(CallContext(), engine.request("ask"), ALICE)
        assert answer.result.state is State.INPUT_REQUIRED
        await engine.idle()
    assert engine.service._quota.tasks.counts == {}


async def test_a_repeated_message_holds_no_second_place(start: Any) -> None:
    gate = Gate()
    engine = await start(gate.run, settings=limited(caller_tasks=2))
    first = (await begin(engine, ALICE, message_id=MESSAGE)).result
    again = await begin(engine, ALICE, message_id=MESSAGE)
    assert (again.result.id, again.repeat) == (first.id, True)
    assert engine.service._quota.tasks.counts == {ALICE: 1}
    gate.open.set()
    await engine.idle()


async def test_a_message_that_is_refused_holds_no_place(start: Any) -> None:
    engine = await start(Gate().run, settings=limited(caller_tasks=1))
    for _ in range(2):
        with pytest.raises(InvalidParams):
            await begin(engine, ALICE, if_generation_match=1)
    assert engine.service._quota.tasks.counts == {}


async def test_nothing_is_held_against_this_process_itself(start: Any) -> None:
    gate = Gate()
    engine = await start(gate.run, settings=limited(caller_tasks=1))
    for _ in range(3):
        await begin(engine, "")
    gate.open.set()
    await engine.idle()


async def test_runs_that_begin_again_after_a_crash_count_for_their_users(start: Any) -> None:
    gate, store = Gate(), MemoryStore()
    agent = Agent("test", run=gate.run, restart=True)
    engine = await start(agent, store=store, settings=limited())
    request = engine.request(wait=False)
    await engine.service.send(CallContext(user=User("alice")), request, ALICE)
    later = await start(agent, store=store, settings=limited(caller_tasks=1))
    assert later.service._quota.tasks.counts == {ALICE: 1}
    with pytest.raises(Overloaded):
        await begin(later, ALICE)
    gate.open.set()
    await later.idle()
    assert later.service._quota.tasks.counts == {}
    await engine.idle()


# Streams


async def test_streams_of_one_caller_are_limited_however_many_are_asked_for_at_once(start: Any) -> None:
    gate = Gate()
    engine = await start(gate.run, settings=limited(caller_streams=2, max_streams=4))
    task = await engine.send(wait=False)

    async def opened(caller: str) -> Any:
        stream = await engine.service.subscribe(CallContext(), SubscribeToTaskRequest(task.id), None, caller)
        await anext(stream.batches)
        return stream

    # All of them hear that there is room before any is open.
    answers = await asyncio.gather(*(opened(ALICE) for _ in range(5)), return_exceptions=True)
    open_ones = [answer for answer in answers if not isinstance(answer, Overloaded)]
    assert len(open_ones) == 2
    refused = [answer for answer in answers if isinstance(answer, Overloaded)]
    assert {error.metadata["limit"] for error in refused} == {"caller_streams"}
    open_ones += [await opened(BOB), await opened("user carol")]
    with pytest.raises(Overloaded, match="4 streams are open") as caught:
        await opened("user dave")
    assert caught.value.metadata == {"limit": "streams", "retryAfter": "1"}
    for stream in open_ones:
        async with aclosing(stream.batches):
            pass
    assert engine.service._quota.streams.counts == {}
    async with aclosing((await opened(ALICE)).batches):
        pass
    gate.open.set()
    await engine.idle()


def test_a_tally_never_goes_below_nothing_and_forgets_who_has_nothing() -> None:
    tally = CallerCounter("x", "things", 2)
    tally.remove(ALICE)
    tally.add(ALICE)
    tally.add(ALICE)
    with pytest.raises(Overloaded):
        tally.add(ALICE)
    tally.remove(ALICE)
    tally.add(ALICE)
    tally.remove(ALICE)
    tally.remove(ALICE)
    assert tally.counts == {}


def test_no_limit_counts_nothing() -> None:
    quota = Quota(EngineSettings(caller_tasks=0))
    for _ in range(3):
        quota.reserve(ALICE)
        run = object()
        quota.start_run(run, ALICE)
        quota.end_run(run)
    assert quota.tasks.counts == {}


# The rate


def refused(rate: RateLimiter, caller: str = ALICE) -> int | None:
    """Ask once: None when it was let through, else after how many seconds to come back."""
    try:
        rate.take(caller)
    except Overloaded as error:
        assert error.metadata["limit"] == "rate"
        return int(error.metadata["retryAfter"])
    return None


def test_a_burst_is_let_through_and_then_so_many_a_second(clock: Clock) -> None:
    rate = RateLimiter(2, 5, clock)
    assert [refused(rate) for _ in range(5)] == [None] * 5
    assert refused(rate) == 1
    clock.move(0.49)
    assert refused(rate) == 1
    clock.move(0.01)
    assert [refused(rate), refused(rate)] == [None, 1]
    clock.move(100)
    assert [refused(rate) for _ in range(6)] == [None] * 5 + [1]


def test_a_caller_that_waits_for_the_time_to_retry_is_let_through(clock: Clock) -> None:
    rate = RateLimiter(0.1, 1, clock)
    assert refused(rate) is None
    wait = refused(rate)
    assert wait == 10
    clock.move(wait)
    assert refused(rate) is None


def test_the_burst_is_that_of_one_second_unless_it_is_set(clock: Clock) -> None:
    assert [refused(RateLimiter(0.5, 0, clock)) for _ in range(1)] == [None]
    rate = RateLimiter(7, 0, clock)
    assert [refused(rate) for _ in range(8)] == [None] * 7 + [1]


def test_requests_that_are_refused_do_not_make_it_longer(clock: Clock) -> None:
    rate = RateLimiter(1, 1, clock)
    rate.take(ALICE)
    assert {refused(rate) for _ in range(100)} == {1}
    clock.move(1)
    assert refused(rate) is None


def test_callers_who_rest_are_forgotten(clock: Clock) -> None:
    rate = RateLimiter(10, 10, clock)
    for number in range(1000):
        rate.take(f"address {number}")
    assert len(rate) == 1000
    clock.move(5)
    rate.take(ALICE)
    assert len(rate) == 1


def test_there_is_room_for_so_many_callers_and_no_more(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota_module, "MAX_CALLERS", 100)
    rate = RateLimiter(0.01, 1, clock)
    for number in range(1000):
        rate.take(f"address {number}")
    assert len(rate) == 100
    assert refused(rate, "address 999")


def test_a_clock_that_is_set_back_locks_nobody_out() -> None:
    clock = SettableClock()
    rate = RateLimiter(1, 2, clock)
    for _ in range(2):
        rate.take(ALICE)
    clock.jump(-3600)
    assert [refused(rate), refused(rate), refused(rate)] == [None, None, 1]
    for number in range(10):
        rate.take(f"address {number}")
    clock.jump(10)
    rate.take(BOB)
    assert len(rate) == 1


@given(
    st.floats(0.1, 1000),
    st.integers(1, 50),
    st.lists(st.floats(0, 3), min_size=1, max_size=200),
)
def test_never_more_than_the_burst_and_the_rate_since_are_let_through(
    per_second: float, burst: int, pauses: list[float]
) -> None:
    clock = Clock()
    began = clock.now()
    rate = RateLimiter(per_second, burst, clock)
    let = 0
    for pause in pauses:
        clock.move(pause)
        let += refused(rate) is None
        # A millisecond, which is all the clock can tell, may be one more.
        assert let <= burst + per_second * (clock.now() - began + 1) / 1000
