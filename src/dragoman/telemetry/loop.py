"""Watches the event loop: how late it is, and which code blocks it.

A ticker on the loop measures the lag and lets samplers set gauges. A thread, one per process, looks from outside
whether the loop still ticks, and logs the stack of what keeps it from that.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import inspect
import logging
import os
import sys
import threading
import time
import traceback
import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from dragoman.telemetry.metrics import METRICS

if TYPE_CHECKING:
    from types import FrameType

logger = logging.getLogger("dragoman.loop")
TICK_SECONDS = 0.1
# A loop that is later than this is blocked.
STALL_SECONDS = 0.2
# Between two calls of the samplers.
SAMPLE_TICKS = 10
# Stacks that are logged of one skill in a minute. All stalls are counted.
MAX_STACKS = 3
_STACK_WINDOW = 60.0
# Between two looks at a loop that is late.
_CLOSE_LOOK_SECONDS = 0.025
# A watchdog that is later than this was itself kept from running: the process was stopped, or the machine is busy.
_TOLERANCE_SECONDS = 0.05
_MAX_FRAMES = 40
# How many ticks may be between two looks: while a slow disk has the log, the loop goes on.
_LAGS = 10
# Collections of garbage that are remembered: a full one is rare, and the younger generations are small.
_REMEMBERED, _FULL = 32, 2
# Modules of debuggers: while one has the stack, a person looks at it.
_DEBUGGERS = frozenset({"bdb", "pdb", "ipdb", "pudb", "pydevd", "_pydevd_bundle", "_pydevd_sys_monitoring", "debugpy"})


class RunningSkill(NamedTuple):
    """Which code has the event loop: the agent, its skill, and the id of the task that runs."""

    agent: str
    skill: str
    task: str


Find = Callable[["asyncio.Task[Any]"], RunningSkill | None]
Sampler = Callable[[], None]
_NOBODY = RunningSkill("", "", "")
_BY_COLLECTOR = " by Python's garbage collector"


class LoopMonitor:
    """Watches the loop on which a server runs. `find` says which skill an asyncio task runs; a thread calls it."""

    def __init__(self, find: Find) -> None:
        self.find = find
        self._samplers: list[Sampler] = []
        self._failed: set[Sampler] = set()
        self._ticker: _Ticker | None = None

    def add_sampler(self, sampler: Sampler) -> None:
        """Call a function once a second on the event loop while metrics are on; it sets gauges, and must be quick."""
        self._samplers.append(sampler)

    def sample(self) -> None:
        """Call the samplers now. An exception of one is logged once, and keeps no other from being called."""
        for sampler in self._samplers:
            try:
                sampler()
            except Exception:
                if sampler not in self._failed:
                    self._failed.add(sampler)
                    logger.exception("a sampler of metrics has failed: what it measures stays as it was")

    def start(self) -> None:
        """Watch the running event loop. Idempotent until `stop`."""
        if self._ticker is None:
            self._ticker = _WATCHDOG.watch(asyncio.get_running_loop(), self)

    def stop(self) -> None:
        """Watch no more. Idempotent."""
        if self._ticker is not None:
            _WATCHDOG.forget(self._ticker, self)
            self._ticker = None


class _Tick(NamedTuple):
    """What the ticker tells the watchdog: one object, so that it is never seen half written."""

    number: int
    due: float  # when the next one is to be
    lags: tuple[float, ...]  # of the last ones
    base: int  # the id of the frame that runs the loop


class _Ticker:
    """Ticks on one loop, for all servers on it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        # Weak: a loop that somebody has dropped ends its ticker.
        self.loop = weakref.ref(loop)
        self.thread_id = threading.get_ident()
        self.monitors: list[LoopMonitor] = []
        # Appended to by the watchdog, counted here: metrics are recorded on the thread of the loop.
        self.stalls: deque[RunningSkill] = deque()
        self.last = _Tick(0, time.monotonic() + TICK_SECONDS, (), 0)
        # The first tick is at once: it finds the frame that runs the loop.
        self._handle: asyncio.Handle = loop.call_soon(self._tick, context=contextvars.Context())
        self._cpu_clock: int | None = None
        if hasattr(time, "pthread_getcpuclockid"):
            # Asked for here: of a thread that has ended, the question may crash. The answer may be used at any time.
            with contextlib.suppress(OSError):
                self._cpu_clock = time.pthread_getcpuclockid(self.thread_id)

    def cpu_seconds(self) -> float:
        """How long the thread of the loop has computed; where the system cannot say, the process."""
        if self._cpu_clock is not None:
            with contextlib.suppress(OSError):
                return time.clock_gettime(self._cpu_clock)
        return time.process_time()

    def cancel(self) -> None:
        """Tick no more."""
        self._handle.cancel()

    def _tick(self) -> None:
        number, due, lags, _ = self.last
        lag = max(0.0, time.monotonic() - due)
        if METRICS.on:
            METRICS.loop_lag.observe(lag)
            while self.stalls:
                stall = self.stalls.popleft()
                METRICS.loop_stalls.add(1, (stall.agent, stall.skill))
            if number % SAMPLE_TICKS == 0:
                METRICS.flush()
                for monitor in self.monitors:
                    monitor.sample()
        elif self.stalls:
            self.stalls.clear()
        loop = asyncio.get_running_loop()
        self._handle = loop.call_later(TICK_SECONDS, self._tick)
        lags = (*lags[-_LAGS + 1 :], lag)
        self.last = _Tick(number + 1, time.monotonic() + TICK_SECONDS, lags, id(_loop_frame()))


