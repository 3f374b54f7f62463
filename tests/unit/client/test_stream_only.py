"""Agents that stream and refuse to send, and agents that send one message in pieces."""

from __future__ import annotations

from typing import Any

import pytest
from support.stub_server import After, AgentStub, Reset, event, head, reply

from dragoman import Client, State
from dragoman.client.connect import SHARED_CARDS
from dragoman.errors import MethodNotFound, UnsupportedOperation


@pytest.fixture(autouse=True)
def no_card_of_another_test() -> None:
    SHARED_CARDS.clear()


def methods(stub: Any) -> list[str]:
    return [got.json["method"] for got in stub.posts]


def streamed(got: Any, *values: Any) -> bytes:
    return head(200, "text/event-stream", Connection="close") + b"".join(event(got, each) for each in values)


def refused(got: Any, code: int, **data: Any) -> bytes:
    return reply({"jsonrpc": "2.0", "id": got.json["id"], "error": {"code": code, "message": "no", **data}})


def task(state: str, **more: Any) -> dict[str, Any]:
    return {"id": "t1", "contextId": "c1", "status": {"state": f"TASK_STATE_{state}"}, **more}


def status(state: str) -> dict[str, Any]:
    return {"statusUpdate": {"taskId": "t1", "contextId": "c1", "status": {"state": f"TASK_STATE_{state}"}}}


def piece(text: str, id: str = "m1") -> dict[str, Any]:
    parts = [{"text": text}]
    return {"message": {"messageId": id, "role": "ROLE_AGENT", "parts": parts, "taskId": "t1", "contextId": "c1"}}


def answer(text: str) -> dict[str, Any]:
    artifact = {"artifactId": "a", "parts": [{"text": text}]}
    return {"artifactUpdate": {"taskId": "t1", "contextId": "c1", "artifact": artifact, "lastChunk": True}}


# -- agents that only stream -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [-32601, -32004])
async def test_a_message_that_may_not_be_sent_is_streamed(code: int) -> None:
    def only_streams(got: Any) -> bytes:
        if got.json["method"] == "SendMessage":
            return refused(got, code)
        return streamed(got, {"task": task("WORKING")}, answer("hi"), status("COMPLETED"))

    async with AgentStub(only_streams) as stub, Client(stub.url) as client:
        done = await client.send("hello")
        assert (done.state, done.text) == (State.COMPLETED, "hi")
        assert (await client.send("again")).text == "hi"
        # What it refuses is asked once; the message is the same both times.
        assert methods(stub) == ["SendMessage", "SendStreamingMessage", "SendStreamingMessage"]
        first, second = (got.json["params"]["message"]["messageId"] for got in stub.posts[:2])
        assert first == second


async def test_who_does_not_wait_gets_the_task_as_it_begins() -> None:
    def only_streams(got: Any) -> Any:
        if got.json["method"] == "SendMessage":
            return refused(got, -32601)
        return streamed(got, {"task": task("WORKING")}, answer("hi"), status("COMPLETED"))

    async with AgentStub(only_streams) as stub, Client(stub.url) as client:
        assert (await client.send("hello", wait=False)).state is State.WORKING


async def test_a_stream_that_breaks_off_is_followed_and_nothing_is_sent_again() -> None:
    def breaks(got: Any) -> Any:
        method = got.json["method"]
        if method == "SendMessage":
            return refused(got, -32601)
        if method == "SendStreamingMessage":
            return After(streamed(got, {"task": task("WORKING")}), Reset)
        if method == "SubscribeToTask":
            return streamed(got, {"task": task("WORKING")}, answer("hi"), status("COMPLETED"))
        done = task("COMPLETED", artifacts=[answer("hi")["artifactUpdate"]["artifact"]])
        return reply({"jsonrpc": "2.0", "id": got.json["id"], "result": done})

    async with AgentStub(breaks) as stub, Client(stub.url) as client:
        assert (await client.send("hello")).text == "hi"
        assert methods(stub).count("SendStreamingMessage") == 1


async def test_a_refusal_stays_one_where_nothing_streams_or_a_task_is_meant() -> None:
    def refuses(got: Any) -> bytes:
        return refused(got, -32601)

    async with AgentStub(refuses) as stub, Client(stub.url) as client:
        with pytest.raises(MethodNotFound):
            await client.send("hello")
        with pytest.raises(MethodNotFound):
            await client.send("hello")
        assert methods(stub) == ["SendMessage", "SendStreamingMessage", "SendMessage"]

    def ended(got: Any) -> bytes:
        return refused(got, -32004)

    async with AgentStub(ended) as stub, Client(stub.url) as client:
        with pytest.raises(UnsupportedOperation):
            await client.send("more", task="t1")
        assert "SendStreamingMessage" not in methods(stub)

    begun = {"data": [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "metadata": {"taskId": "t1"}}]}

    def began(got: Any) -> bytes:
        return refused(got, -32004, **begun)

    async with AgentStub(began) as stub, Client(stub.url) as client:
        with pytest.raises(UnsupportedOperation):
            await client.send("hello")
        assert methods(stub) == ["SendMessage"]


# -- messages in pieces ------------------------------------------------------------------------------------------------


async def pieces_of(stream: Any) -> list[str]:
    return [each.text async for each in stream if each.text]


async def test_messages_that_share_an_id_are_one() -> None:
    def agno(got: Any) -> bytes:
        """As Agno streams an answer: pieces between status updates, then the whole as a task after the end."""
        pieces = [piece("The "), piece("capital "), status("WORKING"), piece("is "), piece("Lisbon.")]
        whole = task("COMPLETED", history=[piece("The capital is Lisbon.")["message"]])
        if got.json["method"] == "GetTask":
            return refused(got, -32601)
        return streamed(got, status("WORKING"), *pieces, status("COMPLETED"), {"task": whole})

    async with AgentStub(agno) as stub, Client(stub.url) as client:
        stream = client.stream("hello")
        assert await pieces_of(stream) == ["The capital ", "is ", "Lisbon."]
        assert stream.task.text == "The capital is Lisbon."
        assert [message.text for message in stream.task.history] == ["The capital is Lisbon."]
        pieces = [each async for each in client.stream("hello").text()]
        assert "".join(pieces) == "The capital is Lisbon."


async def test_other_messages_stay_apart_and_an_artifact_is_the_answer() -> None:
    def remarks(got: Any) -> bytes:
        first = [piece("I "), piece("look."), piece("Now I write.", "m2")]
        return streamed(got, {"task": task("WORKING")}, *first, answer("Lisbon"), status("COMPLETED"))

    async with AgentStub(remarks) as stub, Client(stub.url) as client:
        stream = client.stream("hello")
        events = [each async for each in stream]
        texts = ""
        for each in events:
            texts = each.text if each.replaces else texts + each.text
        assert texts == stream.task.text == "Lisbon"
        assert [message.text for message in stream.task.history] == ["I look.", "Now I write."]


async def test_a_message_of_many_pieces_costs_no_more_for_each() -> None:
    count = 20_000

    def long(got: Any) -> bytes:
        return streamed(got, status("WORKING"), *[piece("word ")] * count, status("COMPLETED"))

    async with AgentStub(long) as stub, Client(stub.url) as client:
        stream = client.stream("hello")
        assert sum([len(each.text) async for each in stream]) == 5 * count
        assert stream.task.text == "word " * count
        assert len(stream.task.history) == 1
