"""The closing message of a task, and its answer repeated there, in every dialect and binding."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from dragoman import Agent, File
from dragoman.outputs import Done
from dragoman.testing import served

SPEAKERS = ("1.0-rpc", "1.0-rest", "1.0-grpc", "1.1-rpc", "1.1-rest", "0.3-rpc", "0.3-rest", "0.3-grpc", "0.1-rpc")


async def export() -> AsyncIterator[Any]:
    """Give rows, then say that it is done."""
    yield {"rows": 3}
    yield Done("All exported", File(b"log", name="export.log"))


async def write() -> AsyncIterator[str]:
    """Stream a text."""
    yield "one "
    yield "two"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    agent = Agent("closing")
    agent.skill(export)
    agent.skill(write)
    with served(agent, closing_message=True, drain=0, grpc=0) as url:
        yield url


@pytest.fixture
def closer(wire: Any, url: str, speaker: Any) -> Any:
    return wire.at(url).speaker(speaker.name)


def message_of(speaker: Any, holder: Any) -> list[dict[str, Any]]:
    """The parts of a status message, which 0.3 over REST calls its content."""
    for wrapper in ("task", "statusUpdate"):
        holder = holder.get(wrapper, holder)
    message = holder["status"].get("message") or holder["status"].get("update")
    return message["content" if speaker.form == "0.3-rest" else "parts"]


def test_the_closing_message_stands_in_the_last_status(closer: Any) -> None:
    answer = closer.send(tool="export")
    assert closer.state(answer) == "completed"
    task = closer.task(answer)
    text, file = message_of(closer, task)
    assert text["text"] == "All exported"
    assert "text" not in file
    assert len(task["artifacts"]) == 1
    assert message_of(closer, closer.get(task).result) == [text, file]


def test_the_last_event_of_a_stream_has_it(closer: Any) -> None:
    with closer.stream(tool="export") as reading:
        last = closer.event(list(reading)[-1])
    assert closer.state(last) == "completed"
    assert message_of(closer, last)[0]["text"] == "All exported"


def test_the_text_of_the_answer_is_repeated_there_where_the_server_does_so(closer: Any) -> None:
    answer = closer.send(tool="write")
    assert closer.texts(answer) == ["one two"]
    assert [part["text"] for part in message_of(closer, closer.task(answer))] == ["one two"]
