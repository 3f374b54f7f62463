"""Calling code that blocks."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from concurrent.futures import Executor, Future
from functools import cache, partial
from itertools import count
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

MOST = 64


class Threads(Executor):
    """A pool of threads that end with the process: code that blocks for ever does not keep a stopped server alive."""

    def __init__(self, name: str, most: int = MOST) -> None:
        self._name = name
        self._most = most
        self._numbers = count()
        self._work: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._growing = threading.Lock()
        self._threads = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Have it called by a thread that is free, else by a new one, else by the first that gets free."""
        future: Future[Any] = Future()
        self._work.put((future, partial(fn, *args, **kwargs)))
        if not self._idle.acquire(blocking=False):
            self._grow()
        return future

    def _grow(self) -> None:
        with self._growing:
            if self._threads < self._most:
                self._threads += 1
                threading.Thread(target=self._serve, name=f"{self._name}-{next(self._numbers)}", daemon=True).start()

    def _serve(self) -> None:
        while True:
            future, call = self._work.get()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:  # noqa: BLE001 - it belongs to whoever waits
                    future.set_exception(error)
            del future, call  # a thread that waits keeps nothing alive
            self._idle.release()


@cache
def _helpers() -> Threads:
    return Threads("dragoman-helper")


async def in_thread(fn: Callable[..., Any], *args: Any, pool: Executor | None = None) -> Any:
    """Call `fn` in a thread, with the caller's context variables."""
    call = partial(contextvars.copy_context().run, _call, fn, *args)
    return await asyncio.get_running_loop().run_in_executor(pool or _helpers(), call)


def _call(fn: Callable[..., Any], *args: Any) -> Any:
    try:
        return fn(*args)
    except StopIteration as error:
        # A future cannot carry it, and whoever waits for that future would wait for ever.
        raise RuntimeError(f"{getattr(fn, '__name__', 'a function')} let StopIteration out") from error
