"""Credentials per call: one client serves many users, and none of them sees anything of another."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from typing import Any

import pytest
from support.stub_server import Stub, card, html, reply, task

from dragoman import Agent, Client, Context, Task, User, sync
from dragoman.auth import Basic
from dragoman.auth.outbound.credential import BaseCredential
from dragoman.client.connect import SHARED_CARDS
from dragoman.errors import AuthError, ConfigError, TaskNotFound
from dragoman.testing import served
from dragoman.transports.http import Request

CARD = "/.well-known/agent-card.json"
USERS = ["ada", "bob"]


@pytest.fixture(autouse=True)
def no_card_of_another_test() -> None:
    SHARED_CARDS.clear()


async def check(request: Request) -> User | None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return User(token.removesuffix("-token")) if scheme == "Bearer" else None


@pytest.fixture
def url() -> Iterator[str]:
    agent = Agent("private")

    @agent.skill
    async def who(ctx: Context, text: str = "") -> Any:
        yield f"{ctx.user.id} "
        yield await ctx.ask("Really?") if text == "ask" else text

    with served(agent, auth=check) as url:
        yield url


async def test_one_client_serves_many_users(url: str) -> None:
    async with Client(url) as client:
        answers = await asyncio.gather(
            *(client.send(f"{at}", auth=f"{name}-token") for at in range(10) for name in USERS)
        )
        assert [answer.text for answer in answers] == [f"{name} {at}" for at in range(10) for name in USERS]
        with pytest.raises(AuthError):
            await client.send("nobody")
        for name in USERS:
            tasks = [each async for each in client.list_tasks(auth=f"{name}-token", artifacts=True, page_size=3)]
            assert {each.text.split()[0] for each in tasks} == {name}
            assert len(tasks) == 10


async def test_every_kind_of_call_takes_credentials(url: str) -> None:
    async with Client(url) as client:
        ada, bob = (f"{name}-token" for name in USERS)
        stream = client.stream("ask", auth=ada)
        assert [piece async for piece in stream.text()] == ["ada "]
        asked = stream.task
        for call in (
            lambda: client.get_task(asked, auth=bob),
            lambda: client.wait(asked, auth=bob),
            lambda: client.cancel_task(asked, auth=bob),
            lambda: client.send("yes", task=asked, auth=bob),
            lambda: anext(aiter(client.subscribe(asked, auth=bob))),
            lambda: anext(aiter(client.stream("yes", task=asked, auth=bob))),
        ):
            with pytest.raises(TaskNotFound):
                await call()
        assert (await client.get_task(asked, auth=ada)).question == "Really?"
        assert (await client.wait(asked, auth=ada)).question == "Really?"
        answered = await client.send("yes", task=asked, auth=ada)
        assert answered.text == "ada yes"
        assert await client.call("who", auth=bob, text="x") == "bob x"
        chat = client.chat(auth=bob)
        assert (await chat.send("hello")).text == "bob hello"
        assert "".join([event.text async for event in chat.stream("again")]) == "bob again"
        parked = await client.send("ask", auth=bob)
        assert isinstance(parked, Task)
        assert (await client.cancel_task(parked, auth=bob)).state.final


async def test_the_credentials_of_a_call_replace_those_of_the_client(url: str) -> None:
    async with Client(url, auth="app-token") as client:
        assert (await client.send("x", auth="ada-token")).text == "ada x"
        assert (await client.send("x")).text == "app x"
        assert (await client.send("x", auth=lambda card, scheme: "bob-token")).text == "bob x"


def test_the_blocking_client_does_the_same(url: str) -> None:
    with sync.Client(url) as client:
        assert [client.send("x", auth=f"{name}-token").text for name in USERS] == ["ada x", "bob x"]
        assert "".join(client.stream("x", auth="ada-token").text()) == "ada x"
        assert client.chat(auth="bob-token").send("x").text == "bob x"
        assert len(list(client.list_tasks(auth="ada-token"))) == 2


# -- cards -----------------------------------------------------------------------------------------------------------


def user_of(got: Any) -> str:
    return got.headers.get("authorization", "").removeprefix("Bearer ")


def agent_with_a_card_for_each(public: bool) -> Any:
    """An agent whose card names its reader, and shows nothing to strangers unless it is public."""

    def answer(got: Any) -> bytes:
        user = user_of(got)
        if got.path == CARD:
            return (
                html(401)
                if not public and not user
                else reply(card((f"{stub.url}/{user}", "jsonrpc"), name=user or "all"))
            )
        return reply({"jsonrpc": "2.0", "id": got.json["id"], "result": {"task": task()}})

    stub = Stub(answer)
    return stub


async def test_a_card_that_is_not_public_is_not_shown_to_the_next_user() -> None:
    async with agent_with_a_card_for_each(public=False) as stub, Client(stub.url, auth="app") as client:
        await client.send("x")
        await asyncio.gather(*(client.send("x", auth=name) for name in USERS * 3))
        await client.send("x")
        # Everybody calls the address on the card that was made for them.
        assert {(got.path, user_of(got)) for got in stub.posts} == {(f"/{each}", each) for each in ("app", *USERS)}
        assert (await client.card()).name == "app"


async def test_a_card_that_is_not_public_is_not_revalidated_for_the_next_user() -> None:
    def answer(got: Any) -> bytes:
        user = user_of(got)
        if got.path != CARD:
            return reply({"jsonrpc": "2.0", "id": got.json["id"], "result": {"task": task()}})
        if got.headers.get("if-none-match") == '"1"':
            return reply(b"", 304, "", ETag='"1"')
        return reply(card((f"{stub.url}/{user}", "jsonrpc")), ETag='"1"') if user else html(401)

    async with Stub(answer) as stub, Client(stub.url, auth="app") as client:
        await client.send("x")
        await client.send("x", auth="ada")
        assert [(got.path, user_of(got)) for got in stub.posts] == [("/app", "app"), ("/ada", "ada")]


async def test_a_card_that_is_public_is_fetched_once_for_all() -> None:
    async with agent_with_a_card_for_each(public=True) as stub, Client(stub.url) as client:
        for name in USERS * 3:
            await client.send("x", auth=name)
        assert stub.paths("GET") == [CARD]
        assert [user_of(got) for got in stub.got] == ["", *USERS * 3]
        assert (client.protocol, client.transport) == ("1.0", "jsonrpc")


# -- what cannot be ---------------------------------------------------------------------------------------------------


class Certificate(BaseCredential):
    """A credential that the connection carries."""

    def ssl_context(self, verify: Any) -> ssl.SSLContext:
        return ssl.create_default_context()

    async def apply(self, request: Any, card: Any, http: Any) -> None: ...


async def test_certificates_belong_to_a_client(url: str) -> None:
    async with Client(url) as client:
        with pytest.raises(ConfigError, match=r"cannot be a certificate: make a Client with it"):
            await client.send("x", auth=Certificate())
    async with Client(url, auth=Certificate()) as client:
        with pytest.raises(ConfigError, match=r"certificate as its auth=.*verify="):
            await client.send("x", auth=Basic("ada", "secret"))


async def test_what_is_no_credential_is_refused_and_an_agent_in_this_process_checks_none(url: str) -> None:
    async with Client(url) as client:
        with pytest.raises(ConfigError, match="auth= takes a token"):
            await client.send("x", auth=3)
    async with Client(Agent("here")) as client:
        with pytest.raises(ConfigError, match="checks no credentials"):
            await client.send("x", auth="ada-token")
        with pytest.raises(ConfigError, match="checks no credentials"):
            await anext(aiter(client.stream("x", auth="ada-token")))
