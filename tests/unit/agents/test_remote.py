"""An agent in front of another, which is really there, on a port, and speaks each of the versions."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
from support.login_link import handle_of, link
from support.polling import until_async

from dragoman import Agent, Client, Context, Message, Rejected, State, Task
from dragoman.client.cards import CardCache
from dragoman.clock import SystemClock
from dragoman.errors import (
    A2AError,
    BadCard,
    CannotConnect,
    ConfigError,
    ContentTypeNotSupported,
    InvalidParams,
    Overloaded,
)
from dragoman.model.card import AgentExtension
from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.net.exchange import CallNext, HttpRequest, HttpResponse
from dragoman.outputs import Ask, Done, Reply
from dragoman.testing import served

VERSIONS = ["0.1", "0.3", "1.0", "1.1"]
WIDE = {"z": 1, "a": [1, 2.5, 1.0, -0.0, 10**18, "1"], "m": {"y": None, "b": True}, "": {}}


class Behind:
    """An agent, and what it has heard."""

    def __init__(self) -> None:
        self.agent = Agent("behind", description="Does the work", version="7.0")
        self.received: list[Message] = []
        self.contexts: list[str] = []
        self.began = threading.Event()
        self.ended: list[str] = []
        self.go_on = threading.Event()
        for skill in (
            self.words,
            self.add,
            self.note,
            self.log_in,
            self.several,
            self.wide,
            self.hello,
            self.refuse,
            self.wait,
            self.close,
        ):
            self.agent.skill(skill)

    async def words(self, ctx: Context, text: str = "") -> Any:
        """Say every word by itself."""
        self.received.append(ctx.message)
        for word in text.split():
            yield f"{word} "
            await asyncio.sleep(0)

    def add(self, a: int, b: int) -> int:
        return a + b

    async def note(self, ctx: Context) -> str:
        await ctx.progress("looking", 1, 2)
        await ctx.progress("looking")
        await ctx.progress("found")
        return "it"

    async def log_in(self, ctx: Context) -> Any:
        return {"got": await ctx.ask_auth("Log in, please", link)}

    async def several(self, ctx: Context) -> Any:
        await ctx.artifact("first", name="one", id="a-1", metadata={"k": 1})
        await ctx.artifact({"n": 2}, b"\x00\xff", name="two", id="a-2")
        yield "last"

    def wide(self) -> Any:
        return WIDE

    async def hello(self, ctx: Context) -> Reply:
        self.contexts.append(ctx.context_id)
        return Reply("hello")

    async def close(self) -> Any:
        yield {"rows": 3}
        yield Done("that was all")

    def refuse(self) -> None:
        raise Rejected("not for you")

    async def wait(self, ctx: Context) -> Any:
        """Say something, and the rest when the test says so."""
        self.received.append(ctx.message)
        try:
            yield "begun "
            self.began.set()
            await asyncio.to_thread(self.go_on.wait)
            yield "done"
            self.ended.append("done")
        except asyncio.CancelledError:
            self.ended.append("canceled")
            raise

    @contextmanager
    def served(self) -> Generator[str]:
        with served(self.agent) as url:
            yield url
            self.go_on.set()


@pytest.fixture(autouse=True)
def own_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port may have been another agent's a minute ago."""
    monkeypatch.setattr("dragoman.client.connect.SHARED_CARDS", CardCache(SystemClock()))


@pytest.fixture
def behind() -> Behind:
    return Behind()


@pytest.fixture
def address(behind: Behind) -> Generator[str]:
    with behind.served() as url:
        yield url


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return request.param


@asynccontextmanager
async def in_front(url: str | Agent, **options: Any) -> AsyncGenerator[Client]:
    """A client of an agent in front of the one at the address."""
    async with Client(Agent.from_a2a(url, **options)) as client:
        yield client


def updates(events: list[Any]) -> list[ArtifactUpdate]:
    return [event.raw for event in events if isinstance(event.raw, ArtifactUpdate)]


# Answers


async def test_values_come_through_as_they_were_returned(address: str, version: str) -> None:
    async with in_front(address, protocol=version) as client:
        # In 0.1 nothing marks a text as a number.
        assert await client.call("add", a=3, b=7) == ("10" if version == "0.1" else 10)
        assert (await client.send("once upon a time")).text == "once upon a time "
        assert json.dumps(await client.call("wide")) == json.dumps(WIDE)


