"""An agent in front of a foreign one, which tells its tasks in ways of its own."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support.stub_server import card

from dragoman import Agent, Client, State
from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.testing import served


def updates(events: list[Any]) -> list[ArtifactUpdate]:
    return [event.raw for event in events if isinstance(event.raw, ArtifactUpdate)]


def foreign(*events: dict[str, Any], get: dict[str, Any] | None = None) -> Any:
    """A server of 1.0 that says these events, whatever it is sent; `get` is the task for those who read it."""
    more = {"description": "Strange", "skills": [{"id": "s", "name": "s", "description": "d", "tags": []}]}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        asked = (await receive()).get("body", b"")
        host = next(value for name, value in scope["headers"] if name == b"host").decode()
        answer = card((f"http://{host}/rpc", "jsonrpc"), name="foreign/agent", **more)
        body, kind = json.dumps(answer).encode(), b"application/json"
        if get is not None and b'"GetTask"' in asked:
            body = json.dumps({"jsonrpc": "2.0", "id": 1, "result": get}).encode()
        elif scope["method"] == "POST":
            answers = ({"jsonrpc": "2.0", "id": 1, "result": event} for event in events)
            body, kind = "".join(f"data: {json.dumps(each)}\n\n" for each in answers).encode(), b"text/event-stream"
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
        await send({"type": "http.response.body", "body": body})

    return app


@asynccontextmanager
async def in_front_of(*events: dict[str, Any], get: dict[str, Any] | None = None) -> AsyncGenerator[Client]:
    """A client of an agent in front of such a server."""
    with served(foreign(*events, get=get)) as url:
        async with Client(Agent.from_a2a(url)) as client:
            yield client


def status_of(state: str, text: str | None = None) -> dict[str, Any]:
    message = {"messageId": "s", "role": "ROLE_AGENT", "parts": [{"text": text}]}
    return {"state": f"TASK_STATE_{state}"} | ({} if text is None else {"message": message})


def status(state: str, text: str | None = None) -> dict[str, Any]:
    return {"statusUpdate": {"taskId": "t", "contextId": "c", "status": status_of(state, text)}}


def artifact(text: str, key: str = "a", **more: Any) -> dict[str, Any]:
    content = {"artifactId": key, "parts": [{"text": text}]}
    return {"artifactUpdate": {"taskId": "t", "contextId": "c", "artifact": content, **more}}


def whole(state: str, *parts: str, text: str | None = None) -> dict[str, Any]:
    found = [{"artifactId": "a", "parts": [{"text": part} for part in parts]}] if parts else []
    return {"task": {"id": "t", "contextId": "c", "status": status_of(state, text), "artifacts": found}}


@pytest.mark.parametrize("parts", [["one ", "two"], ["one two"]])
async def test_a_whole_task_at_the_end_brings_nothing_twice(parts: list[str]) -> None:
    replies = (whole("WORKING"), artifact("one "), artifact("two", append=True), whole("COMPLETED", *parts))
    async with in_front_of(*replies) as client:
        stream = client.stream("go")
        events = [event async for event in stream]
        assert [(update.artifact.text, update.last_chunk) for update in updates(events)] == [
            ("one ", False),
            ("two", False),
            ("", True),
        ]
        assert (stream.task.state, stream.task.text) == (State.COMPLETED, "one two")


async def test_a_whole_task_at_the_end_adds_what_was_not_streamed() -> None:
    replies = (whole("WORKING"), artifact("one "), whole("COMPLETED", "one ", "two"))
    async with in_front_of(*replies) as client:
        events = [event async for event in client.stream("go")]
        assert [update.artifact.text for update in updates(events)] == ["one ", "two"]


async def test_a_status_message_that_the_whole_task_repeats_is_reported_once() -> None:
    notes = (status("WORKING", "looking"), whole("WORKING", text="looking"))
    replies = (whole("SUBMITTED"), *notes, artifact("found"), status("COMPLETED"))
    async with in_front_of(*replies) as client:
        events = [event async for event in client.stream("go")]
        messages = [event.raw.status.message for event in events if isinstance(event.raw, StatusUpdate)]
        assert [message.text for message in messages if message is not None] == ["looking"]


async def test_a_question_that_was_a_note_before_is_asked() -> None:
    replies = (whole("SUBMITTED"), status("WORKING", "Which one?"), whole("INPUT_REQUIRED", text="Which one?"))
    async with in_front_of(*replies) as client:
        task = await client.send("go")
        assert (task.state, task.question) == (State.INPUT_REQUIRED, "Which one?")


async def test_an_artifact_that_is_continued_before_it_begins_is_begun() -> None:
    replies = (whole("WORKING"), artifact("one ", append=True), artifact("two", append=True), status("COMPLETED"))
    async with in_front_of(*replies) as client:
        events = [event async for event in client.stream("go")]
        assert [(update.artifact.text, update.append) for update in updates(events)] == [
            ("one ", False),
            ("two", True),
            ("", True),
        ]


async def test_a_remark_within_a_task_is_no_answer() -> None:
    remark = {"message": {"messageId": "r", "role": "ROLE_AGENT", "parts": [{"text": "well"}]}}
    replies = (whole("WORKING"), artifact("one"), remark, status("COMPLETED", "bye"))
    async with in_front_of(*replies) as client:
        stream = client.stream("go")
        events = [event async for event in stream]
        assert (stream.task.state, stream.task.text) == (State.COMPLETED, "one")
        messages = [event.raw.status.message for event in events if isinstance(event.raw, StatusUpdate)]
        assert [message.text for message in messages if message is not None] == ["well", "bye"]


def in_history(*texts: str) -> list[dict[str, Any]]:
    asked = {"messageId": "u", "role": "ROLE_USER", "parts": [{"text": "go"}]}
    return [asked, *({"messageId": text, "role": "ROLE_AGENT", "parts": [{"text": text}]} for text in texts)]


BARE = whole("COMPLETED")["task"]
REMARK = {"message": {"messageId": "r", "role": "ROLE_AGENT", "taskId": "t", "parts": [{"text": "one"}]}}
FORMS = {
    "in the status of a working task": [whole("WORKING"), status("WORKING", "one"), status("COMPLETED")],
    "in two of them": [whole("WORKING"), status("WORKING", "one"), status("WORKING", "two"), status("COMPLETED")],
    "in a message": [whole("WORKING"), REMARK, status("COMPLETED")],
    "in the history of the whole task": [whole("WORKING"), {"task": {**BARE, "history": in_history("one")}}],
    "in the history of a task that is over": [{"task": {**BARE, "history": in_history("one", "two")}}],
}


@pytest.mark.parametrize("form", FORMS)
async def test_an_answer_that_is_only_in_messages_is_kept_for_every_caller(form: str) -> None:
    answer = "one\n\ntwo" if "two" in json.dumps(FORMS[form]) else "one"
    async with in_front_of(*FORMS[form]) as client:
        stream = client.stream("go")
        assert "".join([event.text async for event in stream]) == answer
        task = await client.get_task(stream.task)
        # Also for those who look for it in the status alone.
        assert task.status.message is not None
        assert (task.state, task.text, task.status.message.text) == (State.COMPLETED, answer, answer)
        assert [each.text for each in task.history if not each.is_progress] == ["go"]


async def test_an_artifact_that_comes_after_the_end_is_passed_on() -> None:
    behind = [whole("WORKING"), status("COMPLETED", "done"), artifact("late")]
    async with in_front_of(*behind, get=whole("COMPLETED", "late", text="done")["task"]) as client:
        task = await client.send("go")
        assert (task.state, task.text) == (State.COMPLETED, "late")


async def test_a_question_that_is_only_in_an_artifact_is_asked_in_front_too() -> None:
    data = {"artifactId": "i", "parts": [{"data": {"value": "Which size?"}}]}
    behind = [whole("WORKING"), {"artifactUpdate": {"taskId": "t", "contextId": "c", "artifact": data}}]
    async with in_front_of(*behind, status("INPUT_REQUIRED")) as client:
        assert (await client.send("go")).question == '{"value":"Which size?"}'


async def test_a_name_that_is_no_name_here_becomes_one() -> None:
    with served(foreign(whole("COMPLETED"))) as url:
        assert Agent.from_a2a(url).name == "foreign-agent"
        named = Agent.from_a2a(url, name="mine", description="Mine", version="2", card={"iconUrl": "https://x.example"})
        assert (named.name, named.description, named.version) == ("mine", "Mine", "2")
        assert named.card["iconUrl"] == "https://x.example"
        assert named.card["skills"][0]["id"] == "s"
