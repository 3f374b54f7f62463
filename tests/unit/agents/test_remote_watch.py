"""A task in front of another agent goes on by itself when the task behind does; its caller sends nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.login_link import handle_of, link

from dragoman import Agent, Client, Context
from dragoman.engine.accept.watch import LAST_SECONDS, READS_AT_ONCE, READS_PER_SECOND
from dragoman.engine.ports.agent import ForeignTasks
from dragoman.model.part import Part
from dragoman.model.state import State
from dragoman.outputs import Ask
from dragoman.server.agent.base import Backend
from dragoman.stores.sqlite.store import SqliteStore
from dragoman.testing import served

SECONDS = 20
VERSIONS = pytest.mark.parametrize("version", ["0.1", "0.3", "1.0", "1.1"])


class Behind:
    """The agent behind: on a port, with the logins that its own code reports."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        agent = Agent("behind")

        @agent.skill
        async def today(ctx: Context) -> str:
            self.loop = asyncio.get_running_loop()
            return f"Hello {await ctx.ask_auth('Log in', url=link)}"

        @agent.skill
        async def trip(ctx: Context) -> str:
            return f"{await ctx.ask('Where to?')} for {await ctx.ask('How long?')}"

        self.app = agent.app(store="memory:", drain=0)
        self.url = ""

    async def log_in(self, handle: str, name: str) -> None:
        assert self.loop is not None
        resuming = asyncio.run_coroutine_threadsafe(self.app.resume(handle, name), self.loop)
        await asyncio.wrap_future(resuming)


@pytest.fixture
def behind() -> Iterator[Behind]:
    behind = Behind()
    with served(behind.app) as behind.url:
        yield behind


def call(skill: str) -> dict[str, Any]:
    return {"parts": (Part(data={"tool": skill, "arguments": {}}),)}


async def later(engine: Any, clock: Any, task: Any, state: State) -> Any:
    """The task in front, when it is in this state; time passes meanwhile."""
    async with asyncio.timeout(SECONDS):
        while (found := await engine.get(task)).state is not state:
            await clock.advance(1)
    return found


@VERSIONS
async def test_after_a_login_behind_the_task_in_front_completes(
    start: Any, clock: Any, behind: Behind, version: str
) -> None:
    front = await start(Agent.from_a2a(behind.url, protocol=version))
    task = await front.send(None, **call("today"))
    assert task.state is (State.INPUT_REQUIRED if version == "0.1" else State.AUTH_REQUIRED)
    await clock.advance(30)
    assert await front.get(task) == task
    await behind.log_in(handle_of(task), "Ann")
    ended = await later(front, clock, task, State.COMPLETED)
    assert ended.text == "Hello Ann"
    assert len([message for message in ended.history if message.role == "ROLE_USER"]) == 1


async def test_a_front_that_starts_again_takes_up_the_watch(
    start: Any, clock: Any, behind: Behind, tmp_path: Path
) -> None:
    before = await start(Agent.from_a2a(behind.url), store=SqliteStore(tmp_path / "tasks.db"))
    task = await before.send(None, **call("today"))
    await before.connection.close()
    await behind.log_in(handle_of(task), "Ann")
    after = await start(Agent.from_a2a(behind.url), store=SqliteStore(tmp_path / "tasks.db"))
    assert (await later(after, clock, task, State.COMPLETED)).text == "Hello Ann"


