"""Agents that may answer with a bare message: what every way of calling them gives, over every binding.

The same for a function and a `run` that declare it, and for an executor that enqueues a Message. `quick` agents have an
hour for it, and `slow` ones no time at all, so no test depends on how fast it is.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.polling import until

from dragoman import Agent, Context
from dragoman.outputs import Reply
from dragoman.testing import served

SPEAKERS = ["1.0-rpc", "1.0-rest", "1.0-grpc", "1.1-rpc", "1.1-rest", "0.3-rpc", "0.3-rest", "0.3-grpc"]
SECONDS = 30


class Gate:
    """Holds those who pass it: a test waits until somebody is there, and lets them through."""

    def __init__(self) -> None:
        self._opened: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reached = threading.Event()

    async def reach(self, text: str) -> str:
        """Give an answer to the text: at once, or when it is `hold` as soon as the test says so."""
        if text == "hold":
            self._loop, self._opened = asyncio.get_running_loop(), asyncio.Event()
            self._reached.set()
            await self._opened.wait()
        return f"answer to {text}"

    def wait(self) -> None:
        """Wait until somebody is there."""
        assert self._reached.wait(SECONDS)

    def open(self) -> None:
        """Let through who waits there."""
        self.wait()
        self._reached.clear()
        assert self._loop is not None
        assert self._opened is not None
        self._loop.call_soon_threadsafe(self._opened.set)


class Executor:
    """Answers with a bare Message, as executors of a2a-sdk may."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    async def execute(self, context: Any, event_queue: Any) -> None:
        text = await self._gate.reach(context.get_user_input())
        await event_queue.enqueue_event({"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": text}]})

    async def cancel(self, context: Any, event_queue: Any) -> None: ...


def make(kind: str, gate: Gate) -> Agent:
    if kind == "executor":
        return Agent.from_executor(Executor(gate))
    if kind == "run":

        async def run(ctx: Context) -> AsyncIterator[Reply]:
            yield Reply(await gate.reach(ctx.text))

        return Agent("replies", run=run, replies=True)
    agent = Agent("replies")

    @agent.skill
    async def answer(text: str) -> Reply:
        return Reply(await gate.reach(text))

    return agent


@pytest.fixture(scope="module", params=["function", "run", "executor"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def gate() -> Gate:
    return Gate()


@pytest.fixture(scope="module")
def quick(kind: str, gate: Gate) -> Iterator[str]:
    with served(make(kind, gate), reply_within=3600, drain=0, grpc=0) as url:
        yield url


@pytest.fixture(scope="module")
def slow(kind: str, gate: Gate) -> Iterator[str]:
    with served(make(kind, gate), reply_within=0, drain=0, grpc=0) as url:
        yield url


def message_in(speaker: Any, result: Any) -> Any:
    """The bare message that an answer or an event consists of."""
    if speaker.form == "0.3-rpc":
        assert result["kind"] == "message"
        return result
    member = "msg" if speaker.form == "0.3-rest" and "msg" in result else "message"
    assert list(result) == [member]
    return result[member]


def text_of(message: Any) -> str:
    return "".join(part["text"] for part in message.get("parts") or message.get("content"))


def status_text(holder: Any) -> str:
    """The text of the message in a status."""
    for wrapper in ("task", "statusUpdate"):
        holder = holder.get(wrapper, holder)
    status = holder["status"]
    return text_of(status.get("message") or status.get("update"))


# -- execution mode ----------------------------------------------------------------------------------------------------


def test_a_quick_answer_is_a_message(speaker: Any, quick: str, wire: Any) -> None:
    speaker = wire.at(quick).speaker(speaker.name)
    message = message_in(speaker, speaker.send("hi").result)
    assert text_of(message) == "answer to hi"
    assert "taskId" not in message
    if speaker.is_modern:
        assert speaker.list().result["tasks"] == []


def test_a_slow_answer_is_a_task(speaker: Any, slow: str, wire: Any, gate: Gate) -> None:
    speaker = wire.at(slow).speaker(speaker.name)
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(speaker.send, "hold")
        gate.wait()
        if speaker.is_modern:
            until(lambda: "working" in [speaker.state(task) for task in speaker.list().result["tasks"]])
        gate.open()
        answer = sent.result(SECONDS)
    assert speaker.state(answer) == "completed"
    assert status_text(answer.result) == "answer to hold"


@pytest.mark.parametrize("pace", ["quick", "slow"])
def test_a_message_that_need_not_wait_is_answered_with_a_task_at_once(
    speaker: Any, pace: str, quick: str, slow: str, wire: Any, gate: Gate
) -> None:
    speaker = wire.at({"quick": quick, "slow": slow}[pace]).speaker(speaker.name)
    task = speaker.begin("hold")
    assert speaker.state(task) in ("submitted", "working")
    assert speaker.state(speaker.get(task)) in ("submitted", "working")
    with speaker.subscribe(task) as reading:
        reading.next()
        gate.open()
        assert [speaker.state(speaker.event(event)) for event in reading][-1] == "completed"
    ended = speaker.get(task)
    assert (speaker.state(ended), status_text(ended.result)) == ("completed", "answer to hold")


# -- streams -----------------------------------------------------------------------------------------------------------


def test_a_stream_of_a_quick_answer_is_that_message_alone(speaker: Any, quick: str, wire: Any) -> None:
    speaker = wire.at(quick).speaker(speaker.name)
    with speaker.stream("hi") as reading:
        events = [speaker.event(event) for event in reading]
    assert [text_of(message_in(speaker, event)) for event in events] == ["answer to hi"]


def test_a_stream_of_a_slow_answer_is_that_of_a_task(speaker: Any, slow: str, wire: Any, gate: Gate) -> None:
    speaker = wire.at(slow).speaker(speaker.name)
    with speaker.stream("hold") as reading:
        task = speaker.event(reading.next())
        assert speaker.state(task) in ("submitted", "working")
        gate.open()
        last = [speaker.event(event) for event in reading][-1]
    assert (speaker.state(last), status_text(last)) == ("completed", "answer to hold")
    assert speaker.state(speaker.get(task)) == "completed"
