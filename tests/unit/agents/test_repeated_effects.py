"""With `dev`, effects before a question are warned about: after the answer they happen again."""

from __future__ import annotations

import asyncio
import inspect
import logging
import sqlite3
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from dragoman import Agent, Client, Context, Task
from dragoman.agents.functions import effects
from dragoman.sync import Context as SyncContext


async def pay() -> str:
    await asyncio.sleep(0)
    return "paid"


async def waits_in_a_helper(ctx: Context) -> str:
    await slow()  # waits
    return await ctx.ask("Sure?")


async def waits_between_questions(ctx: Context) -> AsyncIterator[str]:
    await ctx.ask("Who?")
    yield "a"
    await slow()  # waits
    await ctx.ask("Sure?")
    await slow()
    yield "b"


async def writes(ctx: Context) -> str:
    with tempfile.TemporaryFile("w"):  # writes a file
        return await ctx.ask("Sure?")


def writes_in_a_thread(ctx: SyncContext) -> Iterator[str]:
    tempfile.TemporaryFile("w").close()  # writes a file
    yield ctx.ask("Sure?")


async def connects(ctx: Context) -> str:
    sqlite3.connect(":memory:").close()  # opens a database
    return await ctx.ask("Sure?")


async def slow() -> None:
    await asyncio.to_thread(len, "")


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects, "_warned", set())


async def warnings_of(skill: Any, caplog: pytest.LogCaptureFixture, *, dev: bool = True) -> list[str]:
    """Answer all questions of a skill, and give what was logged about it."""
    agent = Agent("careless")
    agent.skill(skill)
    agent.functions.finds_effects = dev
    with caplog.at_level(logging.WARNING):
        async with Client(agent) as client:
            task = await client.send(tool=skill.__name__, arguments={})
            while isinstance(task, Task) and task.question is not None:
                task = await client.send("yes", task=task)
    assert isinstance(task, Task) and task.error is None, task
    return [record.getMessage() for record in caplog.records if record.name == "dragoman.agent"]


CARELESS = [waits_in_a_helper, waits_between_questions, writes, writes_in_a_thread, connects]


@pytest.mark.parametrize("skill", CARELESS, ids=lambda skill: skill.__name__)
async def test_an_effect_before_a_question_is_warned_about_once_with_its_line(
    skill: Any, caplog: pytest.LogCaptureFixture
) -> None:
    source = inspect.getsource(sys.modules[__name__]).splitlines()
    start = skill.__code__.co_firstlineno
    line = next(number for number, text in enumerate(source[start:], start + 1) if "  # " in text)
    effect = source[line - 1].partition("  # ")[2]
    (warning,) = await warnings_of(skill, caplog)
    assert warning == (
        f"test_repeated_effects.py, line {line}: `{skill.__name__}` {effect} before it asks 'Sure?', and does it again "
        "after every answer: wrap what must happen only once in `ctx.once(key, function, ...)`"
    )
    assert await warnings_of(skill, caplog) == [warning], "one warning is enough"


async def test_without_dev_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert await warnings_of(writes, caplog, dev=False) == []


async def test_effects_in_once_or_after_the_last_question_are_fine(caplog: pytest.LogCaptureFixture) -> None:
    async def careful(ctx: Context) -> AsyncIterator[str]:
        yield "first "
        await ctx.progress("half")
        await ctx.artifact("x")
        await ctx.once("pay", pay)
        await ctx.once("write", lambda: tempfile.TemporaryFile("w").close())
        await asyncio.gather(ctx.once("a", pay), ctx.once("b", slow_once))
        await asyncio.sleep(0)
        "text".upper()
        yield await ctx.ask("Sure?")
        await slow()
        tempfile.TemporaryFile("w").close()
        yield "last"

    async def slow_once() -> None:
        await slow()

    assert await warnings_of(careful, caplog) == []


async def test_a_watched_skill_runs_as_any_other() -> None:
    agent = Agent("careless")
    agent.functions.finds_effects = True
    begun, closed = asyncio.Event(), asyncio.Event()

    @agent.skill
    async def stuck(ctx: Context) -> AsyncIterator[str]:
        try:
            yield "on"
            begun.set()
            await asyncio.Event().wait()
        finally:
            closed.set()

    @agent.skill
    async def broken(ctx: Context) -> str:
        try:
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        except TimeoutError:
            raise ValueError("no") from None
        return ""

    async with Client(agent) as client:
        failed = await client.send(tool="broken", arguments={})
        assert isinstance(failed, Task) and "reference" in failed.error
        task = await client.send(tool="stuck", arguments={}, wait=False)
        await begun.wait()
        await client.cancel_task(task)
        await closed.wait()
