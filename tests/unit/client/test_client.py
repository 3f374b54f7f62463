"""The client, on an agent in this process: the whole engine, no port, no file."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dragoman import Agent, Client, Context, Failed, File, Message, Part, Server, State, Task
from dragoman.errors import (
    BadResponse,
    ConfigError,
    InputRequired,
    TaskFailed,
    TaskNotFound,
    UnsupportedOperation,
)
from dragoman.outputs import Reply


@pytest.fixture
def agent() -> Agent:
    agent = Agent("test")

    @agent.skill
    async def story(topic: str) -> Any:
        for word in topic.split():
            yield word + " "

    @agent.skill
    def add_numbers(a: int, b: int) -> int:
        return a + b

    @agent.skill
    async def plan(ctx: Context, city: str) -> str:
        return f"{await ctx.ask('How many days?', type=int)} days in {city}"

    @agent.skill
    def fail(text: str = "") -> None:
        raise Failed(text or "no")

    @agent.skill
    def hello(name: str = "you") -> Reply:
        return Reply(f"hello {name}")

    @agent.skill
    def inspect(ctx: Any = None) -> None: ...

    return agent


@pytest.mark.requirement("S2-4")
async def test_the_package_has_a_server_and_a_client_that_fit_together(agent: Agent) -> None:
    async with Client(Server(agent, store="memory:")) as client:
        assert (await client.send("once upon a time")).text == "once upon a time "


# Sending


async def test_text_goes_to_the_agent_and_the_answer_comes_back(agent: Agent) -> None:
    async with Client(agent) as client:
        reply = await client.send("hello there")
        assert isinstance(reply, Task)
        assert (reply.state, reply.text) == (State.COMPLETED, "hello there ")


async def test_a_call_gives_the_value_a_function_returned(agent: Agent) -> None:
    async with Client(agent) as client:
        total = await client.call("add_numbers", a=3, b=7)
        assert (total, type(total)) == (10, int)
        assert await client.call("story", topic="a b") == "a b "
        assert await client.call("hello", name="Ada") == "hello Ada"


async def test_a_call_that_fails_raises_and_a_send_does_not(agent: Agent) -> None:
    async with Client(agent) as client:
        with pytest.raises(TaskFailed, match="too late") as caught:
            await client.call("fail", text="too late")
        assert caught.value.task.state is State.FAILED
        reply = await client.send(tool="fail", arguments={"text": "too late"})
        assert (reply.state, reply.error) == (State.FAILED, "too late")
        with pytest.raises(InputRequired, match="How many days"):
            await client.call("plan", city="Porto")


async def test_a_task_is_continued_by_the_object_or_its_id(agent: Agent) -> None:
    async with Client(agent) as client:
        for how in (lambda task: task, lambda task: task.id):
            reply = await client.send("Porto", tool="plan")
            assert reply.state.waiting
            assert reply.question == "How many days?"
            reply = await client.send("3", task=how(reply))
            assert reply.text == "3 days in Porto"


async def test_a_context_goes_on_by_task_message_or_id(agent: Agent) -> None:
    async with Client(agent) as client:
        first = await client.send("a")
        second = await client.send("b", context=first)
        third = await client.send("c", context=second.context_id)
        bare = await client.send(tool="hello", context=third)
        assert isinstance(bare, Message)
        fourth = await client.send("d", context=bare)
        assert {one.context_id for one in (first, second, third, bare, fourth)} == {first.context_id}
        assert len({first.id, second.id, third.id, fourth.id}) == 4


async def test_everything_that_can_be_sent_arrives(tmp_path: Path) -> None:
    agent, seen = Agent("test"), []

    @agent.skill
    async def look(ctx: Context) -> None:
        seen.append(ctx.message)

    path = tmp_path / "a.txt"
    path.write_bytes(b"file")
    async with Client(agent) as client:
        await client.send(
            "text",
            data={"tool": "look"},
            files=[File(path), Part(url="https://example.org")],
            metadata={"k": 1},
            message_id="m1",
        )
    (message,) = seen
    assert message.parts == (
        Part(text="text"),
        Part(data={"tool": "look"}),
        Part(raw=b"file", filename="a.txt", media_type="text/plain"),
        Part(url="https://example.org"),
    )
    assert (message.metadata, message.message_id) == ({"k": 1}, "m1")


async def test_not_waiting_gives_the_task_at_once(agent: Agent) -> None:
    go_on = asyncio.Event()

    @agent.skill(default=True)
    async def slow() -> str:
        await go_on.wait()
        return "done"

    async with Client(agent) as client:
        task = await client.send("go", wait=False)
        assert not task.state.final
        assert (await client.get_task(task)).id == task.id
        go_on.set()


async def test_errors_of_the_protocol_are_raised(agent: Agent) -> None:
    async with Client(agent) as client:
        with pytest.raises(TaskNotFound):
            await client.get_task("nobody")
        ended = await client.send("a")
        with pytest.raises(UnsupportedOperation):
            await client.send("b", task=ended)
        with pytest.raises(ConfigError, match="something to say"):
            await client.send()


async def test_a_task_can_be_read_with_a_short_history(agent: Agent) -> None:
    async with Client(agent) as client:
        task = await client.send("a")
        assert await client.get_task(task) == task
        assert (await client.get_task(task.id, history_length=0)).history == ()


# Streaming


async def test_a_stream_gives_new_text_only_and_then_the_task(agent: Agent) -> None:
    async with Client(agent) as client:
        stream = client.stream("one two three")
        texts = [event.text async for event in stream]
        assert "".join(texts) == "one two three "
        assert [text for text in texts if text] == ["one ", "two ", "three "]
        assert (stream.task.state, stream.task.text) == (State.COMPLETED, "one two three ")
        assert await client.get_task(stream.task) == stream.task


async def test_events_say_what_they_are(agent: Agent) -> None:
    async with Client(agent) as client:
        events = [event async for event in client.stream("one two")]
        assert [event.kind for event in events] == ["task", "status", *["artifact"] * 2, "status"]
        assert [event.id for event in events] == [1, 2, 3, 4, 5]
        assert events[0].state is State.SUBMITTED
        assert events[-1].state is State.COMPLETED
        assert events[3].task.text == "one two "
        assert "completed" in repr(events[-1]).lower()


async def test_a_streamed_reply_is_one_event_and_no_task(agent: Agent) -> None:
    async with Client(agent) as client:
        stream = client.stream(tool="hello")
        with pytest.raises(BadResponse, match="not said anything"):
            _ = stream.result
        events = [event async for event in stream]
        assert [(event.kind, event.text, event.state) for event in events] == [
            ("message", "hello you", State.COMPLETED)
        ]
        assert stream.result.text == "hello you"
        with pytest.raises(BadResponse, match="no task"):
            _ = stream.task


async def test_a_streamed_question_ends_the_stream_and_is_answered(agent: Agent) -> None:
    async with Client(agent) as client:
        stream = client.stream("Porto", tool="plan")
        events = [event async for event in stream]
        assert events[-1].state is State.INPUT_REQUIRED
        again = client.stream("3", task=stream.task)
        assert "".join([event.text async for event in again]) == "3 days in Porto"


async def test_leaving_a_stream_early_ends_nothing(agent: Agent) -> None:
    go_on = asyncio.Event()

    @agent.skill(default=True)
    async def slow() -> Any:
        yield "one "
        await go_on.wait()
        yield "two"

    async with Client(agent) as client:
        stream = client.stream("go")
        async for event in stream:
            if event.text:
                break
        go_on.set()
        async with asyncio.timeout(10):
            while not (task := await client.get_task(stream.task)).state.final:  # noqa: ASYNC110
                await asyncio.sleep(0)
        assert task.text == "one two"


# What can be called


async def test_what_cannot_be_called_is_refused_with_a_reason() -> None:
    for target in (object(), 7, None):
        with pytest.raises(ConfigError):
            Client(target)


async def test_a_client_opens_when_it_is_used_and_closes_once(agent: Agent) -> None:
    client = Client(agent)
    await client.close()
    results = await asyncio.gather(*(client.send(str(number)) for number in range(5)))
    assert [result.text for result in results] == [f"{number} " for number in range(5)]
    await client.close()
    await client.close()