class _Stall:
    """One time that the loop is blocked, `by` whom. `logged` is False when its skill has had enough lines lately."""

    def __init__(self, skill: RunningSkill, by: str, *, logged: bool) -> None:
        self.skill = skill
        self.by = by
        self.logged = logged


class StallDetector:
    """Decides, each time the watchdog looks at a loop, whether it is blocked, and logs that.

    Time in which the watchdog itself could not run does not count, because then nothing in the process could: it was
    stopped, or asleep with its machine, or there was no processor for it. Unless the thread of the loop was computing
    all the while: then it kept the interpreter's lock.
    """

    def __init__(self, ticker: _Ticker) -> None:
        self.ticker = ticker
        self._number = -1
        self._excused = 0.0
        self._cpu = ticker.cpu_seconds()
        self._suspect: FrameType | None = None
        self._stall: _Stall | None = None
        # When the last stacks of each skill were logged, and how many were not since.
        self._logged: dict[RunningSkill, deque[float]] = {}
        self._left_out: dict[RunningSkill, int] = {}

    def look(self, now: float, late: float) -> float:
        """Look at the loop; the watchdog is so many seconds late. Returns after how many seconds to look again."""
        ticker, tick = self.ticker, self.ticker.last
        cpu = ticker.cpu_seconds()
        computed, self._cpu = max(0.0, cpu - self._cpu), cpu
        excuse = max(0.0, late - computed) if late > _TOLERANCE_SECONDS else 0.0
        if tick.number != self._number:
            self._end(now, tick, late, excuse)
        # It may have been before the last tick, or after it: as much as can have been after it.
        self._excused += min(excuse, max(0.0, now - tick.due))
        lag = now - tick.due - self._excused
        if self._stall is not None or not tick.number:  # before the first tick, the frame of the loop is not known
            return TICK_SECONDS
        if lag < STALL_SECONDS / 2:
            return max(_CLOSE_LOOK_SECONDS, STALL_SECONDS / 2 - lag)
        frame = sys._current_frames().get(ticker.thread_id)  # pyright: ignore[reportPrivateUsage]
        frames = _frames_within(frame, tick.base)
        loop = ticker.loop()
        if not frames or loop is None or not loop.is_running() or _is_debugged(frames):
            # Nothing runs that could be to blame: the loop would go on if the system let it. Or a person looks at it.
            self._excused += lag
            return TICK_SECONDS
        if lag < STALL_SECONDS:
            self._suspect = frames[0]
            return _CLOSE_LOOK_SECONDS
        # Is it one step of one task, or are there many small ones?
        is_one = self._suspect is None or self._suspect is frames[0]
        self._suspect = None
        collecting = _COLLECTIONS.seconds_between(tick.due, now)
        if collecting > lag / 2:  # whoever runs when the collector is due is not to blame for it
            self._begin_collecting(now, lag, collecting)
        else:
            self._begin(now, lag, frames, self._find_skill() if is_one else _NOBODY, is_one=is_one)
        return TICK_SECONDS

    def _find_skill(self) -> RunningSkill:
        loop = self.ticker.loop()
        task = None if loop is None else asyncio.current_task(loop)
        if task is not None:
            for monitor in list(self.ticker.monitors):
                found = monitor.find(task)
                if found is not None:
                    return found
        return _NOBODY

    def _begin_collecting(self, now: float, lag: float, seconds: float) -> None:
        self.ticker.stalls.append(_NOBODY)
        self._stall = _Stall(_NOBODY, _BY_COLLECTOR, logged=self._may_log(now, _NOBODY))
        if self._stall.logged:
            text = f"the event loop is blocked for {lag:.1f} s{_BY_COLLECTOR}, which has taken {seconds:.1f} s so far"
            _log(text, _NOBODY, lag)

    def _begin(self, now: float, lag: float, frames: list[FrameType], skill: RunningSkill, *, is_one: bool) -> None:
        self.ticker.stalls.append(skill)
        self._stall = _Stall(skill, _by(skill), logged=self._may_log(now, skill))
        if self._stall.logged:
            text = f"the event loop is blocked for {lag:.1f} s{_by(skill)}, and nothing else can run: "
            if is_one:
                text += "call what takes long in a thread (asyncio.to_thread), or make the skill a `def`"
            else:
                text += "many short steps keep it busy, of which this is one"
            if left_out := self._left_out.pop(_key(skill), 0):
                text += f" ({left_out} more without a line)"
            _log(text, skill, lag, _format_stack(frames))

    def _end(self, now: float, tick: _Tick, late: float, excuse: float) -> None:
        """It has ticked since the last look."""
        ticks = tick.number - self._number if self._number >= 0 else 1
        lag, stall = max(tick.lags[-ticks:], default=0.0) - self._excused - excuse, self._stall
        self._number, self._excused, self._suspect, self._stall = tick.number, 0.0, None, None
        if stall is not None:
            if stall.logged:
                _log(f"the event loop was blocked for {max(lag, 0):.1f} s{stall.by}", stall.skill, lag)
        elif lag > STALL_SECONDS and late > _TOLERANCE_SECONDS:
            self.ticker.stalls.append(_NOBODY)
            if self._may_log(now, _NOBODY):
                collecting = _COLLECTIONS.seconds_between(now - lag - late - STALL_SECONDS, now)
                text = f"the event loop was blocked for {lag:.1f} s"
                if collecting > lag / 2:
                    text += f"{_BY_COLLECTOR}, which took {collecting:.1f} s"
                else:
                    text += (
                        " by a call that kept the interpreter, as regular expressions and large JSON documents do: its "
                        "stack could not be read"
                    )
                _log(text, _NOBODY, lag)

    def _may_log(self, now: float, skill: RunningSkill) -> bool:
        key = _key(skill)
        times = self._logged.setdefault(key, deque())
        while times and now - times[0] > _STACK_WINDOW:
            times.popleft()
        if len(times) >= MAX_STACKS:
            self._left_out[key] = self._left_out.get(key, 0) + 1
            return False
        times.append(now)
        return True


