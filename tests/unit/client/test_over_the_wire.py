"""Our client and our server, over a real port: every operation in every version and over every transport."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman import Agent, Client, Context, Failed, File, Message, State, Task
from dragoman.errors import (
    InputRequired,
    MethodNotFound,
    TaskFailed,
    TaskNotCancelable,
    TaskNotFound,
    UnsupportedOperation,
)
from dragoman.outputs import Reply
from dragoman.sync import Client as SyncClient
from dragoman.testing import served

WIRES = [
    ("1.1", "jsonrpc"),
    ("1.1", "rest"),
    ("1.1", "grpc"),
    ("1.0", "jsonrpc"),
    ("1.0", "rest"),
    ("1.0", "grpc"),
    ("0.3", "jsonrpc"),
    ("0.3", "rest"),
    ("0.3", "grpc"),
    ("0.2", "jsonrpc"),
    ("0.1", "jsonrpc"),
]
HOOK = "http://127.0.0.1:9/hook"


def desk() -> Agent:
    agent = Agent("desk", description="Answers at the front desk")

    @agent.skill(default=True)
    async def dinner(ctx: Context, restaurant: str) -> Any:
        """Reserve a table."""
        people = await ctx.ask("How many people?", type=int)
        yield f"{restaurant}, "
        yield f"table for {people}"

    @agent.skill
    def add_numbers(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @agent.skill
    async def slow(ctx: Context) -> Any:
        await ctx.progress("on my way")
        await asyncio.Event().wait()
        yield ""

    @agent.skill
    async def menu(ctx: Context) -> Any:
        await ctx.progress("asking the cook", done=1, total=2)
        yield File(b"# Soup", name="menu.md")

    @agent.skill
    def fails() -> None:
        raise Failed("the kitchen is closed")

    @agent.skill
    def hello(name: str = "you") -> Reply:
        return Reply(f"hello {name}")

    @agent.skill
    async def echo(ctx: Context) -> list[Any]:
        return list(ctx.files)

    @agent.skill
    async def whose(ctx: Context) -> str:
        return ctx.context_id

    return agent


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served(desk(), store="memory:", push_allow=["127.0.0.1"], grpc=0) as url:
        yield url


@pytest.fixture(params=WIRES, ids=lambda wire: "-".join(wire))
async def client(url: str, request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    protocol, transport = request.param
    async with Client(url, protocol=protocol, transport=transport) as client:
        yield client


def version_of(request: pytest.FixtureRequest) -> str:
    return request.node.callspec.params["client"][0]


@pytest.mark.requirement("S2-1", "S2-49", "S2-107")
async def test_a_tool_is_called_and_a_question_answered(client: Client, request: pytest.FixtureRequest) -> None:
    # 0.1 cannot say that a text is a number.
    assert await client.call("add_numbers", a=3, b=7) == ("10" if version_of(request) == "0.1" else 10)
    task = await client.send("Chez Ada")
    assert isinstance(task, Task)
    assert (task.state, task.question) == (State.INPUT_REQUIRED, "How many people?")
    stream = client.stream("4", task=task)
    assert "".join([event.text async for event in stream]) == "Chez Ada, table for 4"
    assert (stream.task.id, stream.task.state) == (task.id, State.COMPLETED)
    assert stream.task.text == "Chez Ada, table for 4"


async def test_progress_and_files_arrive(client: Client, tmp_path: Path) -> None:
    stream = client.stream(tool="menu")
    assert [event.progress async for event in stream if event.progress] == [("asking the cook", 1, 2)]
    (file,) = stream.task.files
    assert (file.name, file.bytes) == ("menu.md", b"# Soup")
    assert file.save(tmp_path).read_bytes() == b"# Soup"


async def test_progress_comes_to_who_does_not_await(url: str) -> None:
    def read() -> list[Any]:
        with SyncClient(url) as client:
            return [event.progress.done for event in client.stream(tool="menu") if event.progress]

    assert await asyncio.to_thread(read) == [1]


async def test_each_error_arrives_as_its_own_class(client: Client) -> None:
    failed = await client.send(tool="fails")
    assert (failed.state, failed.error) == (State.FAILED, "the kitchen is closed")
    with pytest.raises(TaskFailed, match="the kitchen is closed"):
        await client.call("fails")
    with pytest.raises(InputRequired, match="How many people"):
        await client.call("dinner", restaurant="Chez Ada")
    with pytest.raises(TaskNotFound):
        await client.get_task("nobody's")
    with pytest.raises(TaskNotCancelable):
        assert isinstance(failed, Task)
        await client.cancel_task(failed)
    with pytest.raises(UnsupportedOperation):
        async for _ in client.subscribe(failed):
            pass


async def test_a_task_is_followed_waited_for_and_canceled(client: Client) -> None:
    task = await client.send(tool="slow", wait=False)
    assert isinstance(task, Task)
    following = client.subscribe(task)
    states: list[State] = []
    waiting: asyncio.Task[Task] | None = None
    async for event in following:
        states.append(event.state)
        if waiting is None:
            waiting = asyncio.ensure_future(client.wait(task))
            assert (await client.cancel_task(task)).state is State.CANCELED
    assert states[-1] is State.CANCELED
    assert waiting is not None
    assert (await waiting).state is State.CANCELED
    assert (await client.get_task(task.id)).state is State.CANCELED


async def test_a_bare_answer_is_a_message_where_the_version_has_it(
    client: Client, request: pytest.FixtureRequest
) -> None:
    answer = await client.send(tool="hello", arguments={"name": "Ada"})
    assert answer.text == "hello Ada"
    assert isinstance(answer, Task if version_of(request) == "0.1" else Message)


async def test_files_come_back_as_they_went(client: Client) -> None:
    answer = await client.send(tool="echo", files=[File(b"\x00\x01\xff", name="blob.bin")])
    (file,) = answer.files
    assert (file.raw, file.filename) == (b"\x00\x01\xff", "blob.bin")


async def test_tasks_are_listed_where_the_version_can(client: Client, request: pytest.FixtureRequest) -> None:
    task = await client.send("Chez Ada")
    if version_of(request).startswith("0."):
        with pytest.raises(MethodNotFound, match="has no ListTasks"):
            await anext(client.list_tasks())
        return
    found = [each.id async for each in client.list_tasks(context=task, state="input-required", page_size=1)]
    assert isinstance(task, Task)
    assert found == [task.id]


async def test_a_webhook_is_made_shown_and_removed(client: Client, request: pytest.FixtureRequest) -> None:
    task = await client.send("Chez Ada", push=HOOK)
    made = await client.create_push_config(task, HOOK, id="hook", token="not shown again")
    assert made.url == HOOK
    if version_of(request) == "0.1":
        assert (await client.get_push_config(task, "")).url == HOOK
        return
    assert (await client.get_push_config(task, "hook")).token is None
    configs = await client.list_push_configs(task)
    assert len(configs) == 2
    assert {config.url for config in configs} == {HOOK}
    await client.delete_push_config(task, "hook")
    await client.delete_push_config(task, "hook")
    assert len(await client.list_push_configs(task)) == 1


async def test_a_chat_remembers_its_conversation_and_its_open_question(client: Client) -> None:
    chat = client.chat()
    await chat.send("Chez Ada")
    assert chat.question == "How many people?"
    assert (await chat.send("2")).text == "Chez Ada, table for 2"
    assert chat.question is None
    place = chat.context_id
    assert place
    assert (await chat.send(tool="whose")).text == place
    assert "".join([event.text async for event in chat.stream(tool="whose")]) == place
    assert "".join([piece async for piece in chat.stream(tool="whose").text()]) == place
    assert chat.context_id == place


async def test_an_agent_is_a_typed_function(client: Client, request: pytest.FixtureRequest) -> None:
    await client.card()
    ask, add = client.as_tool(), client.as_tool(tool="add_numbers")
    assert (ask.__name__, add.__name__) == ("desk", "add_numbers")
    assert inspect.signature(ask) == inspect.Signature(
        [inspect.Parameter("message", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=str)], return_annotation=str
    )
    assert "Answers at the front desk" in (ask.__doc__ or "")
    assert "Add two numbers." in (add.__doc__ or "")
    assert await add({"a": 1, "b": 2}) == ("3" if version_of(request) == "0.1" else 3)
    with pytest.raises(InputRequired):
        await ask("Chez Ada")


def test_the_same_without_await(url: str) -> None:
    with SyncClient(url) as client:
        assert client.call("add_numbers", a=1, b=2) == 3
        task = client.send("Chez Ada")
        assert "".join(event.text for event in client.stream("2", task=task)) == "Chez Ada, table for 2"
        assert client.as_tool(tool="add_numbers")({"a": 2, "b": 2}) == 4
        assert isinstance(task, Task)
        assert task.id in [each.id for each in client.list_tasks(context=task)]
        chat = client.chat()
        chat.send("Chez Ada")
        assert chat.question == "How many people?"
        assert "".join(chat.stream("2").text()) == "Chez Ada, table for 2"
        assert chat.question is None
        assert client.card().name == "desk"


async def test_the_client_without_await_works_inside_a_running_loop(url: str) -> None:
    with SyncClient(url) as client:
        for event in client.stream("Chez Ada"):
            if event.state.waiting:
                break
        assert client.call("add_numbers", a=1, b=2) == 3


async def test_a_client_calls_an_app_and_an_agent_in_any_version_without_a_port() -> None:
    agent = desk()
    for protocol in (None, "1.0", "0.3", "0.1"):
        for target in (agent, agent.app(store="memory:")):
            async with Client(target, protocol=protocol) as client:
                assert str(await client.call("add_numbers", a=1, b=2)) == "3"
                assert (await client.card()).name == "desk"
