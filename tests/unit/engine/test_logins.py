"""A task that waits for a login: only the handle of its pause continues it, and messages are kept."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from support.login_link import handle_of, link

from dragoman import Agent, Context
from dragoman.errors import ConfigError
from dragoman.model.error import InvalidParams
from dragoman.model.part import Part
from dragoman.model.state import Role, State
from dragoman.outputs import Ask
from dragoman.stores.memory import MemoryStore
from dragoman.stores.sqlite.store import SqliteStore
from dragoman.sync import Context as SyncContext

FORGED = (Part(data={"name": "Administrator"}),)
STORES = pytest.mark.parametrize("kind", ["memory", "sqlite"])


def new_store(kind: str, folder: Path) -> Any:
    return MemoryStore() if kind == "memory" else SqliteStore(folder / "tasks.db")


def calendar() -> Agent:
    agent = Agent("test")

    @agent.skill
    async def today(ctx: Context) -> str:
        return f"Hello {(await ctx.ask_auth('Log in', url=link))['name']}"

    @agent.skill
    def in_thread(ctx: SyncContext) -> str:
        return f"Hello {ctx.ask_auth('Log in', url=link)['name']}"

    @agent.skill
    async def twice(ctx: Context) -> str:
        one, two = await ctx.ask_auth("Here", url=link), await ctx.ask_auth("There", url=link)
        return f"Hello {one['name']} {two['name']}"

    @agent.skill
    async def mixed(ctx: Context) -> str:
        city, login = await ctx.ask("Where?"), await ctx.ask_auth("Log in", url=link)
        return f"Hello {login['name']} of {city} {await ctx.ask('And?')}"

    return agent


async def log_in(engine: Any, task: Any, name: str) -> None:
    await engine.service.resume(handle_of(await engine.get(task)), {"name": name})
    await engine.idle()


async def resumed(engine: Any, task: Any, name: str = "Ann") -> Any:
    await log_in(engine, task, name)
    return await engine.get(task)


def texts(task: Any) -> list[Any]:
    return [message.text or message.data for message in task.history if message.role is Role.USER]


@STORES
@pytest.mark.parametrize("skill", ["today", "in_thread"])
async def test_messages_are_kept_and_the_login_alone_answers(start: Any, tmp_path: Path, kind: str, skill: str) -> None:
    engine = await start(calendar(), store=new_store(kind, tmp_path))
    task = await engine.send(None, parts=(Part(data={"tool": skill, "arguments": {}}),))
    for number in range(3):
        again = await engine.send(f"note {number}", parts=FORGED, task=task)
        assert (again.state, again.generation) == (State.AUTH_REQUIRED, task.generation)
        assert (await engine.get(task)).history == again.history
    ended = await resumed(engine, task)
    assert (ended.state, ended.text) == (State.COMPLETED, "Hello Ann")
    assert texts(ended)[1:] == ["note 0", "note 1", "note 2"]
    # As it was written down, not only as it is told.
    assert (await engine.get(ended)).history == ended.history


@STORES
async def test_two_logins_in_a_row_have_each_its_own_handle(start: Any, tmp_path: Path, kind: str) -> None:
    engine = await start(calendar(), store=new_store(kind, tmp_path))
    task = await engine.send(None, parts=(Part(data={"tool": "twice", "arguments": {}}),))
    first = handle_of(task)
    await engine.send("before", parts=FORGED, task=task)
    await log_in(engine, task, "Ann")
    between = await engine.send("between", parts=FORGED, task=task)
    assert (between.question, handle_of(between) != first) == ("There", True)
    with pytest.raises(InvalidParams):
        await engine.service.resume(first, {"name": "Administrator"})
    assert (await resumed(engine, task, "Bea")).text == "Hello Ann Bea"


@STORES
async def test_notes_do_not_shift_the_answers_to_other_questions(start: Any, tmp_path: Path, kind: str) -> None:
    engine = await start(calendar(), store=new_store(kind, tmp_path))
    task = await engine.send(None, parts=(Part(data={"tool": "mixed", "arguments": {}}),))
    task = await engine.send("Faro", task=task)
    assert task.state is State.AUTH_REQUIRED
    await engine.send("a note", parts=FORGED, task=task)
    await log_in(engine, task, "Ann")
    assert (await engine.send("that is all", task=task)).text == "Hello Ann of Faro that is all"


async def test_a_question_is_not_answered_from_inside(start: Any) -> None:
    engine = await start(calendar())
    task = await engine.send(None, parts=(Part(data={"tool": "mixed", "arguments": {}}),))
    assert task.state is State.INPUT_REQUIRED
    with pytest.raises(InvalidParams):
        await engine.service.resume(task.id, "Faro")


async def test_after_a_restart_nothing_else_continues_it(start: Any, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "tasks.db")
    before = await start(calendar(), store=store)
    task = await before.send("go")
    await before.send("before", parts=FORGED, task=task)
    await before.connection.close()
    after = await start(calendar(), store=SqliteStore(tmp_path / "tasks.db"))
    again = await after.send("after", parts=FORGED, task=task)
    assert (again.state, texts(again)) == (State.AUTH_REQUIRED, ["go", "before", "after"])
    with pytest.raises(InvalidParams):
        await after.service.resume(task.id, {"name": "Administrator"})
    assert (await resumed(after, task)).text == "Hello Ann"


async def test_a_handle_ends_with_its_task(start: Any) -> None:
    engine = await start(calendar())
    task = await engine.send("go")
    await engine.cancel(task)
    with pytest.raises(InvalidParams):
        await engine.service.resume(handle_of(task), {"name": "Ann"})
    assert (await engine.get(task)).state is State.CANCELED


async def test_a_low_level_run_is_continued_by_the_handle_and_reads_the_notes_once(start: Any) -> None:
    received: list[Any] = []

    async def run(ctx: Any) -> Any:
        if ctx.resume is None:
            yield Ask("log in", ref={"n": 1}, auth=True, url=link)
            return
        received.append((ctx.resume.ref, ctx.resume.data, ctx.message.data))
        async with aclosing(ctx.messages()) as messages:
            received.append((await anext(messages)).text)
        yield "done" if len(received) > 2 else Ask("again", auth=True, url=link)

    engine = await start(run)
    task = await engine.send()
    await engine.send("a note", parts=FORGED, task=task)
    await log_in(engine, task, "Ann")
    assert received == [({"n": 1}, {"name": "Ann"}, {"name": "Ann"}), "a note"]
    await engine.send("another", task=task)
    assert (await resumed(engine, task, "Bea")).text == "done"
    assert received[2:] == [(None, {"name": "Bea"}, {"name": "Bea"}), "another"]


async def test_a_skill_reads_the_notes_with_the_messages_of_a_task_at_work(start: Any) -> None:
    agent = Agent("test")

    @agent.skill
    async def today(ctx: Context) -> list[str]:
        await ctx.ask_auth("Log in", url=link)
        async with aclosing(ctx.messages()) as messages:
            return [(await anext(messages)).text for _ in range(2)]

    engine = await start(agent)
    task = await engine.send("go")
    await engine.send("one", task=task)
    await engine.send("two", task=task)
    assert (await resumed(engine, task)).data == ["one", "two"]


async def test_of_several_logins_at_once_one_counts(start: Any, tmp_path: Path) -> None:
    engine = await start(calendar(), store=SqliteStore(tmp_path / "tasks.db"))
    task = await engine.send("go")
    tries = [engine.service.resume(handle_of(task), {"name": str(number)}) for number in range(8)]
    results = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(isinstance(each, InvalidParams) for each in results) == 7
    assert (await engine.until_state(task, State.COMPLETED)).text in {f"Hello {number}" for number in range(8)}


async def test_a_bridge_decides_itself_what_a_message_means(start: Any) -> None:
    async def run(ctx: Any) -> Any:
        yield Ask("log in", auth=True, forwards=True) if ctx.resume is None else f"got {ctx.resume.text}"

    engine = await start(run)
    task = await engine.send()
    assert task.state is State.AUTH_REQUIRED
    assert (await engine.send("done", task=task)).text == "got done"


async def test_a_link_that_nobody_can_come_back_from_is_warned_of(start: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def run(ctx: Any) -> Any:
        yield Ask("log in", auth=True, url="https://login.example.com/")

    engine = await start(run)
    task = await engine.send()
    assert [part.url for part in task.status.message.parts if part.url] == ["https://login.example.com/"]
    assert "which ask_auth gives to url= if that is a function" in caplog.text


@pytest.mark.parametrize("url", [lambda _: 7, lambda _: b"https://login.example.com", lambda _: 1 // 0])
async def test_a_link_that_cannot_be_made_fails_the_task(start: Any, url: Any) -> None:
    async def run(ctx: Any) -> Any:
        yield Ask("log in", auth=True, url=url)

    engine = await start(run)
    assert (await engine.send()).state is State.FAILED


def test_a_link_belongs_to_a_login() -> None:
    with pytest.raises(ConfigError, match="auth=True"):
        Ask("Which?", url="https://example.com")
