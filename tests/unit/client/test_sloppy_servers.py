"""Servers that do not keep to the protocol, as they are in the field: what they say is found nevertheless."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from support.stub_server import After, AgentStub, Hold, Reset, event, head, html, reply, result

from dragoman import Client, Message, Task
from dragoman.client.connect import SHARED_CARDS
from dragoman.errors import BadResponse, CannotConnect, ConfigError, DragomanError, InputRequired
from dragoman.sync import Client as SyncClient

CAPABILITIES = {"streaming": False}


@pytest.fixture(autouse=True)
def no_card_of_another_test() -> None:
    # A port is given again, sooner or later, and its card may be that of an earlier test.
    SHARED_CARDS.clear()


def method(got: Any) -> str:
    return got.json["method"]


def methods(stub: Any) -> list[str]:
    return [method(got) for got in stub.posts]


def says(text: str, **more: Any) -> dict[str, Any]:
    return {"messageId": f"m-{text}", "role": "ROLE_AGENT", "parts": [{"text": text}], **more}


def task(state: str = "COMPLETED", **more: Any) -> dict[str, Any]:
    return {"id": "t1", "contextId": "c1", "status": {"state": f"TASK_STATE_{state}"}, **more}


def status(state: str, message: dict[str, Any] | None = None) -> dict[str, Any]:
    value = {"state": f"TASK_STATE_{state}"} | ({"message": message} if message is not None else {})
    return {"statusUpdate": {"taskId": "t1", "contextId": "c1", "status": value}}


def streamed(got: Any, *values: Any) -> bytes:
    """A stream of events without numbers, as nearly all servers send them."""
    return head(200, "text/event-stream", Connection="close") + b"".join(event(got, each) for each in values)


ASKED = {"messageId": "u", "role": "ROLE_USER", "parts": [{"text": "hello"}]}


def agent_framework(got: Any) -> bytes:
    """As Microsoft Agent Framework answers by default: messages of a working task, then a bare end."""
    if method(got) == "SendStreamingMessage":
        events = [{"task": task("SUBMITTED", history=[ASKED])}, status("SUBMITTED"), status("WORKING")]
        answer = [status("WORKING", says("one")), status("WORKING", says("two"))]
        return streamed(got, *events, *answer, status("COMPLETED"))
    return result(got, task(history=[ASKED, says("one"), says("two")]))


async def test_an_answer_in_messages_of_a_working_task_is_found_however_it_is_asked_for() -> None:
    async with AgentStub(agent_framework) as stub, Client(stub.url) as client:
        assert (await client.send("hello")).text == "one\n\ntwo"
        assert (await client.get_task("t1")).text == "one\n\ntwo"
        stream = client.stream("hello")
        assert "".join([each.text async for each in stream]) == stream.task.text == "one\n\ntwo"
        assert await client.call("ask") == "one\n\ntwo"
        assert await client.as_tool()("hello") == "one\n\ntwo"
        # The stream was complete: nothing is read again.
        assert methods(stub) == ["SendMessage", "GetTask", "SendStreamingMessage", "SendMessage", "SendMessage"]


async def test_an_answer_in_a_message_event_is_found() -> None:
    def answer(got: Any) -> bytes:
        return streamed(got, {"task": task("WORKING")}, {"message": says("hi")}, status("COMPLETED"))

    async with AgentStub(answer) as stub, Client(stub.url) as client:
        stream = client.stream("hello")
        assert "".join([each.text async for each in stream]) == stream.task.text == "hi"


async def test_an_answer_that_no_event_holds_is_read_from_the_task() -> None:
    def answer(got: Any) -> bytes:
        if method(got) == "GetTask":
            return result(got, task(history=[ASKED, says("hi")]))
        return streamed(got, {"task": task("WORKING")}, status("COMPLETED"))

    async with AgentStub(answer) as stub, Client(stub.url) as client:
        stream = client.stream("hello")
        assert "".join([each.text async for each in stream]) == stream.task.text == "hi"
        assert methods(stub) == ["SendStreamingMessage", "GetTask"]


async def test_events_after_the_end_are_read_from_the_task() -> None:
    late = {"artifactId": "a", "parts": [{"text": "late"}]}

    def answer(got: Any) -> bytes:
        if method(got) == "GetTask":
            return result(got, task(artifacts=[late]))
        update = {"artifactUpdate": {"taskId": "t1", "contextId": "c1", "artifact": late}}
        return streamed(got, {"task": task("WORKING")}, status("COMPLETED", says("done")), update)

    async with AgentStub(answer) as stub, Client(stub.url) as client:
        stream = client.stream("hello")
        events = [each async for each in stream]
        assert (events[-1].text, events[-1].replaces, stream.task.text) == ("late", True, "late")


# -- events by their kind ----------------------------------------------------------------------------------------------


def flat(kind: str, **members: Any) -> dict[str, Any]:
    return {"kind": kind, "taskId": "t1", "contextId": "c1", **members}


def langgraph_api(got: Any) -> bytes:
    """As langgraph-api streams: a task in the envelope of 1.0, then the flat events of 0.3 with the states of 1.0."""
    parts = [{"kind": "text", "text": "hel"}]
    file = {"kind": "file", "file": {"bytes": "eA==", "mimeType": "text/plain"}}
    token = {"kind": "message", "role": "ROLE_AGENT", "messageId": "m", "parts": parts}
    answer = {"artifactId": "a", "name": "Assistant Response", "parts": [{"kind": "text", "text": "hello"}, file]}
    whole = task(kind="task", artifacts=[answer])
    if method(got) != "SendStreamingMessage":
        return result(got, whole)
    return streamed(
        got,
        {"task": task("SUBMITTED", kind="task", history=[{**ASKED, "kind": "message"}])},
        flat("status-update", status={"state": "TASK_STATE_WORKING"}, final=False),
        flat("status-update", status={"state": "TASK_STATE_WORKING", "message": token}, final=False),
        flat("artifact-update", artifact=answer, append=False, lastChunk=True),
        flat("status-update", status={"state": "TASK_STATE_COMPLETED"}, final=True),
    )


async def test_flat_events_of_a_server_that_says_1_0_are_read(caplog: pytest.LogCaptureFixture) -> None:
    async with AgentStub(langgraph_api) as stub, Client(stub.url) as client:
        stream = client.stream("hello")
        events = [each async for each in stream]
        assert [each.kind for each in events] == ["task", "status", "status", "artifact", "status"]
        assert "".join(each.text for each in events) == stream.task.text == "hello"
        assert methods(stub) == ["SendStreamingMessage"]
        assert [part.raw for part in stream.task.files] == [b"x"]
        assert not caplog.records
        for whole in (await client.send("hello"), await client.get_task("t1")):
            assert (whole.text, len(whole.files)) == ("hello", 1)


async def test_a_question_that_is_only_in_an_artifact_is_asked() -> None:
    interrupt = {"artifactId": "i", "name": "Interrupt", "parts": [{"data": {"id": "1", "value": "Which size?"}}]}
    async with (
        AgentStub(lambda got: result(got, task("INPUT_REQUIRED", artifacts=[interrupt]))) as stub,
        Client(stub.url) as client,
    ):
        assert (await client.send("hello")).question == '{"id":"1","value":"Which size?"}'
        with pytest.raises(InputRequired, match="Which size"):
            await client.call("ask")


@pytest.mark.parametrize(
    "noise", [{"kind": "heartbeat"}, {"kind": "status-update", "status": 7}, {"x": 1}, "words", []]
)
async def test_an_event_that_cannot_be_read_is_a_warning_and_the_rest_is_read(
    noise: Any, caplog: pytest.LogCaptureFixture
) -> None:
    answer = {"artifactId": "a", "parts": [{"text": "hello"}]}

    def respond(got: Any) -> bytes:
        if method(got) == "GetTask":
            return result(got, task(artifacts=[answer]))
        return streamed(got, noise, {"task": task("WORKING")}, *[noise] * 9, status("COMPLETED"))

    async with AgentStub(respond) as stub, Client(stub.url) as client:
        stream = client.stream("hello")
        assert "".join([each.text async for each in stream]) == "hello"
        assert methods(stub) == ["SendStreamingMessage", "GetTask"]
    warnings = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert 1 <= len(warnings) <= 5
    assert "an event of http://127.0.0.1" in warnings[0].getMessage()


async def test_a_stream_of_which_nothing_can_be_read_is_an_error_and_its_message_is_not_sent_again() -> None:
    async with AgentStub(lambda got: streamed(got, {"x": 1}, {"y": 2})) as stub, Client(stub.url) as client:
        with pytest.raises(BadResponse, match="none of task, message"):
            _ = [each async for each in client.stream("hello")]
        assert len(stub.posts) == 1


NOT_FOUND = {"code": -32001, "message": "Task not found"}


@pytest.mark.parametrize("values", [[{"x": 1}], []], ids=["an event that cannot be read", "nothing"])
async def test_a_message_is_not_sent_again_when_its_stream_breaks_before_an_event_can_be_read(
    values: list[Any],
) -> None:
    def respond(got: Any) -> Any:
        if method(got) == "GetTask":
            return reply({"jsonrpc": "2.0", "id": got.json["id"], "error": NOT_FOUND})
        # Without an end of the body, a connection that closes has broken.
        begun = head(200, "text/event-stream", Content_Length="5000")
        return After(begun + b"".join(event(got, each) for each in values), Reset)

    async with AgentStub(respond) as stub, Client(stub.url, retries=2) as client:
        with pytest.raises(CannotConnect, match="broke"):
            _ = [each async for each in client.stream("hello")]
        assert methods(stub) == ["SendStreamingMessage", "GetTask"]


# -- servers that do not stream ----------------------------------------------------------------------------------------


async def test_an_agent_whose_card_says_that_it_does_not_stream_is_never_asked_to() -> None:
    async with (
        AgentStub(lambda got: result(got, task(artifacts=[])), capabilities=CAPABILITIES) as stub,
        Client(stub.url) as client,
    ):
        _ = [each async for each in client.stream("hello")]
        assert methods(stub) == ["SendMessage"]


@pytest.mark.parametrize("capabilities", [CAPABILITIES, {"streaming": True}, {}], ids=str)
@pytest.mark.parametrize("answer", [html(500), reply({"detail": "boom"}, 500), *map(html, (502, 503, 504, 200))])
async def test_a_message_is_not_sent_again_after_an_answer_that_does_not_prove_that_it_was_not_run(
    answer: bytes, capabilities: Any
) -> None:
    async with AgentStub(lambda _: answer, capabilities=capabilities) as stub, Client(stub.url) as client:
        with pytest.raises(DragomanError):  # which one is not the question here
            _ = [each async for each in client.stream("hello")]
        assert len(stub.posts) == 1


@pytest.mark.parametrize("answer", [html(404), html(405), html(501), reply({}, 501), reply({}, 404)])
async def test_a_server_without_the_path_of_streams_gets_the_message_by_the_other(answer: bytes) -> None:
    def respond(got: Any) -> bytes:
        return answer if got.path.endswith(":stream") else reply({"message": says("hi")})

    async with AgentStub(respond, "rest", capabilities={"streaming": True}) as stub, Client(stub.url) as client:
        assert [each.text async for each in client.stream("hello")] == ["hi"]
        assert stub.paths("POST") == ["/message:stream", "/message:send"]


# -- the context of a task ---------------------------------------------------------------------------------------------


def needs_context(got: Any) -> bytes:
    if method(got) == "GetTask":
        return result(got, task("INPUT_REQUIRED"))
    if got.json["params"]["message"].get("contextId") != "c1":
        return reply({"jsonrpc": "2.0", "id": got.json["id"], "error": {"code": -32602, "message": "no contextId"}})
    done = task(artifacts=[{"artifactId": "a", "parts": [{"text": "thanks"}]}])
    return streamed(got, {"task": done}) if "Stream" in method(got) else result(got, done)


async def test_a_task_named_by_its_id_alone_is_read_for_its_context() -> None:
    async with AgentStub(needs_context) as stub, Client(stub.url) as client:
        assert (await client.send("three", task="t1")).text == "thanks"
        assert "".join([each.text async for each in client.stream("three", task="t1")]) == "thanks"
        assert methods(stub) == ["GetTask", "SendMessage", "GetTask", "SendStreamingMessage"]
        stub.got.clear()
        asking = await client.get_task("t1")
        assert (await client.send("three", task=asking)).text == "thanks"
        assert (await client.send("three", task="t1", context="c1")).text == "thanks"
        assert methods(stub) == ["GetTask", "SendMessage", "SendMessage"]


@pytest.mark.parametrize(
    "answer",
    [
        reply({"jsonrpc": "2.0", "id": "1", "error": {"code": -32601, "message": "no"}}),
        reply({"error": "no scope tasks.read"}, 403),
        html(401),
        html(502),
    ],
)
@pytest.mark.parametrize("streaming", [True, False])
async def test_where_a_task_cannot_be_read_its_message_is_sent_without_a_context(
    answer: bytes, streaming: bool
) -> None:
    def respond(got: Any) -> bytes:
        if method(got) == "GetTask":
            return answer
        return streamed(got, {"task": task()}) if "Stream" in method(got) else result(got, task())

    async with AgentStub(respond) as stub, Client(stub.url, retries=0) as client:
        if streaming:
            assert [each.kind async for each in client.stream("three", task="t1")] == ["task"]
        else:
            assert isinstance(await client.send("three", task="t1"), Task)
        sent = [got.json["params"]["message"] for got in stub.posts if method(got) != "GetTask"]
        assert [message.get("contextId") for message in sent] == [None]


# -- what is sent ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [{"a": [1, 2]}, [1, 2]])
async def test_a_dict_or_a_list_is_sent_as_data(content: Any) -> None:
    async with AgentStub(lambda got: result(got, task())) as stub:
        async with Client(stub.url) as client:
            await client.send(content)
            await client.chat().send(content)
            _ = [each async for each in client.stream(content)]
        await asyncio.to_thread(_send_blocking, stub.url, content)
        assert [got.json["params"]["message"]["parts"] for got in stub.posts] == [[{"data": content}]] * 4


def _send_blocking(url: str, content: Any) -> Task | Message:
    with SyncClient(url) as client:
        return client.send(content)


@pytest.mark.parametrize("content", [7, b"x", object()])
async def test_what_is_neither_text_nor_json_is_refused_before_anything_is_sent(content: Any) -> None:
    async with AgentStub(lambda got: result(got, task())) as stub, Client(stub.url) as client:
        with pytest.raises(ConfigError, match="text, a dict or a list"):
            await client.send(content)
        assert stub.got == []


# -- closing -----------------------------------------------------------------------------------------------------------


async def _read(client: Client) -> None:
    async for _ in client.stream("hello"):
        pass


async def _send(client: Client) -> None:
    await client.send("hello")


@pytest.mark.parametrize("start", [_send, _read])
async def test_closing_the_client_ends_what_waits_for_an_answer(start: Callable[[Client], Awaitable[None]]) -> None:
    arrived = asyncio.Event()

    def hold(_: Any) -> Any:
        arrived.set()
        return Hold

    async with asyncio.timeout(10), AgentStub(hold) as stub:
        client = Client(stub.url)
        sending = asyncio.ensure_future(start(client))
        await arrived.wait()
        await client.close()
        with pytest.raises(CannotConnect) as caught:
            await sending
        assert caught.value.reason == "CLIENT_CLOSED"
        assert len(stub.posts) == 1
