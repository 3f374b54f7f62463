"""`App.resume`: a task that waits for a login goes on from code of the server's own."""

from __future__ import annotations

import asyncio
import urllib.request
from typing import Any

import pytest
from support.login_link import handle_of, link

from dragoman import Agent, Client, Context, Server
from dragoman.errors import InvalidParams
from dragoman.model.state import State
from dragoman.testing import served


def agent_that_asks(name: str) -> Agent:
    agent = Agent(name)

    @agent.skill
    async def today(ctx: Context) -> str:
        return f"{name}: {await ctx.ask_auth('Log in', url=link)}"

    return agent


async def test_a_handle_finds_its_agent_and_its_task() -> None:
    app = Server(agent_that_asks("one"), agent_that_asks("two"), store="memory:").app()

    async def with_callback(scope: Any, receive: Any, send: Any) -> None:
        if scope.get("path") != "/callback":
            await app(scope, receive, send)
            return
        task = await app.resume(scope["query_string"].decode(), "Ann")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": task.id.encode()})

    with served(with_callback) as url:
        for name in ("one", "two"):
            async with Client(f"{url}/agents/{name}") as client:
                task = await client.send("go")
                assert await asyncio.to_thread(_read, f"{url}/callback?{handle_of(task)}") == task.id
                async with asyncio.timeout(10):
                    while not (ended := await client.get_task(task.id)).state.final:
                        pass
                assert (ended.state, ended.text) == (State.COMPLETED, f"{name}: Ann")


def _read(url: str) -> str:
    with urllib.request.urlopen(url) as response:
        return response.read().decode()


@pytest.mark.parametrize("wrong", ["", "t", "a.b", "a.dHdv", "x." + "é", "\ud800", None, 7])
async def test_an_invalid_handle_is_refused_with_what_a_handle_is(wrong: Any) -> None:
    app = Server(agent_that_asks("one"), store="memory:").app()
    try:
        with pytest.raises(InvalidParams, match=r"takes the handle that ask_auth gives to url=.*a task id") as no:
            await app.resume(wrong)
        assert no.value.field == "handle"
    finally:
        await app.stop()
