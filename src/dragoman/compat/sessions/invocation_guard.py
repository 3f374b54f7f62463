"""Depth and rate limits for agents that call agents, so that they cannot call each other endlessly."""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from typing import TYPE_CHECKING

from dragoman.engine.quota import overloaded
from dragoman.model.error import InvalidParams

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dragoman.clock import Clock

logger = logging.getLogger("dragoman.server")
MAX_DEPTH = 3
PER_MINUTE = 5
# How many agents are tracked at once. A dropped one starts anew.
MAX_SOURCES = 10_000
MAX_NAME_LENGTH = 200
_WINDOW_MS = 60_000
# Longer numbers are typing errors, and Python refuses to parse very long ones.
_DIGITS = 18


class InvocationGuard:
    """Limits the tasks that agents start: how deep in a chain of calls, and how many per minute.

    `max_depth` is the greatest depth that is admitted. In any 60 seconds a source agent may start `per_minute` tasks;
    0 means no limit. Agents of different callers are counted apart. Depth and source are what the request says: this
    protects against accidental loops, not against callers who lie.
    """

    def __init__(self, clock: Clock, *, max_depth: int = MAX_DEPTH, per_minute: int = PER_MINUTE) -> None:
        self._clock = clock
        self._max_depth = max_depth
        self._per_minute = per_minute
        # The start times of each agent's tasks; the most recent agent is last.
        self._starts: OrderedDict[tuple[str, str], deque[int]] = OrderedDict()

    @classmethod
    def from_env(cls, clock: Clock, environ: Mapping[str, str]) -> InvocationGuard:
        """Build a guard with the limits of `A2A_MAX_DEPTH` and `A2A_RATE_PER_MINUTE`."""
        return cls(
            clock,
            max_depth=max_depth_of(environ),
            per_minute=limit_of(environ, "A2A_RATE_PER_MINUTE", PER_MINUTE),
        )

    def __len__(self) -> int:
        """The number of agents that are tracked."""
        return len(self._starts)

    def admit(self, source: str | None, depth: int, caller: str = "") -> None:
        """Check the depth of a task and count it for its source agent. Tasks without a source are not counted.

        Raises:
            InvalidParams: the depth is negative or exceeds the limit.
            Overloaded: the agent has started too many tasks; `retryAfter` is the number of seconds to wait.
        """
        if depth < 0:
            raise InvalidParams("Invocation depth is a number from 0 on.", field="depth")
        if depth > self._max_depth:
            raise InvalidParams("Invocation depth limit exceeded.", field="depth")
        name = (source or "").strip()[:MAX_NAME_LENGTH]
        if name and self._per_minute:
            self._count_start((caller[:MAX_NAME_LENGTH], name), self._clock.now())

    def _count_start(self, name: tuple[str, str], now: int) -> None:
        starts = self._starts.pop(name, None)
        if starts is None:
            self._evict(now)
            starts = deque[int]()
        self._starts[name] = starts
        while starts and not _is_in_window(starts[0], now):
            starts.popleft()
        if len(starts) >= self._per_minute:
            seconds = (starts[0] + _WINDOW_MS - now) / 1000
            raise overloaded(f"an agent may begin {self._per_minute} tasks a minute", "source", seconds)
        starts.append(now)

    def _evict(self, now: int) -> None:
        # Ordered by last use, so the first active one ends the search for idle ones.
        while self._starts:
            name, starts = next(iter(self._starts.items()))
            if len(self._starts) < MAX_SOURCES and _is_in_window(starts[-1], now):
                return
            del self._starts[name]


def max_depth_of(environ: Mapping[str, str]) -> int:
    """Return the limit on the depth of a chain of calls: `A2A_MAX_DEPTH`, by default 3."""
    return limit_of(environ, "A2A_MAX_DEPTH", MAX_DEPTH)


def limit_of(environ: Mapping[str, str], name: str, default: int) -> int:
    """Read a whole number from 0 on from an environment variable. Anything else is logged, and the default is used."""
    text = environ.get(name, "").strip()
    if not text:
        return default
    if text.isascii() and text.isdigit() and len(text) <= _DIGITS:
        return int(text)
    logger.warning("environment %s: %r is not a whole number from 0 on; %d is used", name, text[:_DIGITS], default)
    return default


def _is_in_window(then: int, now: int) -> bool:
    # A negative age means that the clock was set back.
    return 0 <= now - then < _WINDOW_MS
