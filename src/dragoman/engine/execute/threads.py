"""Threads for code that blocks, shared fairly by callers and agents."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
import time
from collections import Counter, OrderedDict
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import cache, partial
from itertools import count
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from dragoman.engine.execute.containment import Work, current_work

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger("dragoman.engine")
MAX_THREADS = 128
# Of the threads that are free an agent may have three times as many: alone three quarters of all.
AGENT_SHARE = 3
# How often it is said that calls wait, in seconds.
WARN_SECONDS = 60.0


class _Call:
    """Something to call: `run` raises nothing, and says itself what came out."""

    __slots__ = ("dropped", "name", "run", "work")

    def __init__(self, run: Callable[[], None], name: str, work: Work | None) -> None:
        self.run = run
        self.name = name
        self.work = work
        self.dropped = False

    def drop(self) -> None:
        """Do not run it any more."""
        self.dropped = True


class FairThreadPool(Executor):
    """A pool of threads that end with the process: code that blocks for ever does not keep a stopped server alive.

    A caller may hold as many threads as are free, so that one alone has half of them and the next finds room at once,
    however long the first one's calls take. Those who wait take turns: agents first, and the callers of each. The
    same holds for agents where several share the pool, with three times as much. Work that is no run's, the server's
    own, never waits.
    """

    def __init__(self, name: str, max_threads: int = MAX_THREADS, *, now: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._numbers = count()
        self._ready: SimpleQueue[_Call] = SimpleQueue()
        self._lock = threading.Lock()
        self._now = now
        self._warn_at = 0.0
        self.max_threads = max_threads
        self.shared = False
        # All below is guarded by the lock.
        self._threads = 0
        self._idle = 0
        self._running: set[_Call] = set()
        self._by_caller: dict[str, int] = {}
        self._by_agent: dict[str, int] = {}
        self._waiting: OrderedDict[str, OrderedDict[str, OrderedDict[_Call, None]]] = OrderedDict()
        self._queued = 0

    def resize(self, max_threads: int, *, shared: bool) -> None:
        """Have that many threads from now on; `shared` says that several agents use them."""
        with self._lock:
            self.max_threads, self.shared = max_threads, shared
            begun = self._take_turns()
        for call in begun:
            self._hand_over(*call)

    # -- calls -----------------------------------------------------------------------------------------------------

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Have it called as soon as a thread is free for whoever calls this."""
        future = _Result()

        def run() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(fn(*args, **kwargs))
                except BaseException as error:  # noqa: BLE001 - it belongs to whoever waits
                    future.set_exception(error)

        call = self.start(run, _name_of(fn))
        future.on_cancel(partial(self.drop, call))
        return future

    def start(self, run: Callable[[], None], name: str) -> _Call:
        """Have `run`, which raises nothing, called by a thread: now, or when it is the current caller's turn."""
        work = current_work()
        call = _Call(run, name, work)
        with self._lock:
            if work is not None and not self._is_free_for(work):
                self._waiting.setdefault(work.agent, OrderedDict()).setdefault(work.caller, OrderedDict())[call] = None
                self._queued += 1
                warning = self._warning()
                grows = None
            else:
                warning = None
                grows = self._count(call)
        if grows is not None:
            self._hand_over(call, grows)
        elif warning is not None:
            logger.warning(*warning)
        return call

    def drop(self, call: _Call) -> None:
        """Forget a call that nobody waits for any more, unless it has begun."""
        call.drop()
        work = call.work
        with self._lock:
            callers = None if work is None else self._waiting.get(work.agent)
            calls = None if callers is None or work is None else callers.get(work.caller)
            if callers is not None and calls is not None and work is not None and call in calls:
                del calls[call]
                self._queued -= 1
                if not calls:
                    self._forget(work, callers)

    @property
    def waiting(self) -> int:
        """How many calls wait for a thread."""
        return self._queued

    # -- threads ---------------------------------------------------------------------------------------------------

    def _hand_over(self, call: _Call, grows: bool) -> None:
        self._ready.put(call)
        if grows:
            threading.Thread(target=self._serve, name=f"{self._name}-{next(self._numbers)}", daemon=True).start()

    def _serve(self) -> None:
        while True:
            call = self._ready.get()
            while True:
                if not call.dropped:
                    call.run()
                with self._lock:
                    self._discount(call)
                    del call  # a thread that waits keeps nothing alive
                    begun = self._take_turns() if self._waiting else []
                    if not begun:
                        if self._threads > self.max_threads:
                            self._threads -= 1
                            return
                        self._idle += 1
                        break
                    # The first is this thread's own, which was not idle.
                    call, grows = begun.pop(0)
                    if grows:
                        self._threads -= 1
                    else:
                        self._idle += 1
                for other in begun:
                    self._hand_over(*other)

    # -- whose turn it is; all of it under the lock ------------------------------------------------------------------

    def _is_free_for(self, work: Work) -> bool:
        free = self.max_threads - len(self._running)
        if free <= 0 or (self.shared and self._by_agent.get(work.agent, 0) >= free * AGENT_SHARE):
            return False
        # This process itself is trusted, and what it calls may be what others of its calls wait for.
        return not work.caller or self._by_caller.get(work.caller, 0) < free

    def _count(self, call: _Call) -> bool:
        """Note that a call has got a thread; True when that must be a new one."""
        work = call.work
        if work is not None:
            self._running.add(call)
            self._by_caller[work.caller] = self._by_caller.get(work.caller, 0) + 1
            self._by_agent[work.agent] = self._by_agent.get(work.agent, 0) + 1
        if self._idle:
            self._idle -= 1
            return False
        self._threads += 1
        return True

    def _discount(self, call: _Call) -> None:
        work = call.work
        if work is None:
            return
        self._running.discard(call)
        for counts, key in ((self._by_caller, work.caller), (self._by_agent, work.agent)):
            if counts[key] > 1:
                counts[key] -= 1
            else:
                del counts[key]

    def _take_turns(self) -> list[tuple[_Call, bool]]:
        """The calls that may begin now, and whether each needs a new thread."""
        begun: list[tuple[_Call, bool]] = []
        while (call := self._next()) is not None:
            begun.append((call, self._count(call)))
        return begun

    def _next(self) -> _Call | None:
        for agent, callers in self._waiting.items():
            for caller, calls in callers.items():
                work = Work(agent, caller)
                if self._is_free_for(work):
                    call, _ = calls.popitem(last=False)
                    self._queued -= 1
                    # Their turn is over: they stand behind the others now.
                    callers.move_to_end(caller)
                    self._waiting.move_to_end(agent)
                    if not calls:
                        self._forget(work, callers)
                    return call
        return None

    def _forget(self, work: Work, callers: OrderedDict[str, Any]) -> None:
        del callers[work.caller]
        if not callers:
            del self._waiting[work.agent]

    def _warning(self) -> tuple[Any, ...] | None:
        now = self._now()
        if now < self._warn_at or not self._running:
            return None
        self._warn_at = now + WARN_SECONDS
        held = Counter((call.name, call.work.agent if call.work else "") for call in self._running)
        ((name, agent), threads), *_ = held.most_common(1)
        return (
            "calls wait for a thread: `%s` of agent %s holds %d of %d: let it be `async def`, give it a timeout, or "
            "raise limits_threads",
            name,
            agent,
            threads,
            self.max_threads,
        )