async def test_progress_comes_through_with_its_numbers(address: str, version: str) -> None:
    async with in_front(address, protocol=version) as client:
        events = [event async for event in client.stream(tool="note")]
        notes = [event.raw for event in events if isinstance(event.raw, StatusUpdate) and event.raw.status.message]
        assert [note.status.message.text for note in notes if note.status.message] == ["looking", "looking", "found"]
        assert [note.metadata for note in notes] == [{"done": 1, "total": 2}, None, None]
        assert events[-1].task is not None
        assert events[-1].task.text == "it"


async def test_several_artifacts_keep_their_names_order_and_parts(address: str, version: str) -> None:
    async with in_front(address, protocol=version) as client:
        task = await client.send(tool="several")
        assert isinstance(task, Task)
        assert [artifact.name for artifact in task.artifacts] == ["one", "two", "several-result"]
        first, second, _ = task.artifacts
        assert first.metadata == {"k": 1}
        assert [part.kind for part in second.parts] == ["data", "raw"]
        assert (second.parts[0].data, second.parts[1].raw) == ({"n": 2}, b"\x00\xff")


@pytest.mark.parametrize("version", VERSIONS[1:])
async def test_an_answer_without_a_task_becomes_a_completed_task(behind: Behind, address: str, version: str) -> None:
    async with in_front(address, protocol=version) as client:
        task = await client.send(tool="hello")
        assert isinstance(task, Task)
        assert (task.state, task.text, task.artifacts) == (State.COMPLETED, "hello", ())
        assert await client.get_task(task) == task
        # It belongs to a conversation all the same.
        await client.send(tool="hello", context=task)
        assert behind.contexts[0] == behind.contexts[1]


async def test_a_closing_message_comes_through_beside_the_artifacts(address: str, version: str) -> None:
    async with in_front(address, protocol=version) as client:
        task = await client.send(tool="close")
        assert (task.state, task.data) == (State.COMPLETED, {"rows": 3})
        assert task.status.message is not None
        assert task.status.message.text == "that was all"


async def test_a_refusal_comes_through_with_its_reason(address: str, version: str) -> None:
    async with in_front(address, protocol=version) as client:
        task = await client.send(tool="refuse")
        # 0.1 has no word for a task that was refused.
        assert (task.state, task.error) == (State.FAILED if version == "0.1" else State.REJECTED, "not for you")


# Questions


async def test_a_login_request_comes_through_with_its_link(address: str, version: str) -> None:
    async with in_front(address, protocol=version) as client:
        task = await client.send(tool="log_in")
        # 0.1 has no word for a task that waits for a login.
        asks = State.INPUT_REQUIRED if version == "0.1" else State.AUTH_REQUIRED
        assert (task.state, task.question) == (asks, "Log in, please")
        assert isinstance(task, Task)
        assert task.status.message is not None
        assert handle_of(task)
        # What the caller says is passed on, and is no login there either.
        again = await client.send(data={"token": "t"}, task=task)
        assert (again.state, again.question) == (asks, "Log in, please")


async def test_the_text_of_an_agent_with_the_same_name_is_not_closed_twice() -> None:
    async def run(ctx: Context) -> AsyncGenerator[Any]:
        if ctx.resume is None:
            yield "one "
            yield Ask("And?")
        else:
            yield "two"

    with served(Agent("same", run=run)) as url:
        async with in_front(url) as client:
            task = await client.send("go")
            events = [event async for event in client.stream("on", task=task)]
            assert [(update.artifact.text, update.last_chunk) for update in updates(events)] == [("two", True)]


# Conversations


async def test_metadata_is_passed_on_and_nothing_else_of_a_message(behind: Behind, address: str) -> None:
    async with in_front(address, protocol="1.0") as client:
        await client.send("hi", metadata={"k": 1}, message_id="m-1")
        [received] = behind.received
        assert received.metadata == {"k": 1}
        assert received.message_id != "m-1"


