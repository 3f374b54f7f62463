"""Thread pool for blocking code, shared fairly among callers and agents."""

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

from dragoman.engine.execute.containment import RunOwner, current_run_owner
from dragoman.telemetry.metrics.catalog import METRICS

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger("dragoman.engine")
MAX_THREADS = 128
# An agent may hold three times as many threads as are free: alone, three quarters of the pool.
AGENT_SHARE = 3
# The shortest time between two warnings that calls wait.
WARN_SECONDS = 60.0


class _ThreadCall:
    """A call to be made in a thread. `run` raises nothing and reports its own result."""

    __slots__ = ("dropped", "name", "owner", "run")

    def __init__(self, run: Callable[[], None], name: str, owner: RunOwner | None) -> None:
        self.run = run
        self.name = name
        self.owner = owner
        self.dropped = False

    def drop(self) -> None:
        """Skip the call, unless it has started."""
        self.dropped = True


class FairThreadPool(Executor):
    """Pool of daemon threads: code that blocks forever does not keep a stopped server alive.

    A caller may hold as many threads as are free, so one alone gets half of the pool and the next finds room at once,
    however long the first one's calls take. Where several agents share the pool, an agent may hold three times as many
    as are free. Queued calls are served round-robin, over agents and then over the callers of each. Calls outside of
    runs, the server's own, never wait.
    """

    def __init__(self, name: str, max_threads: int = MAX_THREADS, *, now: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._numbers = count()
        self._ready: SimpleQueue[_ThreadCall] = SimpleQueue()
        self._lock = threading.Lock()
        self._now = now
        self._warn_at = 0.0
        self.max_threads = max_threads
        self.shared = False
        # All below is guarded by the lock.
        self._threads = 0
        self._idle = 0
        self._running: set[_ThreadCall] = set()
        self._by_caller: dict[str, int] = {}
        self._by_agent: dict[str, int] = {}
        self._waiting: OrderedDict[str, OrderedDict[str, OrderedDict[_ThreadCall, None]]] = OrderedDict()
        self._queued = 0

    def resize(self, max_threads: int, *, shared: bool) -> None:
        """Change the size of the pool; `shared` is True when several agents use it."""
        with self._lock:
            self.max_threads, self.shared = max_threads, shared
            ready = self._dequeue_ready()
        for call in ready:
            self._dispatch(*call)

    # -- calls -----------------------------------------------------------------------------------------------------

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call `fn` in a thread as soon as one is free for the current caller."""
        future = _CancelableFuture()

        def run() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(fn(*args, **kwargs))
                except BaseException as error:  # noqa: BLE001 - it is raised where the result is awaited
                    future.set_exception(error)

        call = self.start(run, _name_of(fn))
        future.on_cancel(partial(self.drop, call))
        return future

    def start(self, run: Callable[[], None], name: str) -> _ThreadCall:
        """Call `run`, which raises nothing, in a thread: now, or when it is the current caller's turn."""
        owner = current_run_owner()
        call = _ThreadCall(run, name, owner)
        with self._lock:
            if owner is not None and not self._is_free_for(owner):
                self._waiting.setdefault(owner.agent, OrderedDict()).setdefault(owner.caller, OrderedDict())[call] = (
                    None
                )
                self._queued += 1
                warning = self._warning()
                needs_thread = None
            else:
                warning = None
                needs_thread = self._count_start(call)
        if needs_thread is not None:
            self._dispatch(call, needs_thread)
        elif warning is not None:
            logger.warning(*warning)
        return call

    def drop(self, call: _ThreadCall) -> None:
        """Remove a call from the queue, unless it has started."""
        call.drop()
        owner = call.owner
        with self._lock:
            callers = None if owner is None else self._waiting.get(owner.agent)
            calls = None if callers is None or owner is None else callers.get(owner.caller)
            if callers is not None and calls is not None and owner is not None and call in calls:
                del calls[call]
                self._queued -= 1
                if not calls:
                    self._remove_caller(owner, callers)

    @property
    def waiting(self) -> int:
        """The number of calls that wait for a thread."""
        return self._queued

    @property
    def busy(self) -> int:
        """The number of threads that run a call."""
        return self._threads - self._idle

    # -- threads ---------------------------------------------------------------------------------------------------

    def _dispatch(self, call: _ThreadCall, needs_thread: bool) -> None:
        self._ready.put(call)
        if needs_thread:
            threading.Thread(target=self._serve, name=f"{self._name}-{next(self._numbers)}", daemon=True).start()

    def _serve(self) -> None:
        while True:
            call = self._ready.get()
            while True:
                if not call.dropped:
                    call.run()
                with self._lock:
                    self._count_end(call)
                    del call  # an idle thread keeps nothing alive
                    ready = self._dequeue_ready() if self._waiting else []
                    if not ready:
                        if self._threads > self.max_threads:
                            self._threads -= 1
                            return
                        self._idle += 1
                        break
                    # This thread takes the first itself: it never became idle.
                    call, needs_thread = ready.pop(0)
                    if needs_thread:
                        self._threads -= 1
                    else:
                        self._idle += 1
                for other in ready:
                    self._dispatch(*other)

    # -- scheduling, under the lock ---------------------------------------------------------------------------------

    def _is_free_for(self, owner: RunOwner) -> bool:
        free = self.max_threads - len(self._running)
        if free <= 0 or (self.shared and self._by_agent.get(owner.agent, 0) >= free * AGENT_SHARE):
            return False
        # This process itself has no limit: its calls may be what its other calls wait for.
        return not owner.caller or self._by_caller.get(owner.caller, 0) < free

    def _count_start(self, call: _ThreadCall) -> bool:
        """Count a call that gets a thread; True when a new thread must be started for it."""
        owner = call.owner
        if owner is not None:
            self._running.add(call)
            self._by_caller[owner.caller] = self._by_caller.get(owner.caller, 0) + 1
            self._by_agent[owner.agent] = self._by_agent.get(owner.agent, 0) + 1
        if self._idle:
            self._idle -= 1
            return False
        self._threads += 1
        return True

    def _count_end(self, call: _ThreadCall) -> None:
        owner = call.owner
        if owner is None:
            return
        self._running.discard(call)
        for counts, key in ((self._by_caller, owner.caller), (self._by_agent, owner.agent)):
            if counts[key] > 1:
                counts[key] -= 1
            else:
                del counts[key]

    def _dequeue_ready(self) -> list[tuple[_ThreadCall, bool]]:
        """Take from the queue the calls that may start now, each with whether it needs a new thread."""
        ready: list[tuple[_ThreadCall, bool]] = []
        while (call := self._next_call()) is not None:
            ready.append((call, self._count_start(call)))
        return ready

    def _next_call(self) -> _ThreadCall | None:
        for agent, callers in self._waiting.items():
            for caller, calls in callers.items():
                owner = RunOwner(agent, caller)
                if self._is_free_for(owner):
                    call, _ = calls.popitem(last=False)
                    self._queued -= 1
                    # Round-robin: both go behind the others.
                    callers.move_to_end(caller)
                    self._waiting.move_to_end(agent)
                    if not calls:
                        self._remove_caller(owner, callers)
                    return call
        return None

    def _remove_caller(self, owner: RunOwner, callers: OrderedDict[str, Any]) -> None:
        del callers[owner.caller]
        if not callers:
            del self._waiting[owner.agent]

    def _warning(self) -> tuple[Any, ...] | None:
        now = self._now()
        if now < self._warn_at or not self._running:
            return None
        self._warn_at = now + WARN_SECONDS
        by_skill = Counter((call.name, call.owner.agent if call.owner else "") for call in self._running)
        ((name, agent), threads), *_ = by_skill.most_common(1)
        return (
            "calls wait for a thread: `%s` of agent %s holds %d of %d: make it `async def`, give it a timeout, or "
            "raise limits_threads",
            name,
            agent,
            threads,
            self.max_threads,
        )


class _CancelableFuture(Future[Any]):
    """A future that removes its call from the queue when it is canceled."""

    _on_cancel: Callable[[], None]

    def on_cancel(self, callback: Callable[[], None]) -> None:
        """Set the callback for cancellation."""
        self._on_cancel = callback

    def cancel(self) -> bool:
        """Cancel the call unless it has started."""
        cancelled = super().cancel()
        if cancelled:
            self._on_cancel()
        return cancelled


class LoopThreads(ThreadPoolExecutor):
    """Adapter of the pool for `loop.set_default_executor`, which accepts only ThreadPoolExecutor."""

    def __init__(self, pool: FairThreadPool) -> None:
        super().__init__(1)
        self._pool = pool

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call `fn` in a thread of the pool."""
        return self._pool.submit(fn, *args, **kwargs)


def sample_threads() -> None:
    """Set the metrics of threads."""
    METRICS.threads.set(threading.active_count())
    for pool, name in ((skill_threads(), "skills"), (helper_threads(), "helpers")):
        METRICS.busy_threads.set(pool.busy, (name,))


@cache
def skill_threads() -> FairThreadPool:
    """The process-wide pool in which `def` skills run."""
    return FairThreadPool("dragoman-skill")


@cache
def helper_threads() -> FairThreadPool:
    """The process-wide pool for all other blocking code. It is separate because skills may wait for what runs here."""
    return FairThreadPool("dragoman-helper")


async def in_thread(fn: Callable[..., Any], *args: Any, pool: FairThreadPool | None = None, name: str = "") -> Any:
    """Call `fn` in a thread with the current context variables, and return its result. `name` is used in the log."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            settle: Callable[[], None] | None = partial(
                _set_result, done, context.run(_call_without_stop_iteration, fn, args)
            )
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is awaited
            settle = partial(_set_exception, done, error)
        try:
            loop.call_soon_threadsafe(settle)
        except RuntimeError:  # the loop was closed, and nobody waits any more
            logger.debug("%s has ended after its event loop", _name_of(fn))
        settle = None  # the traceback references this frame: break the reference cycle

    pool = helper_threads() if pool is None else pool
    call = pool.start(run, name or _name_of(fn))
    try:
        return await done
    except asyncio.CancelledError:
        pool.drop(call)
        raise


def _call_without_stop_iteration(fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    try:
        return fn(*args)
    except StopIteration as error:
        # A future cannot hold StopIteration: whoever awaits it would wait forever.
        raise RuntimeError(f"{_name_of(fn)} raised StopIteration") from error


def _set_result(done: asyncio.Future[Any], result: Any) -> None:
    if not done.done():
        done.set_result(result)


def _set_exception(done: asyncio.Future[Any], error: BaseException) -> None:
    if not done.done():
        done.set_exception(error)


def _name_of(fn: Callable[..., Any]) -> str:
    while isinstance(fn, partial):
        fn = fn.func
    return getattr(fn, "__name__", type(fn).__name__)
