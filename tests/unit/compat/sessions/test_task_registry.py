"""The registry of session tasks, over an engine and an agent of any kind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from dragoman import Agent, Context, Failed, Rejected
from dragoman.bus.local import LocalBus
from dragoman.compat.sessions.dialect import SessionTaskRequest
from dragoman.compat.sessions.invocation_guard import InvocationGuard
from dragoman.compat.sessions.registry import AgentEngine, TaskRegistry
from dragoman.engine.call import CallContext
from dragoman.engine.operations import Service
from dragoman.engine.ports.store import Sweep
from dragoman.engine.settings import EngineSettings
from dragoman.model.error import Overloaded, TaskNotFound
from dragoman.model.operation import CancelTaskRequest
from dragoman.model.user import User
from dragoman.outputs import Ask, Reply
from dragoman.server.agent.adapter import EngineAgent
from dragoman.server.agent.base import Backend
from dragoman.stores.memory import MemoryStore
from dragoman.testing import Clock

SECONDS = 10
ME = CallContext()


class EngineUnderTest:
    """An agent with its engine, and a registry before it."""

    def __init__(
        self, run: Callable[[Context], AsyncIterator[Any]], clock: Clock, registry: TaskRegistry, **agent: Any
    ) -> None:
        self.clock, self.registry = clock, registry
        self.store, self.bus = MemoryStore(), LocalBus(clock)
        prepare = agent.pop("prepare", None)
        made = Agent("test", run=run, **agent) if prepare is None else Agent("test", Backend(run, prepare=prepare))
        self.service = Service(EngineAgent(made), self.store, self.bus, clock, EngineSettings(drain=0))
        self.place = AgentEngine("test", self.service, self.bus, clock)

    async def send(self, message: str = "go", call: CallContext = ME, **asked: Any) -> dict[str, Any]:
        async with asyncio.timeout(SECONDS):
            return await self.registry.send(self.place, call, SessionTaskRequest(message, **asked))

    async def get(self, task: dict[str, Any], call: CallContext = ME) -> dict[str, Any]:
        return await self.registry.get(call, task["id"])

    async def quiet(self) -> None:
        await self.clock.advance(0)


Open = Callable[..., Awaitable[EngineUnderTest]]


@pytest.fixture
async def open_engine() -> AsyncIterator[Open]:
    engines: list[EngineUnderTest] = []

    async def opened(run: Any, registry: TaskRegistry | None = None, **agent: Any) -> EngineUnderTest:
        clock = Clock()
        engine = EngineUnderTest(run, clock, TaskRegistry() if registry is None else registry, **agent)
        await engine.store.open()
        await engine.service.start()
        engines.append(engine)
        return engine

    yield opened
    for engine in engines:
        await engine.service.close()
        await engine.registry.close()
        await engine.quiet()
        assert engine.clock.pending == 0
        assert engine.bus.listeners == {}


def words(task: dict[str, Any]) -> list[str]:
    return [message["parts"][0]["text"] for message in task["messages"] if message["role"] == "agent"]


async def forever(ctx: Context) -> AsyncIterator[str]:
    await asyncio.Event().wait()
    yield "never"


async def at_once(ctx: Context) -> AsyncIterator[str]:
    yield "done"


# -- answering -----------------------------------------------------------------------------------------------------


async def test_a_working_task_is_returned_at_once_and_its_result_can_be_read_later(open_engine: Open) -> None:
    go = asyncio.Event()

    async def run(ctx: Context) -> AsyncIterator[str]:
        await go.wait()
        yield f"you said {ctx.text}"

    engine = await open_engine(run)
    task = await engine.send("hi")
    assert task["state"] == "working"
    go.set()
    await engine.quiet()
    ended = await engine.get(task)
    assert (ended["state"], words(ended)) == ("completed", ["you said hi"])


@pytest.mark.requirement("S3-4")
async def test_a_task_that_waits_for_its_turn_is_given_as_submitted_after_a_second(open_engine: Open) -> None:
    async def wait_for_turn(ctx: Context) -> None:
        await asyncio.Event().wait()

    engine = await open_engine(forever, prepare=wait_for_turn)
    sending = asyncio.create_task(engine.send(timeout_ms=1000))
    await engine.clock.advance(0.9)
    assert not sending.done()
    await engine.clock.advance(0.1)
    task = await sending
    assert task["state"] == "submitted"
    # The time counts from when the work begins.
    await engine.clock.advance(1000)
    assert (await engine.get(task))["state"] == "submitted"


async def test_an_answer_without_a_task_is_shown_as_one(open_engine: Open) -> None:
    async def run(ctx: Context) -> AsyncIterator[Any]:
        yield Reply(f"not {ctx.text}")

    engine = await open_engine(run)
    task = await engine.send("now")
    assert (task["state"], words(task)) == ("completed", ["not now"])
    assert await engine.get(task) == task


@pytest.mark.requirement("S3-66")
async def test_a_task_is_shown_to_its_sender_alone_and_only_by_the_registry_that_took_it(open_engine: Open) -> None:
    engine = await open_engine(at_once)
    ada, bob = CallContext(user=User("ada")), CallContext(user=User("bob"))
    task = await engine.send(call=ada)
    assert (await engine.get(task, ada))["id"] == task["id"]
    for other in (bob, ME):
        with pytest.raises(TaskNotFound):
            await engine.get(task, other)
    with pytest.raises(TaskNotFound):
        await engine.registry.get(ada, task["id"], "another agent")
    with pytest.raises(TaskNotFound):  # as after a restart
        await TaskRegistry().get(ada, task["id"])


async def test_a_task_that_was_swept_away_is_not_found(open_engine: Open) -> None:
    engine = await open_engine(at_once)
    task = await engine.send()
    await engine.quiet()
    await engine.store.sweep(Sweep(keep_tasks=0))
    for _ in range(2):
        with pytest.raises(TaskNotFound):
            await engine.get(task)
    assert len(engine.registry) == 0


# -- ends ----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S3-28", "S3-30")
async def test_a_task_that_is_not_done_in_time_fails_and_its_run_is_stopped(open_engine: Open) -> None:
    stopped = asyncio.Event()

    async def run(ctx: Context) -> AsyncIterator[str]:
        yield "so far"
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    engine = await open_engine(run)
    task = await engine.send(timeout_ms=1000)
    await engine.clock.advance(0.999)
    assert (await engine.get(task))["state"] == "working"
    await engine.clock.advance(0.001)
    failed = await engine.get(task)
    assert (failed["state"], words(failed)[-1]) == ("failed", "Task timed out")
    assert stopped.is_set()
    assert (engine.clock.pending, engine.bus.listeners) == (0, {})


@pytest.mark.requirement("S3-30")
async def test_nothing_is_left_of_a_task_that_has_ended_by_itself(open_engine: Open) -> None:
    engine = await open_engine(at_once)
    task = await engine.send()
    await engine.quiet()
    assert (engine.clock.pending, engine.bus.listeners, len(engine.registry._background)) == (0, {}, 0)
    ended = await engine.get(task)
    await engine.clock.advance(1000)
    assert await engine.get(task) == ended


async def test_a_task_that_asks_fails_because_nobody_can_answer(open_engine: Open) -> None:
    async def run(ctx: Context) -> AsyncIterator[Any]:
        assert not ctx.asks
        yield Ask("Which one?")

    engine = await open_engine(run)
    task = await engine.send()
    await engine.quiet()
    failed = await engine.get(task)
    assert failed["state"] == "failed"
    assert words(failed) == ["the agent asks, and cannot be answered here: Which one?"]
    assert engine.bus.listeners == {}


@pytest.mark.requirement("S3-4")
@pytest.mark.parametrize(("error", "text"), [(Failed("broke"), "broke"), (Rejected("not today"), "not today")])
async def test_what_fails_or_is_refused_has_failed(open_engine: Open, error: Exception, text: str) -> None:
    async def run(ctx: Context) -> AsyncIterator[str]:
        raise error
        yield ""

    engine = await open_engine(run)
    task = await engine.send()
    await engine.quiet()
    failed = await engine.get(task)
    assert (failed["state"], words(failed)) == ("failed", [text])


async def test_a_task_that_was_canceled_elsewhere_has_failed_and_has_no_timer(open_engine: Open) -> None:
    engine = await open_engine(forever)
    task = await engine.send()
    await engine.service.cancel(ME, CancelTaskRequest(task["id"]))
    await engine.quiet()
    assert (await engine.get(task))["state"] == "failed"
    assert engine.clock.pending == 0


@pytest.mark.requirement("S3-28")
async def test_the_time_of_a_task_is_watched_although_its_caller_has_left(open_engine: Open) -> None:
    engine = await open_engine(forever)
    sending = asyncio.create_task(engine.send(timeout_ms=1000))
    await asyncio.sleep(0)
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    await engine.quiet()
    [task_id] = engine.registry._entries
    await engine.clock.advance(1)
    assert (await engine.registry.get(ME, task_id))["state"] == "failed"


# -- how many ------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S3-25", "S3-26", "S3-27")
async def test_the_oldest_ended_tasks_are_pruned_and_no_working_one(open_engine: Open) -> None:
    async def run(ctx: Context) -> AsyncIterator[str]:
        if ctx.text == "wait":
            await asyncio.Event().wait()
        yield "done"

    engine = await open_engine(run, TaskRegistry(max_tasks=5, prune_count=2))
    sent: list[dict[str, Any]] = []
    for text in ("wait", "1", "2", "3", "4", "5"):
        sent.append(await engine.send(text))
        await engine.quiet()
    known: list[bool] = [task["id"] in engine.registry._entries for task in sent]
    assert known == [True, False, False, True, True, True]
    assert len(engine.registry) == 4


@pytest.mark.requirement("S3-25", "S3-26", "S3-27")
async def test_a_thousand_are_left_of_a_burst_of_more_once_all_have_ended(open_engine: Open) -> None:
    go = asyncio.Event()

    async def run(ctx: Context) -> AsyncIterator[str]:
        await go.wait()
        yield "done"

    engine = await open_engine(run)
    sent = [(await engine.send())["id"] for _ in range(1200)]
    assert len(engine.registry) == 1200
    go.set()
    async with asyncio.timeout(SECONDS):
        while not all(entry.has_ended for entry in engine.registry._entries.values()):  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert len(engine.registry) == 1000
    assert [task_id in engine.registry._entries for task_id in sent] == [False] * 200 + [True] * 1000
    await engine.send()
    assert len(engine.registry) <= 1000


async def test_a_task_that_has_just_ended_is_still_known_when_there_are_too_many(open_engine: Open) -> None:
    go = asyncio.Event()

    async def run(ctx: Context) -> AsyncIterator[str]:
        await (go if ctx.text == "first" else asyncio.Event()).wait()
        yield "done"

    engine = await open_engine(run, TaskRegistry(max_tasks=5, prune_count=2))
    first, *_ = [await engine.send(text) for text in ("first", *"123456")]
    go.set()
    await engine.quiet()
    assert (await engine.get(first))["state"] == "completed"


# -- what is asked -------------------------------------------------------------------------------------------------


async def test_a_skill_and_a_depth_reach_the_agent(open_engine: Open) -> None:
    seen: list[Any] = []

    async def run(ctx: Context) -> AsyncIterator[str]:
        seen.append(ctx.metadata)
        yield "done"

    engine = await open_engine(run)
    await engine.send(skill="count", depth=2)
    await engine.send()
    await engine.quiet()
    assert seen == [{"skillId": "count", "dragoman/depth": 2}, {}]


async def test_the_rate_is_the_callers_own(open_engine: Open) -> None:
    engine = await open_engine(at_once, TaskRegistry(InvocationGuard(Clock())))
    mallory, victim = CallContext(user=User("mallory")), CallContext(user=User("victim"))
    for _ in range(5):
        await engine.send(source="ada", call=mallory)
    await engine.send(source="ada", call=victim)
    with pytest.raises(Overloaded):
        await engine.send(source="ada", call=mallory)
