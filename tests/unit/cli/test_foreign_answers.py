"""What `send`, `get` and `watch` print of servers that put their answers where others do not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.stub_server import AgentStub, event, head, reply, result

from dragoman.cli.remote.recent import RecentTasks

from .conftest import Run

ASKED = {"messageId": "u", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
ANSWER = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "the answer"}, {"text": "in two parts"}]}


def task(state: str = "COMPLETED", **more: Any) -> dict[str, Any]:
    return {"id": "t1", "contextId": "c1", "status": {"state": f"TASK_STATE_{state}"}, **more}


def status(state: str, **more: Any) -> dict[str, Any]:
    return {"statusUpdate": {"taskId": "t1", "contextId": "c1", "status": {"state": f"TASK_STATE_{state}", **more}}}


def streamed(got: Any, *values: Any) -> bytes:
    return head(200, "text/event-stream", Connection="close") + b"".join(event(got, each) for each in values)


def in_the_history(got: Any) -> bytes:
    if "Streaming" in got.json["method"] or "Subscribe" in got.json["method"]:
        events = [{"task": task("WORKING", history=[ASKED])}, status("WORKING", message=ANSWER), status("COMPLETED")]
        return streamed(got, *events)
    return result(got, task(history=[ASKED, ANSWER]))


@pytest.mark.parametrize(
    "command", [("send", "hello"), ("get", "t1"), ("watch", "t1"), ("call", "ask")], ids=lambda it: it[0]
)
async def test_an_answer_that_is_only_in_the_history_is_printed(run: Run, command: tuple[str, str]) -> None:
    async with AgentStub(in_the_history) as stub:
        done = await asyncio.to_thread(run, command[0], stub.url, *command[1:])
    assert (done.returncode, done.stdout) == (0, "the answer\n\nin two parts\n")


async def test_a_task_that_is_watched_to_its_end_is_printed_with_its_history(run: Run) -> None:
    def answer(got: Any) -> bytes:
        if got.json["method"] == "GetTask":
            return result(got, task("WORKING", history=[ASKED]))
        return in_the_history(got)

    async with AgentStub(answer) as stub:
        done = await asyncio.to_thread(run, "watch", stub.url, "t1")
    assert (done.returncode, done.stdout) == (0, "the answer\n\nin two parts\n")


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_spinner_turns_while_a_task_is_watched_that_is_not_streamed(
    terminal: Callable[..., Any], streaming: bool
) -> None:
    has_seen_it = asyncio.Event()

    def answer(got: Any) -> bytes:
        if got.json["method"] == "GetTask":
            return result(got, task(history=[ASKED, ANSWER]) if has_seen_it.is_set() else task("WORKING"))
        return reply({"jsonrpc": "2.0", "id": got.json["id"], "error": {"code": -32004, "message": "no streams"}})

    async with AgentStub(answer, capabilities={"streaming": streaming}) as stub:
        command = terminal("watch", stub.url, "t1", "--raw")
        await asyncio.to_thread(command.until, "working 0s")
        has_seen_it.set()
        await asyncio.to_thread(command.until, "the answer\n\nin two parts\n")
        assert await asyncio.to_thread(command.ended) == (0, "")


@pytest.mark.parametrize("command", ["send", "get"])
async def test_a_question_that_is_only_in_an_artifact_is_printed(run: Run, command: str) -> None:
    asked = {"artifactId": "i", "name": "Interrupt", "parts": [{"data": {"id": "1", "value": "Which size?"}}]}

    def answer(got: Any) -> bytes:
        waiting = task("INPUT_REQUIRED", artifacts=[asked])
        return streamed(got, {"task": waiting}) if "Streaming" in got.json["method"] else result(got, waiting)

    async with AgentStub(answer) as stub:
        done = await asyncio.to_thread(run, command, stub.url, "t1")
    assert done.returncode == (6 if command == "send" else 0)
    assert '{"id":"1","value":"Which size?"}' in done.stderr


async def test_an_agent_that_lists_no_tasks_has_a_last_one(run: Run) -> None:
    def answer(got: Any) -> bytes:
        return reply({"jsonrpc": "2.0", "id": got.json["id"], "error": {"code": -32601, "message": "no such method"}})

    async with AgentStub(answer) as stub:
        done = await asyncio.to_thread(run, "tasks", stub.url)
    assert done.returncode == 4
    last = f"dragoman get {stub.url} last"
    assert done.stderr == f"dragoman: this agent cannot list tasks; your last one: {last} (no such method)\n"


async def test_the_state_of_a_watched_task_is_shown_before_its_next_event(
    terminal: Callable[..., Any], tmp_path: Path
) -> None:
    has_seen_it = asyncio.Event()

    async def answer(got: Any) -> bytes:
        if got.json["method"] == "GetTask":
            return result(got, task("SUBMITTED"))
        await has_seen_it.wait()
        return streamed(got, {"task": task()})

    async with AgentStub(answer) as stub:
        command = terminal("watch", stub.url, "t1")
        await asyncio.to_thread(command.until, "submitted 0s")
        has_seen_it.set()
        assert (await asyncio.to_thread(command.ended))[0] == 0
    recent = RecentTasks(tmp_path / ".local" / "state" / "dragoman" / "recent.json")
    assert recent.addresses() == [], "the last task is the one that was sent to"