class _Result(Future[Any]):
    """A future whose call leaves the queue when it is cancelled."""

    _give_up: Callable[[], None]

    def on_cancel(self, give_up: Callable[[], None]) -> None:
        """Say what is called when it is cancelled."""
        self._give_up = give_up

    def cancel(self) -> bool:
        """Cancel it unless it has begun."""
        cancelled = super().cancel()
        if cancelled:
            self._give_up()
        return cancelled


class LoopThreads(ThreadPoolExecutor):
    """The pool as the default executor of an event loop, which takes no other class than its own."""

    def __init__(self, pool: FairThreadPool) -> None:
        super().__init__(1)
        self._pool = pool

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Have it called by a thread of the pool."""
        return self._pool.submit(fn, *args, **kwargs)


@cache
def skill_threads() -> FairThreadPool:
    """The threads in which `def` skills run."""
    return FairThreadPool("dragoman-skill")


@cache
def helper_threads() -> FairThreadPool:
    """The threads for everything else that blocks. Not those of skills: these wait for what is done here."""
    return FairThreadPool("dragoman-helper")


async def in_thread(fn: Callable[..., Any], *args: Any, pool: FairThreadPool | None = None, name: str = "") -> Any:
    """Call `fn` in a thread, with the caller's context variables. `name` is what the log calls it."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            settle: Callable[[], None] | None = partial(_give, done, context.run(_without_stop, fn, args))
        except BaseException as error:  # noqa: BLE001 - it belongs to whoever waits
            settle = partial(_fail, done, error)
        try:
            loop.call_soon_threadsafe(settle)
        except RuntimeError:  # the loop is gone, and with it whoever waited
            logger.debug("%s has ended after its event loop", _name_of(fn))
        settle = None  # an error knows this frame: without it, they would keep each other alive

    pool = helper_threads() if pool is None else pool
    call = pool.start(run, name or _name_of(fn))
    try:
        return await done
    except asyncio.CancelledError:
        pool.drop(call)
        raise


def _without_stop(fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    try:
        return fn(*args)
    except StopIteration as error:
        # A future cannot carry it, and whoever waits for that future would wait for ever.
        raise RuntimeError(f"{_name_of(fn)} let StopIteration out") from error


def _give(done: asyncio.Future[Any], result: Any) -> None:
    if not done.done():
        done.set_result(result)


def _fail(done: asyncio.Future[Any], error: BaseException) -> None:
    if not done.done():
        done.set_exception(error)


def _name_of(fn: Callable[..., Any]) -> str:
    while isinstance(fn, partial):
        fn = fn.func
    return getattr(fn, "__name__", type(fn).__name__)
