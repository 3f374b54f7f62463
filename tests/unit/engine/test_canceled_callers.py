"""A caller gives up at any moment: each of its awaits is canceled once. Nothing is lost, done twice or left behind."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from dragoman.engine.call import CallContext
from dragoman.engine.quota import Lease, MemoryQuota
from dragoman.engine.settings import EngineSettings
from dragoman.model.error import TaskNotCancelable
from dragoman.model.operation import CancelTaskRequest, GetTaskRequest, SubscribeToTaskRequest
from dragoman.model.state import State
from dragoman.outputs import Ask
from dragoman.stores.memory import MemoryStore
from dragoman.stores.sqlite.store import SqliteStore

ME, CALLER = CallContext(), "user me"
MOST_STEPS = 60


class CancelingWork:
    """Awaits work, and is canceled where that waits for the `step`-th time."""

    def __init__(self, work: Awaitable[Any], step: int) -> None:
        self._work = work
        self._step = step

    def __await__(self) -> Generator[Any, Any, Any]:
        task, work, step, failure = asyncio.current_task(), self._work.__await__(), 0, None
        assert task is not None
        while True:
            try:
                waits_for = work.send(None) if failure is None else work.throw(failure)  # type: ignore[attr-defined]
            except StopIteration as end:
                return end.value
            step += 1
            if step == self._step:
                task.cancel()
            failure = None
            try:
                yield waits_for
            except BaseException as error:  # noqa: BLE001 - it is the work's
                failure = error


async def is_canceled(work: Awaitable[Any], step: int) -> bool:
    """Cancel work at a step. False when it had ended before."""

    async def run() -> Any:
        return await CancelingWork(work, step)

    try:
        await asyncio.create_task(run())
    except asyncio.CancelledError:
        return True
    return False


class Desk:
    """An engine, its agent, and what they count: runs by text, runs of the caller, memory."""

    def __init__(self) -> None:
        self.engine: Any = None
        self.runs: Counter[str] = Counter()
        self.memory = MemoryQuota(1_000_000)
        self.notices: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def run(self, ctx: Any) -> Any:
        self.runs[ctx.text] += 1
        if ctx.text.startswith("ask") and ctx.resume is None:
            yield Ask("?", ref=ctx.task_id)
            return
        if ctx.text.startswith("listen"):
            async for message in ctx.messages():
                self.runs[message.text] += 1
                break
        await self.gate.wait()
        yield "one "
        yield "two"

    async def take_notice(self, ref: str) -> None:
        """What the agent does when a waiting task is canceled."""
        await asyncio.sleep(0)
        self.notices.append(ref)

    def request(self, text: str, **options: Any) -> Any:
        return self.engine.request(text, message_id=str(uuid4()), **options)

    async def send(self, request: Any, *, stream: bool = False) -> Any:
        """Send a message as a binding does: the memory of the request is released at its end."""
        lease = Lease(self.memory, CALLER)
        lease.resize(1000)
        try:
            if not stream:
                return (await self.engine.service.send(ME, request, CALLER, lease)).result
            stream_ = await self.engine.service.stream(ME, request, CALLER, lease)
            return [record async for batch in stream_.batches for record in batch.records]
        finally:
            lease.release()

    @property
    def counted(self) -> tuple[int, int]:
        """How many runs and bytes count for the caller."""
        return self.engine.service._quota.tasks.counts.get(CALLER, 0), self.memory.used

    async def settle(self) -> None:
        """Wait until nothing goes on, and check that nothing is left."""
        await self.engine.idle()
        async with asyncio.timeout(10):
            while self.engine.left() or self.counted != (0, 0):  # noqa: ASYNC110
                await asyncio.sleep(0)
        service = self.engine.service
        assert service._quota._streams_open == service._follower.open_count == 0
        assert not (service._quota._runs or service._quota._leases or service._quota.streams.counts)


@pytest.fixture(params=["memory", "sqlite"])
async def desk(request: pytest.FixtureRequest, start: Any, tmp_path: Path) -> Desk:
    desk = Desk()
    store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "tasks.db")
    desk.engine = await start(desk.run, store=store, settings=EngineSettings(drain=0, caller_tasks=5, caller_streams=5))
    desk.engine.service.canceler._agent.canceled = desk.take_notice
    return desk


async def every_step(case: Callable[[int], Awaitable[bool]]) -> int:
    """Run a case with a cancellation at each step, until there is none left to cancel. Returns how many there were."""
    for step in range(1, MOST_STEPS):
        if not await case(step):
            return step - 1
    raise AssertionError("it never ends")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_message_that_was_accepted_is_worked_on_once_and_its_repeat_finds_it(desk: Desk, stream: bool) -> None:
    async def case(step: int) -> bool:
        request = desk.request(f"go {step}")
        canceled = await is_canceled(desk.send(request, stream=stream), step)
        await desk.settle()
        assert desk.runs[f"go {step}"] == 1
        task = await desk.send(request)
        assert (task.state, desk.runs[f"go {step}"]) == (State.COMPLETED, 1)
        await desk.settle()
        return canceled

    assert await every_step(case)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_run_counts_for_its_caller_though_nobody_waits_for_it(desk: Desk, stream: bool) -> None:
    async def case(step: int) -> bool:
        desk.gate.clear()
        sending = asyncio.create_task(is_canceled(desk.send(desk.request("go"), stream=stream), step))
        async with asyncio.timeout(10):
            while not sending.done() and not desk.runs["go"]:  # noqa: ASYNC110
                await asyncio.sleep(0)
            while desk.runs["go"] != 1:  # noqa: ASYNC110
                await asyncio.sleep(0)
        assert desk.counted == (1, 1000)
        desk.gate.set()
        canceled = await sending
        await desk.settle()
        desk.runs.clear()
        return canceled

    assert await every_step(case)


async def test_an_answer_continues_its_task_once_or_can_be_given_again(desk: Desk) -> None:
    async def case(step: int) -> bool:
        task = await desk.send(desk.request("ask"))
        assert task.state is State.INPUT_REQUIRED
        await desk.settle()
        answer = desk.request(f"answer {step}", task=task)
        desk.gate.clear()
        answering = asyncio.create_task(is_canceled(desk.send(answer), step))
        async with asyncio.timeout(10):
            while not desk.runs[f"answer {step}"]:  # noqa: ASYNC110
                await asyncio.sleep(0)
        assert desk.counted[0] == 1
        desk.gate.set()
        canceled = await answering
        await desk.settle()
        assert (await desk.send(answer)).state is State.COMPLETED
        assert desk.runs[f"answer {step}"] == 1
        await desk.settle()
        return canceled

    assert await every_step(case)


async def test_a_message_to_a_working_task_is_delivered_once(desk: Desk) -> None:
    async def case(step: int) -> bool:
        task = await desk.send(desk.request("listen", wait=False))
        message = desk.request(f"more {step}", task=task)
        canceled = await is_canceled(desk.send(message), step)
        await desk.settle()
        assert (await desk.send(message)).state is State.COMPLETED
        assert desk.runs[f"more {step}"] == 1
        await desk.settle()
        return canceled

    assert await every_step(case)


@pytest.mark.parametrize("text", ["go", "ask"])
async def test_a_task_that_was_to_be_canceled_has_ended_or_can_be_canceled(desk: Desk, text: str) -> None:
    service = desk.engine.service

    async def case(step: int) -> bool:
        desk.gate.clear()
        task = await desk.send(desk.request(text, wait=text == "ask"))
        canceled = await is_canceled(service.cancel(ME, CancelTaskRequest(task.id)), step)
        with contextlib.suppress(TaskNotCancelable):  # it goes on, though its caller has given up
            await desk.engine.cancel(task)
        assert (await desk.engine.get(task)).state is State.CANCELED
        await desk.settle()
        desk.gate.set()
        assert desk.notices == ([task.id] if text == "ask" else [])
        with pytest.raises(TaskNotCancelable):
            await desk.engine.cancel(task)
        desk.notices.clear()
        return canceled

    assert await every_step(case)


async def test_a_reader_that_stops_leaves_nothing_behind(desk: Desk) -> None:
    service = desk.engine.service
    desk.gate.clear()
    task = await desk.send(desk.request("go", wait=False))

    async def subscribe() -> None:
        stream = await service.subscribe(ME, SubscribeToTaskRequest(task.id), None, CALLER)
        try:
            async for _ in stream.batches:
                await asyncio.sleep(0)
        finally:
            await stream.batches.aclose()

    async def poll() -> None:
        await service.get(ME, GetTaskRequest(task.id, current_generation=2))

    for work in (subscribe, poll):
        # What they wait for in the end does not come, so every step is canceled.
        for step in range(1, 12):
            waiting = asyncio.create_task(is_canceled(work(), step))
            for _ in range(200):
                if waiting.done():
                    break
                await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            assert not service._bus.listeners
            assert service._quota._streams_open == service._follower.open_count == 0
    desk.gate.set()
    await desk.settle()
