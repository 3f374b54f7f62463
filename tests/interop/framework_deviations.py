"""Where a framework does something else than the others: what it does, as a check, and who is at fault.

`PEER`: it breaks the protocol, or loses what it was given. `ABSENT`: it has no such thing, which the protocol allows.
`PASS`: it works, in a way of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from interop_frameworks import script
from interop_table import ABSENT, PASS, PEER

from dragoman import Client, File, State, Task
from dragoman.errors import ContentTypeNotSupported, InternalError

ServerCheck = Callable[[str], Awaitable[None]]
"""Is given the URL of the framework's server."""
ClientCheck = Callable[[dict[str, Any]], None]
"""Is given the line that the framework's client reported."""


def its_file() -> File:
    return File(script.FILE, name=script.FILE_NAME, media_type=script.FILE_TYPE)


# Microsoft Agent Framework


async def approvals_are_lost(url: str) -> None:
    async with Client(url) as client:
        task = await client.send("ask")
        assert isinstance(task, Task)
        assert (task.state, task.parts) == (State.COMPLETED, ())


async def files_are_dropped_and_sent_without_a_name(url: str) -> None:
    async with Client(url) as client:
        assert (await client.send("take", files=[its_file()])).text == script.NOTHING
        [found] = (await client.send("file")).files
        assert (found.raw, found.media_type, found.filename) == (script.FILE, script.FILE_TYPE, None)


async def data_is_dropped(url: str) -> None:
    async with Client(url) as client:
        assert (await client.send("take", data=script.DATA)).text == script.NOTHING


def failures_are_texts(line: dict[str, Any]) -> None:
    assert line["found"] == {"streamed": script.FAILURE, "polled": "fail"}


def files_are_sent_without_a_name(line: dict[str, Any]) -> None:
    assert line["found"]["sent"] == script.taken_file(script.FILE, script.FILE_TYPE)
    assert line["found"]["received"][1:] == [script.FILE_TYPE, script.FILE_NAME]


def data_comes_as_text(line: dict[str, Any]) -> None:
    assert line["found"] == {"received": script.DATA}


# AG2


async def only_tools_of_its_clients_are_asked_for(url: str) -> None:
    async with Client(url) as client:
        with pytest.raises(InternalError, match="no such word"):
            await client.send("ask")


async def failures_are_errors_of_the_call(url: str) -> None:
    async with Client(url) as client:
        with pytest.raises(InternalError, match=script.FAILURE):
            await client.send("fail")
        events = client.stream("fail")
        _ = [event async for event in events]
        assert (events.task.state, events.task.error) == (State.FAILED, "")


# langgraph-api


async def what_is_read_again_has_no_artifacts(url: str) -> None:
    async with Client(url) as client:
        task = await client.send(f"echo {script.ECHO}")
        assert isinstance(task, Task)
        assert (task.state, task.text) == (State.COMPLETED, script.ECHO)
        again = await client.get_task(task)
        assert (again.artifacts, again.text) == ((), "Task completed successfully")
        assert again.history[-1].text == script.ECHO


async def files_are_taken_as_of_0_3(url: str) -> None:
    async with Client(url) as client:
        [found] = (await client.send("file")).files
        assert (found.raw, found.media_type, found.filename) == (script.FILE, script.FILE_TYPE, script.FILE_NAME)
        with pytest.raises(ContentTypeNotSupported, match="Unsupported part type"):
            await client.send("take", files=[its_file()])
    async with Client(url, protocol="0.3") as client:
        taken = await client.send("take", files=[its_file()])
        assert taken.text == script.taken_file(script.FILE, script.FILE_TYPE, script.FILE_NAME)


async def data_is_taken_and_not_sent(url: str) -> None:
    async with Client(url) as client:
        taken = await client.send("take", data=script.DATA)
        assert taken.text == script.taken_data(script.DATA)


MICROSOFT_ASK = "A2AExecutor leaves out requests for approval: the task is completed, without an answer."
MICROSOFT_FILE = (
    "A2AExecutor gives its agent the text of a message alone: files are dropped without a word. "
    "Those that it sends have a media type and no name."
)
MICROSOFT_DATA = "A2AExecutor gives its agent the text of a message alone, and sends no data."

IN_SERVERS: dict[tuple[str, str], tuple[str, str, ServerCheck]] = {
    **{
        (f"agent-framework-{how}", operation): deviation
        for how in ("default", "stream")
        for operation, deviation in {
            "ask": (ABSENT, MICROSOFT_ASK, approvals_are_lost),
            "file": (PEER, MICROSOFT_FILE, files_are_dropped_and_sent_without_a_name),
            "data": (PEER, MICROSOFT_DATA, data_is_dropped),
        }.items()
    },
    ("ag2", "ask"): (
        ABSENT,
        "AG2 asks its own clients for results of their tools, and nobody for anything else.",
        only_tools_of_its_clients_are_asked_for,
    ),
    ("ag2", "failure"): (
        PASS,
        "AG2 gives the reason as an error of the call; the task has failed without one, and so ends a stream.",
        failures_are_errors_of_the_call,
    ),
    ("langgraph-api", "text"): (
        PEER,
        "langgraph-api answers with an artifact. A task that is read again has none: its text is "
        "“Task completed successfully”, and the answer stands in the history.",
        what_is_read_again_has_no_artifacts,
    ),
    ("langgraph-api", "file"): (
        PEER,
        'langgraph-api says 1.0 and takes files in the form of 0.3 only: call it with `protocol="0.3"`. '
        "What it sends is read in either.",
        files_are_taken_as_of_0_3,
    ),
    ("langgraph-api", "data"): (
        ABSENT,
        "langgraph-api takes data, which is the state of its graph, and answers with text and files.",
        data_is_taken_and_not_sent,
    ),
}
"""By framework and operation."""

IN_CLIENTS: dict[tuple[str, str], tuple[str, str, ClientCheck]] = {
    ("agent-framework", "failure"): (
        PEER,
        "A2AAgent raises nothing when a task fails. A stream ends with the reason as its text; without one it does not "
        "read the status, and the answer is the caller's own message.",
        failures_are_texts,
    ),
    ("agent-framework", "file"): (
        PASS,
        "Microsoft Agent Framework has no names of files: they are sent without.",
        files_are_sent_without_a_name,
    ),
    ("agent-framework", "data"): (
        PASS,
        "Microsoft Agent Framework has no data of its own: what it gets becomes JSON text, and it sends none.",
        data_comes_as_text,
    ),
}
