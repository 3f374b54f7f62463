"""Threads for code that blocks."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from concurrent.futures import Future
from typing import Any

import pytest

from dragoman.engine.threads import Threads, in_thread

SECONDS = 10


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
        with pytest.raises(RuntimeError, match="let StopIteration out"):
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
    pool = Threads("test")
    names = set()
    for _ in range(20):
        names.add(pool.submit(lambda: threading.current_thread().name).result(SECONDS))
        while not pool._idle._value:  # it says so a moment after its result
            pass
    assert names == {"test-0"}


def test_there_are_never_more_threads_than_allowed_and_nothing_is_lost() -> None:
    pool = Threads("test", most=3)
    together, release = threading.Semaphore(0), threading.Event()

    def work(number: int) -> tuple[int, str]:
        together.release()
        release.wait(SECONDS)
        return number, threading.current_thread().name

    futures: list[Future[Any]] = [pool.submit(work, number) for number in range(30)]
    for _ in range(3):
        assert together.acquire(timeout=SECONDS)
    assert not together.acquire(blocking=False)
    release.set()
    results = [future.result(SECONDS) for future in futures]
    assert [number for number, _ in results] == list(range(30))
    assert len({name for _, name in results}) == 3


def test_a_call_that_is_given_up_before_it_began_never_begins() -> None:
    pool, began, release = Threads("test", most=1), [], threading.Event()
    first = pool.submit(release.wait, SECONDS)
    second = pool.submit(began.append, 1)
    assert second.cancel()
    release.set()
    first.result(SECONDS)
    pool.submit(int).result(SECONDS)
    assert began == []


def test_the_threads_end_with_the_process() -> None:
    pool = Threads("test")
    assert pool.submit(lambda: threading.current_thread().daemon).result(SECONDS) is True