class _Collections:
    """Notes when full collections of garbage began and ended, while somebody wants to know."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._past: deque[tuple[float, float]] = deque(maxlen=_REMEMBERED)

    def watch(self) -> None:
        """Begin to take notes. Idempotent."""
        if self._note not in gc.callbacks:
            gc.callbacks.append(self._note)

    def forget(self) -> None:
        """Take no more notes. Idempotent."""
        if self._note in gc.callbacks:
            gc.callbacks.remove(self._note)
        self._began = None

    def seconds_between(self, since: float, until: float) -> float:
        """How long the collector worked between two times of the monotonic clock. Any thread may ask."""
        began = self._began
        spans = [*self._past, *(() if began is None else ((began, until),))]
        return sum(max(0.0, min(end, until) - max(begin, since)) for begin, end in spans)

    def _note(self, phase: str, info: dict[str, Any]) -> None:
        # Called in whichever thread the collection was due, hundreds of times a second: nearly always this line is all.
        if info["generation"] < _FULL:
            return
        if phase == "start":
            self._began = time.monotonic()
        elif self._began is not None:
            self._past.append((self._began, time.monotonic()))
            self._began = None


class _Watchdog:
    """The thread that looks at the loops of this process, while there are any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Released to wake the thread. To wait for an Event takes twice as long, and this is done for ever.
        self._wake = threading.Lock()
        self._wake.acquire()
        self._detectors: list[StallDetector] = []
        self._thread: threading.Thread | None = None

    def watch(self, loop: asyncio.AbstractEventLoop, monitor: LoopMonitor) -> _Ticker:
        """Watch the running loop for a monitor."""
        with self._lock:
            ticker = next((each.ticker for each in self._detectors if each.ticker.loop() is loop), None)
            if ticker is None:
                ticker = _Ticker(loop)
                self._detectors.append(StallDetector(ticker))
            ticker.monitors.append(monitor)
            if self._thread is None:
                _COLLECTIONS.watch()
                self._thread = threading.Thread(target=self._run, name="dragoman-watchdog", daemon=True)
                self._thread.start()
        return ticker

    def forget(self, ticker: _Ticker, monitor: LoopMonitor) -> None:
        """End what `watch` has begun."""
        with self._lock:
            if monitor in ticker.monitors:
                ticker.monitors.remove(monitor)
            if not ticker.monitors:
                ticker.cancel()
                self._drop(ticker)

    def _drop(self, ticker: _Ticker) -> None:
        self._detectors = [each for each in self._detectors if each.ticker is not ticker]
        if not self._detectors and self._wake.locked():
            self._wake.release()

    def _run(self) -> None:
        pause, now = TICK_SECONDS, time.monotonic()
        while True:
            self._wake.acquire(timeout=pause)
            before, now = now, time.monotonic()
            with self._lock:
                for detector in self._detectors:
                    loop = detector.ticker.loop()
                    if loop is None or loop.is_closed():
                        self._drop(detector.ticker)
                loop = None
                detectors = self._detectors
                if not detectors:
                    self._thread = None
                    _COLLECTIONS.forget()
                    return
            late = now - before - pause
            pause = min(self._look(detector, now, late) for detector in detectors)

    def _look(self, detector: StallDetector, now: float, late: float) -> float:
        try:
            return detector.look(now, late)
        except Exception:
            logger.exception("the event loop cannot be watched any more")
            with self._lock:
                self._drop(detector.ticker)
            return TICK_SECONDS


