"""Asked, stopped, started again on the same file, answered: nothing is lost and nothing is doubled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.login_link import handle_of, link

from dragoman import Agent, Context, User
from dragoman.engine.call import CallContext
from dragoman.model.state import State
from dragoman.stores.sqlite.store import SqliteStore


class Server:
    """One server after the other on one file; each has a fresh agent, as a new process would."""

    def __init__(self, start: Any, path: Path, make: Callable[[Agent], None]) -> None:
        self._start = start
        self._path = path
        self._make = make
        self.engine: Any = None

    async def restart(self) -> Any:
        if self.engine is not None:
            await self.engine.connection.close()
        agent = Agent("test")
        self._make(agent)
        self.engine = await self._start(agent, store=SqliteStore(self._path))
        return self.engine


@pytest.fixture
def server(start: Any, tmp_path: Path) -> Callable[[Callable[[Agent], None]], Server]:
    return lambda make: Server(start, tmp_path / "tasks.db", make)


async def test_a_follow_up_with_only_a_task_id_sees_its_context_before_and_after_a_restart(server: Any) -> None:
    def make(agent: Agent) -> None:
        @agent.skill
        async def where(ctx: Context) -> str:
            await ctx.ask("one?")
            await ctx.ask("two?")
            return ctx.context_id

    servers = server(make)
    engine = await servers.restart()
    task = await engine.send("go")
    task = await engine.send("1", task=task.id)
    assert task.context_id == task.history[-1].context_id
    engine = await servers.restart()
    ended = await engine.send("2", task=task.id)
    assert ended.text == task.context_id == ended.context_id
    assert {message.context_id for message in ended.history} == {task.context_id}


async def test_state_once_and_the_caller_survive_a_restart(server: Any) -> None:
    paid: list[int] = []

    def make(agent: Agent) -> None:
        @agent.skill(permission="key")
        async def pay(ctx: Context) -> Any:
            seen = dict(ctx.state)
            ctx.state["paid"] = True
            receipt = await ctx.once("pay", lambda: paid.append(1) or len(paid))
            token = await ctx.ask_auth("Log in", url=link)
            return [seen, receipt, token, ctx.user and ctx.user.id, ctx.tenant, ctx.metadata]

    servers = server(make)
    me = CallContext(user=User("me", permissions=frozenset({"key"}), claims={"c": 1}), tenant="t")
    engine = await servers.restart()
    task = await engine.send("go", call=me, context="c", metadata={"k": 1})
    assert task.state is State.AUTH_REQUIRED
    engine = await servers.restart()
    await engine.service.resume(handle_of(task), {"token": "x"})  # a callback knows nothing of the caller
    await engine.idle()
    ended = await engine.get(task, call=me)
    assert ended.data == [{}, 1, {"token": "x"}, "me", "t", {"k": 1}]
    engine = await servers.restart()
    task = await engine.send("go", call=me, context="c")
    await engine.service.resume(handle_of(task))
    await engine.idle()
    assert (await engine.get(task, call=me)).data[0] == {"paid": True}
    assert paid == [1, 1]
