"""The desk of session tasks, over an engine and an agent of any kind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from dragoman import Agent, Context, Failed, Rejected
from dragoman.bus.local import LocalBus
from dragoman.dialects.session_tasks import AskedTask
from dragoman.engine.call import Call
from dragoman.engine.operations import EngineSettings, Service
from dragoman.engine.ports import Sweep
from dragoman.model.error import InvalidParams, Overloaded, TaskNotFound
from dragoman.model.operation import CancelTaskRequest, GetTaskRequest, ListTasksRequest
from dragoman.model.state import State
from dragoman.model.task import Task
from dragoman.model.user import User
from dragoman.outputs import Ask, Reply
from dragoman.server.agent.adapter import EngineAgent
from dragoman.server.agent.base import Backend
from dragoman.server.invocation_guard import InvocationGuard
from dragoman.server.task_desk import TaskDesk, Workshop
from dragoman.stores.memory import MemoryStore
from dragoman.testing import Clock

SECONDS = 10
ME = Call()


class Shop:
    """An agent with its engine, and a desk before it."""

    def __init__(
        self, run: Callable[[Context], AsyncIterator[Any]], clock: Clock, desk: TaskDesk, **agent: Any
    ) -> None:
        self.clock, self.desk = clock, desk
        self.store, self.bus = MemoryStore(), LocalBus(clock)
        served = EngineAgent(Agent("test", Backend(run, **agent)))
        self.service = Service(served, self.store, self.bus, clock, EngineSettings(drain=0))
        self.place = Workshop("test", self.service, self.bus, clock)

    async def send(self, message: str = "go", call: Call = ME, **asked: Any) -> dict[str, Any]:
        async with asyncio.timeout(SECONDS):
            return await self.desk.send(self.place, call, AskedTask(message, **asked))

    async def get(self, task: dict[str, Any], call: Call = ME) -> dict[str, Any]:
        return await self.desk.get(call, task["id"])

    async def quiet(self) -> None:
        await self.clock.advance(0)


Open = Callable[..., Awaitable[Shop]]


@pytest.fixture
async def open_shop() -> AsyncIterator[Open]:
    shops: list[Shop] = []

    async def opened(run: Any, desk: TaskDesk | None = None, **agent: Any) -> Shop:
        clock = Clock()
        shop = Shop(run, clock, TaskDesk() if desk is None else desk, **agent)
        await shop.store.open()
        await shop.service.start()
        shops.append(shop)
        return shop

    yield opened
    for shop in shops:
        await shop.service.close()
        await shop.desk.close()
        await shop.quiet()
        assert shop.clock.pending == 0
        assert shop.bus.listeners == {}


def words(task: dict[str, Any]) -> list[str]:
    return [message["parts"][0]["text"] for message in task["messages"] if message["role"] == "agent"]


async def forever(ctx: Context) -> AsyncIterator[str]:
    await asyncio.Event().wait()
    yield "never"


async def at_once(ctx: Context) -> AsyncIterator[str]:
    yield "done"


# -- answering -----------------------------------------------------------------------------------------------------


async def test_a_task_that_works_is_given_at_once_and_its_result_to_who_asks_later(open_shop: Open) -> None:
    go = asyncio.Event()

    async def run(ctx: Context) -> AsyncIterator[str]:
        await go.wait()
        yield f"you said {ctx.text}"

    shop = await open_shop(run)
    task = await shop.send("hi")
    assert task["state"] == "working"
    go.set()
    await shop.quiet()
    ended = await shop.get(task)
    assert (ended["state"], words(ended)) == ("completed", ["you said hi"])


@pytest.mark.requirement("S3-4")
async def test_a_task_that_waits_for_its_turn_is_given_as_submitted_after_a_second(open_shop: Open) -> None:
    async def wait_for_turn(ctx: Context) -> None:
        await asyncio.Event().wait()

    shop = await open_shop(forever, prepare=wait_for_turn)
    sending = asyncio.create_task(shop.send(timeout_ms=1000))
    await shop.clock.advance(0.9)
    assert not sending.done()
    await shop.clock.advance(0.1)
    task = await sending
    assert task["state"] == "submitted"
    # The time counts from when the work begins.
    await shop.clock.advance(1000)
    assert (await shop.get(task))["state"] == "submitted"


async def test_a_task_is_an_ordinary_task_for_everybody_else(open_shop: Open) -> None:
    shop = await open_shop(at_once)
    task = await shop.send()
    await shop.quiet()
    kept = (await shop.service.get(ME, GetTaskRequest(task["id"]))).result
    assert isinstance(kept, Task)
    assert (kept.state, kept.text) == (State.COMPLETED, "done")
    assert [each.id for each in (await shop.service.list(ME, ListTasksRequest())).tasks] == [task["id"]]


async def test_an_answer_without_a_task_is_shown_as_one(open_shop: Open) -> None:
    async def run(ctx: Context) -> AsyncIterator[Any]:
        yield Reply(f"not {ctx.text}")

    shop = await open_shop(run)
    task = await shop.send("now")
    assert (task["state"], words(task)) == ("completed", ["not now"])
    assert await shop.get(task) == task


@pytest.mark.requirement("S3-66")
async def test_only_who_has_sent_a_task_is_told_of_it_and_only_by_the_desk_that_took_it(open_shop: Open) -> None:
    shop = await open_shop(at_once)
    ada, bob = Call(user=User("ada")), Call(user=User("bob"))
    task = await shop.send(call=ada)
    assert (await shop.get(task, ada))["id"] == task["id"]
    for other in (bob, ME):
        with pytest.raises(TaskNotFound):
            await shop.get(task, other)
    with pytest.raises(TaskNotFound):
        await shop.desk.get(ada, task["id"], "another agent")
    with pytest.raises(TaskNotFound):  # as after a restart
        await TaskDesk().get(ada, task["id"])


async def test_a_task_that_was_swept_away_is_not_found(open_shop: Open) -> None:
    shop = await open_shop(at_once)
    task = await shop.send()
    await shop.quiet()
    await shop.store.sweep(Sweep(keep_tasks=0))
    for _ in range(2):
        with pytest.raises(TaskNotFound):
            await shop.get(task)
    assert len(shop.desk) == 0


# -- ends ----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S3-28", "S3-30")
async def test_a_task_that_is_not_done_in_time_fails_and_its_run_is_stopped(open_shop: Open) -> None:
    stopped = asyncio.Event()

    async def run(ctx: Context) -> AsyncIterator[str]:
        yield "so far"
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    shop = await open_shop(run)
    task = await shop.send(timeout_ms=1000)
    await shop.clock.advance(0.999)
    assert (await shop.get(task))["state"] == "working"
    await shop.clock.advance(0.001)
    failed = await shop.get(task)
    assert (failed["state"], words(failed)[-1]) == ("failed", "Task timed out")
    assert stopped.is_set()
    assert (shop.clock.pending, shop.bus.listeners) == (0, {})


@pytest.mark.requirement("S3-30")
async def test_nothing_is_left_of_a_task_that_has_ended_by_itself(open_shop: Open) -> None:
    shop = await open_shop(at_once)
    task = await shop.send()
    await shop.quiet()
    assert (shop.clock.pending, shop.bus.listeners, len(shop.desk._errands)) == (0, {}, 0)
    ended = await shop.get(task)
    await shop.clock.advance(1000)
    assert await shop.get(task) == ended


async def test_a_task_that_asks_fails_because_nobody_can_answer(open_shop: Open) -> None:
    async def run(ctx: Context) -> AsyncIterator[Any]:
        assert not ctx.asks
        yield Ask("Which one?")

    shop = await open_shop(run)
    task = await shop.send()
    await shop.quiet()
    failed = await shop.get(task)
    assert failed["state"] == "failed"
    assert words(failed) == ["the agent asks, and cannot be answered here: Which one?"]
    assert shop.bus.listeners == {}


@pytest.mark.requirement("S3-4")
@pytest.mark.parametrize(("error", "text"), [(Failed("broke"), "broke"), (Rejected("not today"), "not today")])
async def test_what_fails_or_is_refused_has_failed(open_shop: Open, error: Exception, text: str) -> None:
    async def run(ctx: Context) -> AsyncIterator[str]:
        raise error
        yield ""

    shop = await open_shop(run)
    task = await shop.send()
    await shop.quiet()
    failed = await shop.get(task)
    assert (failed["state"], words(failed)) == ("failed", [text])


async def test_a_task_that_was_canceled_elsewhere_has_failed_and_has_no_timer(open_shop: Open) -> None:
    shop = await open_shop(forever)
    task = await shop.send()
    await shop.service.cancel(ME, CancelTaskRequest(task["id"]))
    await shop.quiet()
    assert (await shop.get(task))["state"] == "failed"
    assert shop.clock.pending == 0


@pytest.mark.requirement("S3-28")
async def test_the_time_of_a_task_is_watched_although_its_caller_has_left(open_shop: Open) -> None:
    shop = await open_shop(forever)
    sending = asyncio.create_task(shop.send(timeout_ms=1000))
    await asyncio.sleep(0)
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    await shop.quiet()
    [task_id] = shop.desk._slips
    await shop.clock.advance(1)
    assert (await shop.desk.get(ME, task_id))["state"] == "failed"


# -- how many ------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S3-25", "S3-26", "S3-27")
async def test_the_oldest_that_have_ended_go_and_none_that_goes_on(open_shop: Open) -> None:
    async def run(ctx: Context) -> AsyncIterator[str]:
        if ctx.text == "wait":
            await asyncio.Event().wait()
        yield "done"

    shop = await open_shop(run, TaskDesk(most=5, pruned=2))
    sent: list[dict[str, Any]] = []
    for text in ("wait", "1", "2", "3", "4", "5"):
        sent.append(await shop.send(text))
        await shop.quiet()
    known: list[bool] = [task["id"] in shop.desk._slips for task in sent]
    assert known == [True, False, False, True, True, True]
    assert len(shop.desk) == 4


@pytest.mark.requirement("S3-25", "S3-26", "S3-27")
async def test_a_thousand_are_left_of_a_burst_of_more_once_all_have_ended(open_shop: Open) -> None:
    go = asyncio.Event()

    async def run(ctx: Context) -> AsyncIterator[str]:
        await go.wait()
        yield "done"

    shop = await open_shop(run)
    sent = [(await shop.send())["id"] for _ in range(1200)]
    assert len(shop.desk) == 1200
    go.set()
    async with asyncio.timeout(SECONDS):
        while not all(slip.ended for slip in shop.desk._slips.values()):  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert len(shop.desk) == 1000
    assert [task_id in shop.desk._slips for task_id in sent] == [False] * 200 + [True] * 1000
    await shop.send()
    assert len(shop.desk) <= 1000


async def test_who_has_just_ended_is_still_known_although_there_are_too_many(open_shop: Open) -> None:
    go = asyncio.Event()

    async def run(ctx: Context) -> AsyncIterator[str]:
        await (go if ctx.text == "first" else asyncio.Event()).wait()
        yield "done"

    shop = await open_shop(run, TaskDesk(most=5, pruned=2))
    first, *_ = [await shop.send(text) for text in ("first", *"123456")]
    go.set()
    await shop.quiet()
    assert (await shop.get(first))["state"] == "completed"


# -- what is asked -------------------------------------------------------------------------------------------------


async def test_a_skill_and_a_depth_reach_the_agent(open_shop: Open) -> None:
    seen: list[Any] = []

    async def run(ctx: Context) -> AsyncIterator[str]:
        seen.append(ctx.metadata)
        yield "done"

    shop = await open_shop(run)
    await shop.send(skill="count", depth=2)
    await shop.send()
    await shop.quiet()
    assert seen == [{"skillId": "count", "dragoman/depth": 2}, {}]


async def test_a_chain_of_agents_that_is_too_long_begins_nothing(open_shop: Open) -> None:
    shop = await open_shop(at_once, TaskDesk(InvocationGuard(Clock())))
    await shop.send(depth=3)
    with pytest.raises(InvalidParams, match=r"^Invocation depth limit exceeded\.$"):
        await shop.send(depth=4)
    assert len(shop.desk) == 1


async def test_an_agent_that_sends_too_often_is_told_to_wait(open_shop: Open) -> None:
    shop = await open_shop(at_once, TaskDesk(InvocationGuard(Clock())))
    for _ in range(5):
        await shop.send(source="ada")
    with pytest.raises(Overloaded):
        await shop.send(source="ada")
    await shop.send(source="bob")
    assert len(shop.desk) == 6


async def test_the_rate_is_the_callers_own(open_shop: Open) -> None:
    shop = await open_shop(at_once, TaskDesk(InvocationGuard(Clock())))
    mallory, victim = Call(user=User("mallory")), Call(user=User("victim"))
    for _ in range(5):
        await shop.send(source="ada", call=mallory)
    await shop.send(source="ada", call=victim)
    with pytest.raises(Overloaded):
        await shop.send(source="ada", call=mallory)
