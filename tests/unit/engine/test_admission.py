"""Who is let in, and under which name: chosen task ids, demanded extensions, limits."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.login_link import handle_of, link

from dragoman import User
from dragoman.engine.call import CallContext
from dragoman.model.error import (
    InvalidParams,
    UnsupportedOperation,
)
from dragoman.model.state import State
from dragoman.outputs import Ask, Reply
from dragoman.stores.sqlite.store import SqliteStore


class Gate:
    """An agent that goes on when it is let, and may reply."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.runs = 0

    async def run(self, ctx: Any) -> Any:
        self.runs += 1
        await self.open.wait()
        yield Reply("hi") if ctx.text == "reply" else "done"


async def asking(ctx: Any) -> Any:
    yield Ask("?") if ctx.resume is None else f"answered {ctx.resume.text}"


# Ids that callers choose, as version 0.1 lets them


async def test_a_caller_may_choose_the_id_of_a_task_and_go_on_with_it(start: Any) -> None:
    engine = await start(asking)
    task = await engine.send("go", new_task_id="mine")
    assert (task.id, task.state) == ("mine", State.INPUT_REQUIRED)
    ended = await engine.send("3", new_task_id="mine")
    assert (ended.id, ended.text) == ("mine", "answered 3")
    with pytest.raises(UnsupportedOperation):
        await engine.send("more", new_task_id="mine")


async def test_two_messages_with_one_new_id_at_once_make_one_task(start: Any, turns: Any) -> None:
    agent = Gate()
    engine = await start(agent.run)  # whether there will be a task at all is open until the first output
    sending = [engine.sending("go", new_task_id="mine") for _ in range(2)]
    await turns()
    agent.open.set()
    first, second = await asyncio.gather(*sending, return_exceptions=True)
    assert first.state is State.COMPLETED
    assert isinstance(second, UnsupportedOperation) or second.state is State.COMPLETED
    assert agent.runs == 1
    assert len((await engine.list()).tasks) == 1


async def test_an_id_that_was_answered_without_a_task_is_free(start: Any, turns: Any) -> None:
    agent = Gate()
    engine = await start(agent.run)
    sending = [engine.sending(text, new_task_id="mine") for text in ("reply", "go")]
    await turns()
    agent.open.set()
    reply, task = await asyncio.gather(*sending)
    assert (reply.text, task.id, task.state) == ("hi", "mine", State.COMPLETED)


async def test_two_who_choose_one_id_at_one_moment_do_not_harm_each_other(start: Any, tmp_path: Path) -> None:
    async def run(ctx: Any) -> Any:
        yield f"for {ctx.user.id}"

    engine = await start(run, store=SqliteStore(tmp_path / "t.db"))
    ada, eve = CallContext(User("ada")), CallContext(User("eve"))
    sent = await asyncio.gather(
        *(engine.send("go", new_task_id="mine", call=call) for call in (ada, eve)), return_exceptions=True
    )
    assert (sent[0].state, sent[0].text) == (State.COMPLETED, "for ada")
    assert isinstance(sent[1], InvalidParams)
    assert (await engine.get("mine", call=ada)).state is State.COMPLETED


# Races that only a store with a disk shows


@pytest.mark.parametrize("number", [2, 5])
async def test_of_many_callbacks_and_answers_at_once_one_answers(start: Any, tmp_path: Path, number: int) -> None:
    async def run(ctx: Any) -> Any:
        yield Ask("log in", auth=True, url=link) if ctx.resume is None else f"number {ctx.resume.data}"

    engine = await start(run, store=SqliteStore(tmp_path / "tasks.db"))
    task = await engine.send()
    await engine.idle()
    handle = handle_of(task)
    results = await asyncio.gather(*(engine.service.resume(handle, n) for n in range(number)), return_exceptions=True)
    assert sum(isinstance(result, InvalidParams) for result in results) == number - 1
    ended = await engine.until_state(task, State.COMPLETED)
    assert ended.text == f"number {next(n for n in range(number) if not isinstance(results[n], Exception))}"
    await engine.idle()
    assert engine.left() == {}