async def test_a_question_that_was_answered_behind_becomes_the_next_one(start: Any, clock: Any, behind: Behind) -> None:
    front = await start(Agent.from_a2a(behind.url))
    task = await front.send(None, **call("trip"))
    assert task.question == "Where to?"
    async with Client(behind.url) as somebody:
        (there,) = [each async for each in somebody.list_tasks()]
        await somebody.send("Faro", task=there)
        async with asyncio.timeout(SECONDS):
            while (task := await front.get(task)).question != "How long?":
                await clock.advance(1)
    assert (await front.send("a week", task=task)).text == "Faro for a week"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_after_a_login_behind_an_agent_of_adk_the_task_in_front_completes(
    start: Any, clock: Any, behind: Behind
) -> None:
    adk = pytest.importorskip("dragoman.adk")
    remote = adk.RemoteAgent(name="far", url=behind.url)
    front = await start(Agent.from_adk(remote))
    task = await front.send("today")
    assert (task.state, task.question) == (State.AUTH_REQUIRED, "Log in")
    async with Client(behind.url) as somebody:
        (there,) = [each async for each in somebody.list_tasks()]
        await behind.log_in(handle_of(await somebody.get_task(there)), "Ann")
    assert (await later(front, clock, task, State.COMPLETED)).text.endswith("Hello Ann")
    await remote.close()


# -- how often it looks ------------------------------------------------------------------------------------------------


class Foreign:
    """A foreign task that never goes on, and how often it was asked."""

    def __init__(self, clock: Any) -> None:
        self.reads: list[int] = []
        self.at_once = self.most_at_once = 0
        self.moved = False
        self._clock = clock
        self.gate = asyncio.Event()
        self.gate.set()
        self.agent = Agent("front", Backend(self.run, foreign=ForeignTasks("there", self.has_moved)))

    async def run(self, ctx: Any) -> AsyncIterator[Any]:
        yield Ask("?", ref={"n": 1}, auth=True, forwards=True) if ctx.resume is None else f"<{ctx.text}>"

    async def has_moved(self, ref: Any) -> bool:
        assert ref == {"n": 1}
        self.reads.append(self._clock.now())
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self.gate.wait()
        finally:
            self.at_once -= 1
        return self.moved


async def test_it_looks_ever_less_often_and_stops_with_the_task(start: Any, clock: Any) -> None:
    foreign = Foreign(clock)
    engine = await start(foreign.agent)
    task = await engine.send()
    began = clock.now()
    for _ in range(600):
        await clock.advance(1)
    gaps = [after - before for before, after in zip([began, *foreign.reads], foreign.reads, strict=False)]
    assert 1500 <= gaps[0] <= 3000
    assert max(gaps) <= LAST_SECONDS * 1000 + 2000
    assert 12 <= len(gaps) <= 18
    await engine.cancel(task)
    await clock.advance(120)
    seen = len(foreign.reads)
    await clock.advance(600)
    assert len(foreign.reads) == seen


async def test_a_foreign_task_that_moved_continues_the_task_without_a_message(start: Any, clock: Any) -> None:
    foreign = Foreign(clock)
    engine = await start(foreign.agent)
    task = await engine.send("go")
    foreign.moved = True
    assert (await later(engine, clock, task, State.COMPLETED)).text == "<>"


async def test_of_one_address_few_are_read_at_a_time_and_of_all_few_in_a_second(start: Any, clock: Any) -> None:
    foreign = Foreign(clock)
    engine = await start(foreign.agent)
    for _ in range(120):
        await engine.send()
    foreign.gate.clear()
    await clock.advance(3)
    assert foreign.most_at_once == foreign.at_once == READS_AT_ONCE
    foreign.gate.set()
    for _ in range(200):
        await clock.advance(0.05)
    seconds = [sum(at <= each < at + 1000 for each in foreign.reads) for at in foreign.reads]
    assert max(seconds) <= READS_PER_SECOND + READS_AT_ONCE
    assert foreign.most_at_once == READS_AT_ONCE


async def test_a_foreign_agent_that_cannot_be_read_is_tried_again(start: Any, clock: Any) -> None:
    foreign = Foreign(clock)
    fails = [OSError("boom"), TimeoutError()]

    async def has_moved(ref: Any) -> bool:
        if fails:
            raise fails.pop()
        return True

    engine = await start(Agent("front", Backend(foreign.run, foreign=ForeignTasks("there", has_moved))))
    task = await engine.send("go")
    await later(engine, clock, task, State.COMPLETED)
    assert fails == []