async def test_callers_who_use_the_same_message_id_do_not_get_each_others_answers(address: str) -> None:
    front = Agent.from_a2a(address)

    async def whoever(request: Any) -> Any:
        from dragoman import User

        return User(request.headers["x-user"])

    with served(front, auth=whoever) as url:
        async with Client(url, headers={"X-User": "ada"}) as ada, Client(url, headers={"X-User": "bo"}) as bo:
            assert (await ada.send("secret", message_id="1")).text == "secret "
            assert (await bo.send("mine", message_id="1")).text == "mine "


# Cancel


async def test_canceling_reaches_a_remote_task_whose_id_is_not_yet_known(behind: Behind, address: str) -> None:
    sent, let_go = asyncio.Event(), asyncio.Event()

    async def late(request: HttpRequest, call_next: CallNext) -> HttpResponse:
        response = await call_next(request)
        if request.operation == "SendStreamingMessage":
            sent.set()
            await let_go.wait()
        return response

    async with in_front(address, interceptors=[late]) as client:
        task = await client.send(tool="wait", wait=False)
        assert isinstance(task, Task)
        await sent.wait()
        await client.cancel_task(task)
        let_go.set()
        await until_async(lambda: behind.ended)
        assert behind.ended == ["canceled"]


async def test_canceling_reaches_an_agent_that_does_not_stream(behind: Behind) -> None:
    behind.agent.card["capabilities"] = {"streaming": False}
    with behind.served() as url:
        async with in_front(url) as client:
            task = await client.send(tool="wait", wait=False)
            assert isinstance(task, Task)
            await until_async(behind.began.is_set)
            await client.cancel_task(task)
            await until_async(lambda: behind.ended)
            assert behind.ended == ["canceled"]


async def test_a_task_that_is_canceled_behind_fails_in_front(behind: Behind, address: str, version: str) -> None:
    async with in_front(address, protocol=version) as client, Client(address) as direct:
        task = await client.send(tool="wait", wait=False)
        await until_async(behind.began.is_set)
        async for each in direct.list_tasks():
            await direct.cancel_task(each)
        ended = await client.wait(task)
        assert (ended.state, ended.error) == (State.FAILED, "canceled by the agent behind this one")


# Trouble


async def test_the_agents_own_words_for_an_error_are_passed_on() -> None:
    behind = Agent("strict", extensions=[AgentExtension("urn:needed", required=True)])

    @behind.skill
    def nothing() -> None: ...

    with served(behind) as url:
        async with in_front(url) as client:
            task = await client.send("hi")
            assert task.state is State.FAILED
            assert task.error == ("the agent behind this one says: declare the extension in A2A-Extensions: urn:needed")


async def test_an_agent_that_is_away_fails_the_task_and_not_the_next(
    behind: Behind, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    away = False

    async def flaky(request: HttpRequest, call_next: CallNext) -> HttpResponse:
        if away:
            raise CannotConnect(f"{request.url} refused", arrived=False)
        return await call_next(request)

    async with in_front(address, interceptors=[flaky], retries=1) as client:
        for _ in range(2):
            away = True
            task = await client.send("hi")
            assert (task.state, task.error) == (State.FAILED, "the agent behind this one cannot be reached")
            away = False
            assert (await client.send("hi")).text == "hi "
    # Callers learn nothing of where it is; the log says it.
    assert address in caplog.text


def refusal(code: int, message: str) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": message}})


@pytest.mark.parametrize(
    ("status", "body", "text"),
    [
        (401, "{}", "the agent behind this one does not accept the credentials of this server"),
        (403, "no", "the agent behind this one does not accept the credentials of this server"),
        (503, "down", "the agent behind this one cannot be reached"),
        (200, "<html>", "the agent behind this one cannot be understood"),
        (200, refusal(-32008, "see http://10.0.0.1/x"), "the agent behind this one says: EXTENSION_SUPPORT_REQUIRED"),
    ],
)
async def test_no_error_shows_where_the_agent_behind_is(address: str, status: int, body: str, text: str) -> None:
    async with before_broken(address, status, body) as client:
        task = await client.send("hi")
        assert (task.state, task.error) == (State.FAILED, text)


@pytest.mark.parametrize(
    ("status", "body", "kind", "text"),
    [
        (429, "slow", Overloaded, "the agent behind this one is busy: try again later"),
        (200, refusal(-32602, "no such city"), InvalidParams, "the agent behind this one says: no such city"),
        (
            200,
            refusal(-32602, "see http://10.0.0.1/x"),
            InvalidParams,
            "the agent behind this one says: INVALID_PARAMS",
        ),
        (200, refusal(-32005, "no video"), ContentTypeNotSupported, "the agent behind this one says: no video"),
    ],
)
async def test_a_message_that_the_agent_behind_refuses_is_refused_here(
    address: str, status: int, body: str, kind: type[A2AError], text: str
) -> None:
    async with before_broken(address, status, body) as client:
        with pytest.raises(kind, match=re.escape(text)) as caught:
            await client.send("hi")
        failed = await client.get_task(caught.value.metadata["taskId"])
        assert (failed.state, failed.error) == (State.FAILED, text)


@asynccontextmanager
async def before_broken(address: str, status: int, body: str) -> AsyncGenerator[Client, None]:
    """A caller of an agent in front of one that answers every message so."""

    async def broken(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        await receive()
        kind = b"application/json" if body.startswith("{") else b"text/html"
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]})
        await send({"type": "http.response.body", "body": body.encode()})

    with served(broken) as other:

        async def elsewhere(request: HttpRequest, call_next: CallNext) -> HttpResponse:
            if request.method == "POST":
                request.url = other
            return await call_next(request)

        async with in_front(address, interceptors=[elsewhere], retries=0) as client:
            yield client


