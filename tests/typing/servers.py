"""What type checkers know about serving and testing."""

from typing import Any, assert_type

from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount

from dragoman import Agent, Server, Task, User
from dragoman.testing import Clock, faults, served
from dragoman.transports.http import Request

agent = Agent("served")


async def check(request: Request) -> User | None:
    token = request.headers.get("authorization")
    return User("ann", name="Ann", permissions=frozenset({"admin"}), claims={"sub": "ann"}) if token else None


def every_setting_is_a_keyword() -> None:
    settings: dict[str, Any] = {"log": "json"}
    agent.serve(host="127.0.0.1", port=0, store="memory:", auth=check, limits={"body": 1_000}, **settings)
    server = Server(agent, Agent("second"), card_version="1.0", url="https://agents.example.com")
    server.serve(drain=5, dedupe=0, dev=True)


def apps_can_be_mounted() -> None:
    app = FastAPI()
    app.mount("/first", agent.app(store="memory:"))
    Starlette(routes=[Mount("/second", Server(agent).app(trust_proxy=["10.0.0.0/8"]))])


async def apps_can_be_steered() -> None:
    app = agent.app()
    await app.start()
    assert_type(await app.resume("a-handle", {"token": "t"}), Task)
    await app.stop()


async def tests_get_a_port_a_clock_and_faults() -> None:
    with served(agent, card_version="0.3") as url:
        assert_type(url, str)
    with served(faults(Server(agent), cut_after=3, delay=0.5, garbage=True)) as url:
        assert_type(url, str)
    clock = Clock()
    clock.call_later(5, list[int]).cancel()
    clock.move(1)
    await clock.advance(2.5)
    assert_type(clock.now(), int)
    assert_type(clock.pending, int)
