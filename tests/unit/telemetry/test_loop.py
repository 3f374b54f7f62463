"""The monitor of the event loop: what it calls a stall, whom it blames, and its samplers."""

from __future__ import annotations

import asyncio
import bdb
import gc
import logging
import re
import selectors
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
import uvloop

from dragoman import Agent, Client
from dragoman.server.build import build
from dragoman.server.config.settings import Settings
from dragoman.telemetry.loop import (
    MAX_STACKS,
    LoopMonitor,
    RunningSkill,
    StallDetector,
    _frames_within,  # pyright: ignore[reportPrivateUsage]
    _Ticker,  # pyright: ignore[reportPrivateUsage]
)
from dragoman.telemetry.metrics import METRICS
from dragoman.testing import Clock

SKILL = RunningSkill("shop", "report", "t-1")
SECONDS = 10
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
def metrics() -> Iterator[None]:
    METRICS.on = True
    yield
    METRICS.on = False


def stalls() -> dict[tuple[str, ...], float]:
    return {labels: values[0] for labels, values in METRICS.loop_stalls.series()}


class Blocked:
    """A loop in a thread, which is blocked until it is released, and a detector whose time the test sets."""

    def __init__(self, new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self._gate, self._blocked = threading.Event(), threading.Event()
        self.loop = new_loop()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self.ticker: _Ticker = self.call(self._new_ticker)
        self.detector = StallDetector(self.ticker)
        self.detector.look(self.ticker.last.due, 0)

    def _run(self) -> None:
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()

    def _new_ticker(self) -> _Ticker:
        ticker = _Ticker(self.loop)
        ticker.monitors.append(LoopMonitor(lambda task: SKILL))
        return ticker

    def call(self, function: Callable[[], Any]) -> Any:
        """Call a function on the loop."""
        done: Future[Any] = Future()
        self.loop.call_soon_threadsafe(lambda: done.set_result(function()))
        return done.result(SECONDS)

    def block(self, how: Callable[[threading.Event], Any] = threading.Event.wait) -> None:
        """Let a task block the loop, once it has ticked."""

        async def work() -> None:
            self._blocked.set()
            how(self._gate)

        self.wait_for_tick()
        self.call(lambda: tasks.append(self.loop.create_task(work())))
        assert self._blocked.wait(SECONDS)
        self.detector.look(self.ticker.last.due, 0)

    def wait_for_tick(self) -> None:
        """Wait until the loop has ticked once more."""
        before = self.ticker.last.number
        while self.ticker.last.number == before:
            self.call(lambda: None)

    def look(self, after: float, late: float = 0) -> float:
        """Look at the loop so many seconds after a tick was due."""
        return self.detector.look(self.ticker.last.due + after, late)

    def release(self) -> None:
        """Let the loop go on, until it has ticked."""
        self._gate.set()
        self.wait_for_tick()
        self._gate.clear()
        self._blocked.clear()

    def close(self) -> None:
        self._gate.set()
        self.loop.call_soon_threadsafe(self.ticker.cancel)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(SECONDS)


tasks: list[asyncio.Task[None]] = []


@pytest.fixture(params=LOOPS)
def blocked(request: pytest.FixtureRequest) -> Iterator[Blocked]:
    """A loop of each kind."""
    blocked = Blocked(LOOPS[request.param])
    yield blocked
    blocked.close()
    tasks.clear()


@pytest.fixture(autouse=True)
def logs(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level("INFO", "dragoman.loop")
    return caplog


def stall_records(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == "dragoman.loop"]


def test_a_loop_that_is_late_by_over_200_ms_is_blocked(blocked: Blocked, logs: pytest.LogCaptureFixture) -> None:
    blocked.block()
    assert blocked.look(0.05) == pytest.approx(0.05)
    assert blocked.look(0.15) < 0.05, "it looks more often once it is suspicious"
    assert not stall_records(logs)
    blocked.look(0.21)
    blocked.look(0.31)
    (record,) = stall_records(logs)
    assert record.levelno == logging.WARNING
    assert "0.2 s by skill `report` of agent `shop` in task t-1" in record.getMessage()
    assert (record.__dict__["skill"], record.__dict__["seconds"]) == ("report", pytest.approx(0.21, abs=0.01))
    assert record.stack_info is not None
    # From the task to what it waits for, without the frames of the loop and of the thread.
    assert "in work" in record.stack_info.splitlines()[1]
    assert "threading.py" in record.stack_info
    blocked.release()
    blocked.look(0.01)
    assert stall_records(logs)[1].getMessage().startswith("the event loop was blocked for ")
    assert list(blocked.ticker.stalls) in ([], [SKILL])  # the tick has counted it, or forgotten it without metrics


@pytest.mark.parametrize("late", [0.5, 3600])
def test_time_in_which_the_watchdog_could_not_run_does_not_count(
    blocked: Blocked, logs: pytest.LogCaptureFixture, late: float
) -> None:
    blocked.block()
    blocked.look(0.1 + late, late)
    blocked.look(0.15 + late)
    assert not stall_records(logs)
    blocked.look(0.25 + late)
    (record,) = stall_records(logs)
    assert record.__dict__["seconds"] == pytest.approx(0.25, abs=0.01), "only what was seen"


def test_a_loop_that_waits_for_events_is_not_blocked(blocked: Blocked, logs: pytest.LogCaptureFixture) -> None:
    blocked.wait_for_tick()
    blocked.call(blocked.ticker.cancel)
    ticker = blocked.ticker
    while _frames_within(sys._current_frames()[ticker.thread_id], ticker.last.base):
        pass  # it still returns from the call
    for after in (0.15, 0.21, 5, 10):
        blocked.look(after)
    assert not stall_records(logs)


def test_a_step_that_waits_for_its_own_selector_is(blocked: Blocked, logs: pytest.LogCaptureFixture) -> None:
    def select(gate: threading.Event) -> None:
        with selectors.DefaultSelector() as selector:
            while not gate.is_set():
                selector.select(0.01)

    blocked.block(select)
    blocked.look(0.15)
    blocked.look(0.25)
    assert len(stall_records(logs)) == 1


def test_a_debugger_causes_no_stall(blocked: Blocked, logs: pytest.LogCaptureFixture) -> None:
    class Debugger(bdb.Bdb):
        def user_line(self, frame: object) -> None:
            self.gate.wait()
            self.set_quit()

    def debug(gate: threading.Event) -> None:
        debugger = Debugger()
        debugger.gate = gate
        with pytest.raises(bdb.BdbQuit):
            debugger.run("x = 1")

    blocked.block(debug)
    for after in (0.15, 0.25, 5):
        blocked.look(after)
    assert not stall_records(logs)


def test_a_few_stacks_per_skill_and_minute_are_logged(blocked: Blocked, logs: pytest.LogCaptureFixture) -> None:
    for _ in range(MAX_STACKS + 2):
        blocked.block()
        blocked.look(0.15)
        blocked.look(0.25)
        blocked.release()
    blocked.detector.look(time.monotonic(), 0)
    assert sum(record.stack_info is not None for record in stall_records(logs)) == MAX_STACKS
    blocked.block()
    blocked.look(70.0, 69.9)
    blocked.look(70.3)
    assert "(2 more without a line)" in stall_records(logs)[-1].getMessage()


@pytest.mark.usefixtures("metrics")
async def test_a_server_in_another_program_watches_its_loop_too(logs: pytest.LogCaptureFixture) -> None:
    agent, before = Agent("shop"), stalls().get(("shop", "report"), 0)

    @agent.skill
    async def report(text: str) -> str:
        time.sleep(1)  # noqa: ASYNC251 - that is what it is for
        return text

    app = agent.app(store="memory:")
    async with Client(app) as client:
        await app.start()
        await until(lambda: app.monitor._ticker is not None and app.monitor._ticker.last.number > 0)
        await client.send("hi")
        await until(lambda: len(stall_records(logs)) == 2)
    assert [("by skill `report` of agent `shop`" in record.getMessage()) for record in stall_records(logs)] == [
        True,
        True,
    ]
    await app.stop()
    assert stalls()["shop", "report"] == before + 1


class Garbage:
    """Part of a cycle that only the collector finds, and that takes long to collect."""

    def __init__(self, collect: Callable[[], object]) -> None:
        self.me = self
        self.collect = collect

    def __del__(self) -> None:
        self.collect()


@pytest.mark.usefixtures("metrics")
@pytest.mark.parametrize("keeps_interpreter", [True, False])
async def test_no_skill_is_blamed_for_the_garbage_collector(
    logs: pytest.LogCaptureFixture, keeps_interpreter: bool
) -> None:
    agent, before = Agent("shop"), stalls().get(("shop", "report"), 0)

    @agent.skill
    async def report(text: str) -> str:
        Garbage((lambda: sum(range(30_000_000))) if keeps_interpreter else (lambda: time.sleep(0.6)))
        gc.collect()
        return text

    app = agent.app(store="memory:")
    async with Client(app) as client:
        await app.start()
        await until(lambda: app.monitor._ticker is not None and app.monitor._ticker.last.number > 0)
        await client.send("hi")
        await until(lambda: stall_records(logs))
    await app.stop()
    text = stall_records(logs)[0].getMessage()
    assert re.search(r"blocked for \d\.\d s by Python's garbage collector, which (took|has taken) \d\.\d s", text)
    assert "report" not in logs.text
    assert stalls().get(("shop", "report"), 0) == before


async def test_the_collector_is_watched_only_while_a_loop_is() -> None:
    before = len(gc.callbacks)
    monitor = LoopMonitor(nobody)
    monitor.start()
    assert len(gc.callbacks) == before + 1
    monitor.stop()
    await until(lambda: len(gc.callbacks) == before)


async def test_where_time_stands_still_the_loop_is_not_watched() -> None:
    app = build([Agent("still")], Settings(store="memory:"), clock=Clock())
    await app.start()
    assert not watchdogs()
    await app.stop()


# -- the ticker and the samplers ---------------------------------------------------------------------------------------


async def until(condition: Callable[[], object]) -> None:
    """Let the loop tick until something is so."""
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110 - another thread makes it so
            await asyncio.sleep(0.005)


def watchdogs() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "dragoman-watchdog"]


def nobody(task: object) -> None:
    """No task is of a skill."""


@pytest.mark.usefixtures("metrics")
async def test_samplers_are_called_while_metrics_are_on_and_one_that_fails_stops_no_other(
    logs: pytest.LogCaptureFixture,
) -> None:
    lags = sum(sum(values[:-1]) for _, values in METRICS.loop_lag.series())
    monitor, calls = LoopMonitor(nobody), 0

    def fail() -> None:
        raise ValueError("broken")

    def count() -> None:
        nonlocal calls
        calls += 1

    monitor.add_sampler(fail)
    monitor.add_sampler(count)
    monitor.start()
    await until(lambda: calls == 2)
    monitor.stop()
    (record,) = stall_records(logs)
    assert "a sampler of metrics has failed" in record.getMessage()
    assert sum(sum(values[:-1]) for _, values in METRICS.loop_lag.series()) >= lags + 2


async def test_without_metrics_no_sampler_is_called() -> None:
    monitor, calls = LoopMonitor(nobody), 0

    def count() -> None:
        nonlocal calls
        calls += 1

    monitor.add_sampler(count)
    monitor.start()
    ticker = monitor._ticker
    assert ticker is not None
    await until(lambda: ticker.last.number == 2)
    monitor.stop()
    assert calls == 0


async def test_servers_on_one_loop_share_a_ticker_and_all_loops_one_thread() -> None:
    first, second = LoopMonitor(nobody), LoopMonitor(nobody)
    first.start()
    second.start()
    first.start()
    assert first._ticker is second._ticker
    assert first._ticker is not None
    assert first._ticker.monitors == [first, second]

    async def elsewhere() -> None:
        third = LoopMonitor(nobody)
        third.start()
        assert len(watchdogs()) == 1
        third.stop()

    await asyncio.to_thread(asyncio.run, elsewhere())
    first.stop()
    assert len(watchdogs()) == 1
    second.stop()
    second.stop()
    await until(lambda: not watchdogs())


def test_a_loop_that_is_closed_or_dropped_is_forgotten() -> None:
    async def start() -> weakref.ref[asyncio.AbstractEventLoop]:
        LoopMonitor(nobody).start()
        return weakref.ref(asyncio.get_running_loop())

    first = asyncio.run(start())
    asyncio.run(start())  # that of another server, as with test clients
    deadline = time.monotonic() + SECONDS
    while watchdogs():
        assert time.monotonic() < deadline
    gc.collect()
    assert first() is None
