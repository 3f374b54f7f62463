"""`ctx.latest`, the newest message of the caller, at every point of a task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dragoman import Agent, Context, Part
from dragoman.model.state import State
from dragoman.outputs import Ask
from dragoman.stores.sqlite.store import SqliteStore
from dragoman.sync import Context as SyncContext


def in_async(agent: Agent, seen: list[list[str]]) -> None:
    @agent.skill
    async def trip(ctx: Context, city: str) -> str:
        texts = [ctx.latest.text]
        seen.append(texts)
        await ctx.ask("How many days?")
        texts.append(ctx.latest.text)
        await ctx.ask("A picture?")
        texts.append(ctx.latest.text)
        return f"{city} {ctx.latest.files[0].raw!r}"


def in_def(agent: Agent, seen: list[list[str]]) -> None:
    @agent.skill
    def trip(ctx: SyncContext, city: str) -> str:
        texts = [ctx.latest.text]
        seen.append(texts)
        ctx.ask("How many days?")
        texts.append(ctx.latest.text)
        ctx.ask("A picture?")
        texts.append(ctx.latest.text)
        return f"{city} {ctx.latest.files[0].raw!r}"


@pytest.mark.parametrize("make", [in_async, in_def], ids=lambda make: make.__name__)
async def test_after_an_answer_the_newest_message_is_that_answer_also_in_code_that_runs_again_and_after_a_restart(
    start: Any, tmp_path: Path, make: Any
) -> None:
    seen: list[list[str]] = []

    async def restarted() -> Any:
        agent = Agent("test")
        make(agent, seen)
        return await start(agent, store=SqliteStore(tmp_path / "tasks.db"))

    engine = await restarted()
    task = await engine.send("Porto")
    task = await engine.send("three", task=task)
    await engine.connection.close()
    engine = await restarted()
    picture = Part(raw=b"png", media_type="image/png")
    task = await engine.send("here", parts=(picture,), task=task)
    assert (task.state, task.text) == (State.COMPLETED, "Porto b'png'")
    assert seen == [["Porto"], ["three", "three"], ["here", "here", "here"]]


async def test_a_follow_up_to_a_working_task_is_the_newest_message(start_skill: Any) -> None:
    async def listen(ctx: Context, text: str) -> list[str]:
        seen = [ctx.latest.text]
        async for _ in ctx.messages():
            await ctx.progress("I see")
            return [*seen, ctx.latest.text]
        return seen

    engine = await start_skill(listen)
    task = await engine.send("go", wait=False)
    await engine.send("and this", task=task, wait=False)
    assert (await engine.until_state(task, State.COMPLETED)).data == ["go", "and this"]


async def test_in_a_conversation_it_is_the_newest_message_of_this_task(start_skill: Any) -> None:
    async def echo(ctx: Context) -> str:
        return ctx.latest.text

    engine = await start_skill(echo)
    first = await engine.send("one")
    assert (await engine.send("two", context=first.context_id)).text == "two"


async def test_a_low_level_run_has_it_too(start: Any) -> None:
    async def run(ctx: Context) -> Any:
        if ctx.resume is None:
            yield Ask(f"after {ctx.latest.text}?")
        yield f"after {ctx.latest.text}"

    engine = await start(run)
    task = await engine.send("go")
    assert task.question == "after go?"
    assert (await engine.send("more", task=task)).text == "after more"