async def test_an_agent_that_cannot_be_called_is_refused_at_construction() -> None:
    async def nothing(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 404, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    with pytest.raises(ConfigError):
        Agent.from_a2a("not an address")
    with pytest.raises(CannotConnect):
        Agent.from_a2a("http://127.0.0.1:1")
    with served(nothing) as url, pytest.raises(BadCard):
        Agent.from_a2a(url)


# The card, and who calls


async def test_the_card_in_front_has_the_skills_of_the_one_behind_and_addresses_of_its_own(
    behind: Behind, address: str
) -> None:
    with served(Agent.from_a2a(address)) as url:
        async with Client(url) as client, Client(address) as direct:
            ours, theirs = await client.card(), await direct.card()
            assert (ours.name, ours.description, ours.version) == ("behind", "Does the work", "7.0")
            assert ours.skills == theirs.skills
            assert {interface.url for interface in ours.supported_interfaces} == {url, f"{url}/a2a"}


async def test_the_front_says_who_it_is_and_not_who_calls_it(behind: Behind, address: str) -> None:
    sent: list[dict[str, str]] = []

    async def look(request: HttpRequest, call_next: CallNext) -> HttpResponse:
        sent.append(dict(request.headers))
        return await call_next(request)

    from dragoman.auth import Bearer

    front = Agent.from_a2a(address, auth=Bearer("ours"), interceptors=[look])
    with served(front) as url:
        async with Client(url, auth=Bearer("theirs"), headers={"X-Mine": "1", "Cookie": "c=1"}) as client:
            assert (await client.send("hi")).text == "hi "
    calls = [headers for headers in sent if headers.get("Content-Type") == "application/json"]
    assert calls
    assert all(headers["Authorization"] == "Bearer ours" for headers in calls)
    assert not any("X-Mine" in headers or "Cookie" in headers or "theirs" in str(headers) for headers in sent)


def test_an_agent_in_front_of_one_in_this_process_needs_no_address() -> None:
    behind = Behind()

    async def go() -> Any:
        async with in_front(behind.agent) as client:
            return await client.call("add", a=1, b=2)

    assert asyncio.run(go()) == 3


async def test_canceling_a_task_that_waits_cancels_the_one_behind() -> None:
    behind = Agent("behind")

    @behind.skill(default=True)
    async def asks(ctx: Context) -> str:
        return await ctx.ask("Well?")

    with served(behind, store="memory:") as url:
        async with Client(Agent.from_a2a(url, name="front")) as client, Client(url) as direct:
            task = await client.send("go")
            assert task.question == "Well?"
            (there,) = [each async for each in direct.list_tasks()]
            assert there.state is State.INPUT_REQUIRED
            assert (await client.cancel_task(task)).state is State.CANCELED
            assert (await direct.get_task(there)).state is State.CANCELED
