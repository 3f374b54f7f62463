"""What type checkers know about the client, its answers and its errors."""

from typing import Any, Literal, assert_type

from dragoman import Agent, Artifact, Client, Event, File, Message, Part, Server, State, Task, sync
from dragoman.errors import A2AError, DragomanError, InputRequired, InvalidParams, TaskEnded, TaskFailed, TaskNotFound

agent = Agent("called")


async def methods_say_what_they_give() -> None:
    async with Client(agent) as client:
        assert_type(client, Client)
        reply = await client.send("Lisbon", metadata={"skillId": "plan"}, files=[File(b"a", name="a.txt")])
        assert_type(reply, Task | Message)
        assert_type(await client.send(tool="add", arguments={"a": 1}, data={"b": 2}, wait=False), Task | Message)
        if isinstance(reply, Task) and reply.state.waiting:
            reply = await client.send("3", task=reply, message_id="m2")
        await client.send("3", task="an-id")
        await client.send("Porto", context=reply)
        task = await client.get_task("an-id", history_length=1)
        assert_type(task, Task)
        value: int = await client.call("add_numbers", a=3, b=7)
        assert value
        async for piece in client.stream("Lisbon").text():
            print(piece, end="", flush=True)
            assert_type(piece.restarted, bool)
        assert_type((client.protocol, client.transport), tuple[str | None, str | None])
        assert_type(await client.chat().send("Lisbon", data={"b": 2}, wait=False), Task | Message)
    await Client(Server(agent), reconnect=0).close()


def so_do_they_without_await() -> None:
    with sync.Client(agent, retries=3, headers={"x-team": "blue"}) as client:
        assert_type(client, sync.Client)
        assert_type(client.send("Lisbon", data={"b": 2}, wait=False), Task | Message)
        assert_type(client.get_task("an-id", history_length=1), Task)
        value: int = client.call("add_numbers", a=3, b=7)
        assert value
        for event in client.stream("Lisbon"):
            assert_type(event, Event)
        for piece in client.stream("Lisbon").text():
            line: str = piece
            assert line
            assert_type(piece.restarted, bool)
        assert_type((client.protocol, client.transport), tuple[str | None, str | None])
        for task in client.list_tasks(page_size=3):
            assert_type(task, Task)


async def answers_are_read_alike() -> None:
    reply = await Client(agent).send("Lisbon")
    assert_type(reply.state, State)
    assert_type(reply.text, str)
    assert_type(reply.files, list[Part])
    assert_type(reply.question, str | None)
    assert_type(reply.error, str | None)
    reply.raise_for_state()


async def streams_give_events() -> None:
    stream = Client(agent).stream("Lisbon", context="a-conversation")
    async for event in stream:
        assert_type(event, Event)
        assert_type(event.text, str)
        assert_type(event.state, State)
        assert_type(event.task, Task | None)
        assert_type(event.id, int)
        assert_type(event.replaces, bool)
    assert_type(stream.task, Task)
    assert_type(stream.result, Task | Message)


def tasks_are_typed_through_and_through(task: Task) -> None:
    assert_type(task.id, str)
    assert_type(task.context_id, str)
    assert_type(task.artifacts, tuple[Artifact, ...])
    assert_type(task.artifacts[0].parts, tuple[Part, ...])
    assert_type(task.history, tuple[Message, ...])
    assert_type(task.generation, int | None)
    assert_type(task.metadata, dict[str, Any] | None)
    assert_type(task.parts, tuple[Part, ...])
    assert_type(task.status.state, State)
    assert_type(task.state.final, bool)
    assert_type(task.state.waiting, bool)
    assert_type(task.parts[0].kind, Literal["text", "raw", "url", "data"])


async def errors_carry_what_they_promise() -> None:
    try:
        await Client(agent).call("add_numbers", a=3)
    except InputRequired as error:
        assert_type(error.question, str)
        assert_type(error.task, Task)
    except TaskFailed as error:
        assert_type(error.task, Task)
    except TaskEnded as error:
        assert_type(error.task, Task)
    except InvalidParams as error:
        assert_type(error.field, str)
    except TaskNotFound as error:
        assert_type(error.code, int)
        assert_type(error.reason, str)
        assert_type(error.message, str)
    except A2AError:
        raise
    except DragomanError:
        raise
