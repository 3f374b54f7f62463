"""Virtual time for several nodes in one thread, each on an event loop of its own.

A node that is killed is a loop that never runs again: nothing is cleaned up. A node that is stopped is a loop that does
not run for a while, and finds all its timers overdue. Time moves when no loop has anything to do.
"""

from __future__ import annotations

import asyncio
import heapq
import sys
import threading
from asyncio import events
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any

from dragoman.stores.postgres.heartbeat import STALL_SECONDS

START = 1_800_000_000.0


class Stuck(Exception):
    """Nothing will ever happen again, or too much happens at one moment."""


class _NoSelector:
    """Stands for the selector of a loop without sockets."""

    def select(self, timeout: float | None) -> list[Any]:
        return []


class NodeLoop(asyncio.BaseEventLoop):
    """The event loop of one node, in the time of a world. The world runs it, one turn at a time."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__()
        self._selector = _NoSelector()
        self._clock_resolution = 1e-6
        self._world = world
        self.name = name
        self._stopped_at: float | None = None
        self.set_exception_handler(self._on_exception)

    @property
    def stopped(self) -> bool:
        """True while it does not run."""
        return self._stopped_at is not None

    @stopped.setter
    def stopped(self, stopped: bool) -> None:
        self._stopped_at = self._world.now if stopped else None

    @property
    def stuck(self) -> bool:
        """True when it has not run for so long that the node does not renew its lease."""
        return self._stopped_at is not None and self._world.now - self._stopped_at > STALL_SECONDS

    def time(self) -> float:
        """The time of the world."""
        return self._world.now

    def _process_events(self, event_list: list[Any]) -> None:
        """Do nothing: there are no sockets."""

    def _write_to_self(self) -> None:
        """Do nothing: the world looks whether there is something to run."""

    def _on_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._world.errors.append(f"{self.name}: {context.get('message')}: {context.get('exception')!r}")

    @property
    def due(self) -> float:
        """When this loop has something to do next: its timers, or now."""
        if self._ready:
            return 0.0
        scheduled = self._scheduled
        while scheduled and scheduled[0]._cancelled:
            handle = heapq.heappop(scheduled)
            handle._scheduled = False
            self._timer_cancelled_count -= 1
        return scheduled[0]._when if scheduled else float("inf")

    def turn(self) -> None:
        """Run everything that is ready now, once."""
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(self._asyncgen_firstiter_hook, self._asyncgen_finalizer_hook)
        self._thread_id = threading.get_ident()
        events._set_running_loop(self)
        try:
            self._run_once()
        finally:
            events._set_running_loop(None)
            self._thread_id = None
            sys.set_asyncgen_hooks(*hooks)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a task from outside."""
        return asyncio.Task(work, loop=self)


class World:
    """Time, the loops of all nodes, and what happens outside of them. `errors` collects what loops complain about."""

    def __init__(self) -> None:
        self.now = START
        self.errors: list[str] = []
        self.turns = 0
        self._loops: list[NodeLoop] = []
        self._gone: list[NodeLoop] = []
        self._remains: list[set[asyncio.Task[Any]]] = []
        self._order = count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        # Called before time moves on: whatever else has to happen at this moment. True when it has done something.
        self.before_time_moves: list[Callable[[], bool]] = []

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return int(self.now * 1000)

    def add_loop(self, name: str) -> NodeLoop:
        """A loop for a node that has just started."""
        loop = NodeLoop(self, name)
        self._loops.append(loop)
        return loop

    def kill(self, loop: NodeLoop) -> None:
        """Never run a loop again."""
        self._loops.remove(loop)
        self._gone.append(loop)
        # Otherwise the garbage collector would end them, and run what they do at their end.
        self._remains.append(asyncio.all_tasks(loop))

    def after(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call back at a later time, outside of all loops."""
        heapq.heappush(self._events, (self.now + seconds, next(self._order), callback))

    def run(self, seconds: float, until: Callable[[], bool] | None = None) -> bool:
        """Let time pass, at most so much. True when `until` came true."""
        end = self.now + seconds
        while True:
            self._run_now()
            if until is not None and until():
                return True
            due = min((loop.due for loop in self._loops if not loop.stopped), default=float("inf"))
            if self._events:
                due = min(due, self._events[0][0])
            if due > end:
                self.now = end
                return False
            self.now = max(self.now, due)
            while self._events and self._events[0][0] <= self.now:
                heapq.heappop(self._events)[2]()

    def _run_now(self) -> None:
        """Run what is due at this moment, until nothing is."""
        for _ in range(100_000):
            busy = False
            for loop in tuple(self._loops):
                if not loop.stopped and loop.due <= self.now:
                    self.turns += 1
                    loop.turn()
                    busy = True
            while self._events and self._events[0][0] <= self.now:
                heapq.heappop(self._events)[2]()
                busy = True
            if not busy and not any(act() for act in self.before_time_moves):
                return
        raise Stuck("something goes on and on without waiting")

    def close(self) -> None:
        """End what is left, for good. What the loops complain about meanwhile is nobody's concern."""
        loops = self._loops + self._gone
        self._loops, self._gone, self._events, self.before_time_moves = [], [], [], []
        errors = list(self.errors)
        for loop in loops:
            loop._scheduled.clear()
            for _ in range(50):
                loop.turn()  # a task that is canceled before it starts would leave coroutines behind
                tasks = asyncio.all_tasks(loop)
                if not tasks:
                    break
                for task in tasks:
                    task.cancel()
                loop.turn()
            for task in asyncio.all_tasks(loop):
                task._log_destroy_pending = False
            loop.close()
        self._remains.clear()
        self.errors = errors


class WorldClock:
    """The clock of the nodes: the time of the world, and the timers of the loop that runs."""

    def __init__(self, world: World) -> None:
        self._world = world

    def now(self) -> int:
        """Milliseconds since 1970."""
        return self._world.now_ms()

    def call_later(self, seconds: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
        """Call back on the running loop after that time."""
        return asyncio.get_running_loop().call_later(seconds, callback)
