"""Where a framework does something else than the others: what it does, as a check, and who is at fault.

`PEER`: it breaks the protocol, or loses what it was given. `ABSENT`: it has no such thing, which the protocol allows.
`PASS`: it works, in a way of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from interop.frameworks import script
from interop.table import ABSENT, PASS, PEER

from dragoman import Client, File, Message, State, Task
from dragoman.errors import InternalError

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


async def data_is_taken_and_not_sent(url: str) -> None:
    async with Client(url) as client:
        taken = await client.send("take", data=script.DATA)
        assert taken.text == script.taken_data(script.DATA)


# CrewAI


async def nobody_is_asked(url: str) -> None:
    async with Client(url) as client:
        answer = await client.send("ask")
        assert (answer.state, answer.text) == (State.COMPLETED, script.unknown("ask"))


async def failures_are_errors_only(url: str) -> None:
    async with Client(url) as client:
        with pytest.raises(InternalError, match=script.FAILURE):
            await client.send("fail")
        with pytest.raises(InternalError, match=script.FAILURE):
            _ = [event async for event in client.stream("fail")]


async def files_are_dropped(url: str) -> None:
    async with Client(url) as client:
        assert (await client.send("take", files=[its_file()])).text == script.NOTHING


def pieces_are_joined_with_spaces(line: dict[str, Any]) -> None:
    # The chunk that ends the text may be empty.
    assert line["found"]["answer"].rstrip() == " ".join(script.pieces()).rstrip()


def only_texts_are_read(line: dict[str, Any]) -> None:
    assert line["found"]["received"] == "No valid task outputs available to create crew output."
    if "sent" in line["found"]:
        assert line["found"]["sent"] == script.taken_file(script.FILE, script.FILE_TYPE, script.FILE_NAME)


# LiteLLM


async def answers_are_messages(url: str) -> None:
    async with Client(url) as client:
        answer = await client.send(f"echo {script.ECHO}")
        assert isinstance(answer, Message)
        assert answer.text == script.ECHO


async def every_message_stands_alone(url: str) -> None:
    async with Client(url) as client:
        chat = client.chat()
        answers = [await chat.send(f"echo {word}") for word in script.WORDS]
        assert [(answer.text, answer.context_id) for answer in answers] == [(word, None) for word in script.WORDS]


def answers_begin_anew(line: dict[str, Any]) -> None:
    assert line["found"] == {"question": script.QUESTION, "answer": script.unknown(script.USER)}


def failures_are_answers(line: dict[str, Any]) -> None:
    assert line["found"] == script.FAILURE


def nothing_is_read(line: dict[str, Any]) -> None:
    assert line["found"] == ""


MICROSOFT_ASK = "A2AExecutor leaves out requests for approval: the task is completed, without an answer."
MICROSOFT_FILE = (
    "A2AExecutor gives its agent the text of a message alone: files are dropped without a word. "
    "Those that it sends have a media type and no name."
)
MICROSOFT_DATA = "A2AExecutor gives its agent the text of a message alone, and sends no data."

BRIDGE = "litellm-a2a-bridge"
BRIDGE_TEXT = (
    "LiteLLM's completion bridge gives its model the text of a message alone: the rest is dropped without a word."
)
COMPLETION_TEXT = (
    "LiteLLM's acompletion sends and reads text alone, of the first artifact: of a file or data nothing is left. "
    "`data_as_text=True` makes text of data."
)

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
    ("langgraph-api", "data"): (
        ABSENT,
        "langgraph-api takes data, which is the state of its graph, and answers with text and files.",
        data_is_taken_and_not_sent,
    ),
    ("crewai", "ask"): (ABSENT, "CrewAI's agents ask their callers nothing.", nobody_is_asked),
    ("crewai", "failure"): (
        PASS,
        "CrewAI gives the reason as an error of the call; there is no task.",
        failures_are_errors_only,
    ),
    ("crewai", "file"): (
        PEER,
        "CrewAI reads the files of a message and does not show them to its agent, which sends none.",
        files_are_dropped,
    ),
    ("crewai", "data"): (ABSENT, "CrewAI takes data, and answers with text.", data_is_taken_and_not_sent),
    (BRIDGE, "text"): (
        PASS,
        "LiteLLM's completion bridge answers with a message; only a stream has a task, which cannot be read again.",
        answers_are_messages,
    ),
    (BRIDGE, "talk"): (
        ABSENT,
        "LiteLLM's completion bridge has no contexts: its model gets each message alone.",
        every_message_stands_alone,
    ),
    (BRIDGE, "ask"): (ABSENT, "A model behind LiteLLM's completion bridge has no questions.", nobody_is_asked),
    (BRIDGE, "failure"): (
        PASS,
        "LiteLLM's completion bridge gives the reason as an error of the call.",
        failures_are_errors_only,
    ),
    (BRIDGE, "file"): (PEER, BRIDGE_TEXT, files_are_dropped),
    (BRIDGE, "data"): (PEER, BRIDGE_TEXT, data_is_dropped),
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
    ("crewai", "stream"): (
        PEER,
        "CrewAI puts a space between the pieces of a stream.",
        pieces_are_joined_with_spaces,
    ),
    ("crewai", "file"): (
        PEER,
        "CrewAI sends files. It reads text alone, and drops those it gets.",
        only_texts_are_read,
    ),
    ("crewai", "data"): (
        PEER,
        "CrewAI sends no data and reads text alone, though it says otherwise: with "
        '`accepted_output_modes=["text/plain"]` it gets data as text.',
        only_texts_are_read,
    ),
    ("litellm-completion", "ask"): (
        ABSENT,
        "LiteLLM's acompletion sends the whole chat as a new message every time: a question is read, and its answer "
        "begins a new task.",
        answers_begin_anew,
    ),
    ("litellm-completion", "failure"): (
        PEER,
        "LiteLLM's acompletion takes a task that has failed for an answer, whose text is the reason.",
        failures_are_answers,
    ),
    ("litellm-completion", "file"): (PEER, COMPLETION_TEXT, nothing_is_read),
    ("litellm-completion", "data"): (PEER, COMPLETION_TEXT, nothing_is_read),
}
