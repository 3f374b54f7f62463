"""FairThreadPool for code that blocks."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any

import pytest

from dragoman.engine.execute.containment import RunOwner, set_run_owner
from dragoman.engine.execute.threads import WARN_SECONDS, FairThreadPool, LoopThreads, in_thread
from dragoman.engine.quota import caller_of
from dragoman.model.user import User

SECONDS = 10


def _of(caller: str, fn: Callable[..., Any], *args: Any, agent: str = "agent") -> Any:
    """Call something as code of a run for that caller does."""
    context = copy_context()
    context.run(set_run_owner, RunOwner(agent, caller_of(User(caller)) if caller else ""))
    return context.run(fn, *args)


class Blocked:
    """Calls that block until they are released, and the order in which they began."""

    def __init__(self, pool: FairThreadPool) -> None:
        self.pool = pool
        self.began: SimpleQueue[str] = SimpleQueue()
        self.release = threading.Semaphore(0)

    def submit(self, caller: str, agent: str = "agent") -> Future[Any]:
        return _of(caller, self.pool.submit, self._block, f"{agent} {caller}".strip(), agent=agent)

    def _block(self, who: str) -> None:
        self.began.put(who)
        assert self.release.acquire(timeout=SECONDS)

    def next(self) -> str:
        return self.began.get(timeout=SECONDS)


@pytest.fixture
def blocked() -> Iterator[Callable[..., Blocked]]:
    made: list[Blocked] = []

    def make(most: int, **options: Any) -> Blocked:
        made.append(Blocked(FairThreadPool("test", most, **options)))
        return made[-1]

    yield make
    for each in made:
        each.release.release(1000)


async def test_a_call_gives_its_result_or_its_error() -> None:
    assert await in_thread(lambda a, b: a + b, 1, 2) == 3
    with pytest.raises(ZeroDivisionError):
        await in_thread(lambda: 1 / 0)


async def test_what_is_no_exception_comes_out_too() -> None:
    class Odd(BaseException):
        pass

    def odd() -> None:
        raise Odd

    with pytest.raises(Odd):
        await in_thread(odd)


async def test_stop_iteration_does_not_leave_anybody_waiting() -> None:
    async with asyncio.timeout(SECONDS):
        with pytest.raises(RuntimeError, match="raised StopIteration"):
            await in_thread(next, iter(()))


async def test_the_callers_context_variables_are_there_and_stay_as_they_are() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    variable.set("caller's")

    def look() -> str:
        seen = variable.get()
        variable.set("thread's")
        return seen

    assert await in_thread(look) == "caller's"
    assert variable.get() == "caller's"


def test_a_thread_that_is_free_is_used_again() -> None:
    pool = FairThreadPool("test")
    names = set()
    for _ in range(20):
        names.add(pool.submit(lambda: threading.current_thread().name).result(SECONDS))
        while not pool._idle:  # it says so a moment after its result
            pass
    assert names == {"test-0"}


def test_there_are_never_more_threads_than_allowed_and_nothing_is_lost() -> None:
    pool = FairThreadPool("test", max_threads=3)
    together, release = threading.Semaphore(0), threading.Event()

    def work(number: int) -> tuple[int, str]:
        together.release()
        release.wait(SECONDS)
        return number, threading.current_thread().name

    futures: list[Future[Any]] = [_of("", pool.submit, work, number) for number in range(30)]
    for _ in range(3):
        assert together.acquire(timeout=SECONDS)
    assert not together.acquire(blocking=False)
    release.set()
    results = [future.result(SECONDS) for future in futures]
    assert [number for number, _ in results] == list(range(30))
    assert len({name for _, name in results}) == 3


def test_a_call_that_is_given_up_before_it_began_never_begins() -> None:
    pool, began, release = FairThreadPool("test", max_threads=1), [], threading.Event()
    first = _of("alice", pool.submit, release.wait, SECONDS)
    second = _of("alice", pool.submit, began.append, 1)
    assert second.cancel()
    release.set()
    first.result(SECONDS)
    pool.submit(int).result(SECONDS)
    assert began == []


def test_the_threads_end_with_the_process() -> None:
    pool = FairThreadPool("test")
    assert pool.submit(lambda: threading.current_thread().daemon).result(SECONDS) is True


# -- shares ------------------------------------------------------------------------------------------------------------


def test_a_caller_whose_calls_block_leaves_room_for_others(blocked: Any) -> None:
    crowd = blocked(64)
    for _ in range(200):
        crowd.submit("alice")
    assert [crowd.next() for _ in range(32)] == ["agent alice"] * 32
    assert crowd.pool.waiting == 168
    assert _of("bob", crowd.pool.submit, lambda: "at once").result(SECONDS) == "at once"


def test_callers_who_all_block_leave_room_for_the_next(blocked: Any) -> None:
    crowd = blocked(64)
    for caller in ("one", "two", "three", "four", "five", "six"):
        for _ in range(200):
            crowd.submit(caller)
    assert _of("seven", crowd.pool.submit, lambda: "at once").result(SECONDS) == "at once"


def test_callers_who_wait_take_turns(blocked: Any) -> None:
    crowd = blocked(1)
    for caller in ("alice", "alice", "alice", "alice", "bob", "carol"):
        crowd.submit(caller)
    assert crowd.next() == "agent alice"
    order = []
    for _ in range(5):
        crowd.release.release()
        order.append(crowd.next().removeprefix("agent "))
    assert order == ["alice", "bob", "carol", "alice", "alice"]


def test_agents_take_turns_however_many_callers_they_have(blocked: Any) -> None:
    crowd = blocked(1)
    crowd.submit("first")
    for number in range(5):
        crowd.submit(f"caller {number}", agent="busy")
    crowd.submit("alice", agent="quiet")
    assert crowd.next() == "agent first"
    order = []
    for _ in range(3):
        crowd.release.release()
        order.append(crowd.next())
    assert order == ["busy caller 0", "quiet alice", "busy caller 1"]


def test_an_agent_whose_calls_block_leaves_room_for_other_agents(blocked: Any) -> None:
    crowd = blocked(16)
    crowd.pool.resize(16, shared=True)
    for number in range(100):
        crowd.submit(f"caller {number}", agent="busy")
    for _ in range(12):
        crowd.next()
    assert crowd.pool.waiting == 88
    assert _of("alice", crowd.pool.submit, lambda: "at once", agent="quiet").result(SECONDS) == "at once"


def test_a_thread_that_gets_free_lets_all_begin_who_may_now(blocked: Any) -> None:
    crowd = blocked(8)
    for caller in ("alice", "bob"):
        for _ in range(20):
            crowd.submit(caller)
    # Half of them, and half of what was left.
    assert sorted(crowd.next() for _ in range(6)) == ["agent alice"] * 4 + ["agent bob"] * 2
    crowd.release.release(40)
    assert sorted(crowd.next() for _ in range(34)) == ["agent alice"] * 16 + ["agent bob"] * 18
    assert crowd.pool.waiting == 0


def test_this_process_itself_is_not_limited_and_the_servers_own_work_never_waits(blocked: Any) -> None:
    crowd = blocked(4)
    for _ in range(5):
        crowd.submit("")
    assert [crowd.next() for _ in range(4)] == ["agent"] * 4
    assert crowd.pool.waiting == 1
    assert crowd.pool.submit(lambda: "no run").result(SECONDS) == "no run"


def test_more_threads_can_be_allowed_while_calls_wait(blocked: Any) -> None:
    crowd = blocked(2)
    for _ in range(4):
        crowd.submit("alice")
    crowd.next()
    assert crowd.pool.waiting == 3
    crowd.pool.resize(8, shared=False)
    assert [crowd.next() for _ in range(3)] == ["agent alice"] * 3


# -- leaving the queue -------------------------------------------------------------------------------------------------


async def test_a_call_that_is_cancelled_while_it_waits_leaves_nothing_behind(blocked: Any) -> None:
    crowd = blocked(2)

    class Message:
        pass

    async def call(message: Message) -> None:
        await in_thread(id, message, pool=crowd.pool)

    crowd.submit("alice")
    crowd.next()
    message = Message()
    seen = weakref.ref(message)
    waiting = _of("alice", asyncio.create_task, call(message))
    del message
    await asyncio.sleep(0)
    assert crowd.pool.waiting == 1
    waiting.cancel()
    await asyncio.wait([waiting])
    assert crowd.pool.waiting == 0
    del waiting
    gc.collect()
    assert seen() is None


# -- words to the owner ------------------------------------------------------------------------------------------------


async def test_a_warning_names_the_skill_that_fills_the_pool_once_a_minute(blocked: Any, caplog: Any) -> None:
    time = 1000.0
    crowd = blocked(4, now=lambda: time)

    def call(name: str) -> asyncio.Future[Any]:
        return _of("alice", asyncio.ensure_future, in_thread(crowd._block, name, pool=crowd.pool, name=name))

    calls = [call("slow") for _ in range(4)]
    await asyncio.sleep(0)
    (warning,) = caplog.messages
    assert warning.startswith("calls wait for a thread: `slow` of agent agent holds 2 of 4")
    time += WARN_SECONDS - 1
    calls.append(call("slow"))
    await asyncio.sleep(0)
    assert len(caplog.messages) == 1
    time += 1
    calls.append(call("slow"))
    await asyncio.sleep(0)
    assert len(caplog.messages) == 2
    crowd.release.release(len(calls))
    await asyncio.gather(*calls)


# -- event loops -------------------------------------------------------------------------------------------------------


async def test_what_a_loop_calls_in_threads_is_shared_as_well(blocked: Any) -> None:
    crowd = blocked(4)
    loop = asyncio.get_running_loop()
    loop.set_default_executor(LoopThreads(crowd.pool))
    calls = [_of("alice", asyncio.ensure_future, asyncio.to_thread(crowd._block, "alice")) for _ in range(10)]
    await asyncio.sleep(0)
    assert crowd.pool.waiting == 8
    assert await _of("bob", asyncio.ensure_future, asyncio.to_thread(lambda: threading.current_thread().daemon))
    for call in calls[2:]:
        call.cancel()
    await asyncio.wait(calls[2:])
    assert crowd.pool.waiting == 0
    crowd.release.release(2)
    await asyncio.wait(calls)


def test_a_call_that_outlives_its_loop_harms_nobody(blocked: Any) -> None:
    crowd = blocked(1)

    async def begin() -> None:
        call = asyncio.ensure_future(in_thread(crowd._block, "first", pool=crowd.pool))
        await asyncio.sleep(0)
        assert crowd.next() == "first"
        call.cancel()
        await asyncio.wait([call])

    asyncio.run(begin())
    crowd.release.release()
    assert crowd.pool.submit(lambda: "next").result(SECONDS) == "next"