_COLLECTIONS = _Collections()
_WATCHDOG = _Watchdog()
if hasattr(os, "register_at_fork"):
    # The thread does not exist in a child, and the lock may be held there for ever.
    os.register_at_fork(after_in_child=_WATCHDOG.__init__)


def _key(skill: RunningSkill) -> RunningSkill:
    return skill._replace(task="")


def _by(skill: RunningSkill) -> str:
    if not skill.agent:
        return ""
    what = f" by skill `{skill.skill}` of agent `{skill.agent}`" if skill.skill else f" by agent `{skill.agent}`"
    return f"{what} in task {skill.task}" if skill.task else what


def _log(text: str, skill: RunningSkill, seconds: float, stack: str | None = None) -> None:
    if not logger.isEnabledFor(logging.WARNING):
        return
    fields: dict[str, Any] = {name: value for name, value in skill._asdict().items() if value}
    fields["seconds"] = round(max(seconds, 0), 3)
    # The stack is that of another thread, so that the ordinary methods cannot take it.
    record = logger.makeRecord(
        logger.name, logging.WARNING, __file__, 0, "%s", (text,), None, "watch", extra=fields, sinfo=stack
    )
    logger.handle(record)


def _format_stack(frames: list[FrameType]) -> str:
    # Summaries of innermost frames first; `walk_stack` would go on to the frames of the loop and of the command.
    visible = [(frame, frame.f_lineno) for frame in frames[-_MAX_FRAMES:]]
    lines = traceback.StackSummary.extract(iter(visible), lookup_lines=True).format()
    return "Stack (most recent call last):\n" + "".join(lines).rstrip("\n")


def _loop_frame() -> FrameType | None:
    """The frame that runs the loop, as long as it runs, found from a callback. That of uvloop has no frame itself."""
    tick = inspect.currentframe()
    outer = None if tick is None or tick.f_back is None else tick.f_back.f_back
    while outer is not None and _is_of_loop(outer) and outer.f_code.co_name in ("_run", "_run_once"):
        outer = outer.f_back
    return outer


def _frames_within(frame: FrameType | None, base: int) -> list[FrameType]:
    """The frames of the step that the loop is taking, outermost first; none when it waits for events."""
    frames: list[FrameType] = []
    while frame is not None and id(frame) != base:
        frames.append(frame)
        frame = frame.f_back
    frames.reverse()
    step = next((index for index, each in enumerate(frames) if not _is_of_loop(each)), len(frames))
    if step == len(frames):
        # A function of C that the loop calls has no frame.
        return frames[-1:] if frames and frames[-1].f_code.co_name == "_run" else []
    return [] if _is_waiting(frames[step]) else frames[step:]


def _is_waiting(frame: FrameType) -> bool:
    outer = frame.f_back
    return frame.f_globals.get("__name__") == "selectors" and outer is not None and outer.f_code.co_name == "_run_once"


def _is_of_loop(frame: FrameType) -> bool:
    name = frame.f_globals.get("__name__", "")
    return name in ("asyncio.events", "asyncio.base_events", "asyncio.windows_events")


def _is_debugged(frames: list[FrameType]) -> bool:
    return any(str(frame.f_globals.get("__name__", "")).partition(".")[0] in _DEBUGGERS for frame in frames)
