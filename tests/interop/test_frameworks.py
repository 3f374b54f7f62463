"""Other frameworks' own A2A servers and clients, each in its own environment, with a model that plays a script."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from interop.field import DRIVER_SECONDS, Peer
from interop.framework_deviations import IN_CLIENTS, IN_SERVERS
from interop.frameworks import CLIENTS, LANGGRAPH, SERVERS, Framework, converse, script, scripted
from interop.table import (
    FAIL,
    FRAMEWORK_CLIENT_CASES,
    FRAMEWORK_SERVER_CASES,
    FRAMEWORKS_OURS,
    FRAMEWORKS_THEIRS,
    PASS,
    Cell,
)

from dragoman import Agent, Client, File, State, Task
from dragoman.errors import ContentTypeNotSupported
from dragoman.testing import served

pytestmark = [pytest.mark.interop, pytest.mark.timeout(DRIVER_SECONDS + 10)]

SRC = Path(__file__).resolve().parents[2] / "src"
WHOLE = "".join(script.pieces())
SECONDS = 60

Record = Callable[[Cell], None]


# Dragoman's client, their server


async def text(url: str) -> None:
    async with Client(url) as client:
        task = await client.send(f"echo {script.ECHO}")
        assert isinstance(task, Task)
        assert (task.state, task.text) == (State.COMPLETED, script.ECHO)
        assert (await client.get_task(task)).text == script.ECHO


async def stream(url: str) -> None:
    seen = ""
    async with Client(url) as client:
        events = client.stream(f"stream {script.PIECES}")
        async for event in events:
            seen = event.text if event.replaces else seen + event.text
        assert (events.task.state, seen, events.task.text) == (State.COMPLETED, WHOLE, WHOLE)


async def talk(url: str) -> None:
    async with Client(url) as client:
        chat = client.chat()
        answers = [await chat.send(f"echo {word}") for word in script.WORDS]
        assert [answer.text for answer in answers] == script.WORDS
        assert len({answer.context_id for answer in answers}) == 1


async def ask(url: str) -> None:
    async with Client(url) as client:
        asked = await client.send("ask")
        assert isinstance(asked, Task)
        assert asked.state is State.INPUT_REQUIRED
        assert script.QUESTION in (asked.question or "")
        answered = await client.send(script.USER, task=asked)
        assert isinstance(answered, Task)
        assert (answered.id, answered.state) == (asked.id, State.COMPLETED)
        assert answered.text == script.greeting(script.USER)


async def failure(url: str) -> None:
    async with Client(url) as client:
        task = await client.send("fail")
        assert isinstance(task, Task)
        assert task.state is State.FAILED
        assert task.error
        events = client.stream("fail")
        _ = [event async for event in events]
        assert events.task.state is State.FAILED
        assert script.FAILURE in (events.task.error or "")


async def file(url: str) -> None:
    async with Client(url) as client:
        [found] = (await client.send("file")).files
        assert (found.raw, found.media_type, found.filename) == (script.FILE, script.FILE_TYPE, script.FILE_NAME)
        sent = File(script.FILE, name=script.FILE_NAME, media_type=script.FILE_TYPE)
        taken = await client.send("take", files=[sent])
        assert taken.text == script.taken_file(script.FILE, script.FILE_TYPE, script.FILE_NAME)


async def data(url: str) -> None:
    async with Client(url) as client:
        assert (await client.send("data")).data == script.DATA
        taken = await client.send("take", data=script.DATA)
        assert taken.text == script.taken_data(script.DATA)


async def tool(url: str) -> None:
    async with Client(url) as client:
        assert await client.as_tool()(f"echo {script.ECHO}") == script.ECHO


async def command(url: str) -> None:
    for message, answer in (f"echo {script.ECHO}", script.ECHO), (f"stream {script.PIECES}", WHOLE):
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "dragoman.cli.main", "send", url, message],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
            env={**os.environ, "PYTHONPATH": str(SRC)},
        )
        assert (done.returncode, done.stdout.strip()) == (0, answer.strip()), done.stderr


async def front(url: str) -> None:
    with served(Agent.from_a2a(url)) as before:
        await text(before)
        await stream(before)


SERVER_CASES: dict[str, Callable[[str], Awaitable[None]]] = {
    "text": text,
    "stream": stream,
    "talk": talk,
    "ask": ask,
    "failure": failure,
    "file": file,
    "data": data,
    "tool": tool,
    "command": command,
    "front": front,
}


@pytest.fixture(scope="session")
def our_server() -> Iterator[Callable[[], str]]:
    """The base URL of Dragoman's agent, which starts when it is first asked for."""
    with ExitStack() as running:
        yield cache(lambda: running.enter_context(served(scripted())))


@pytest.fixture
def their_server(server_of: Callable[[Peer], str], our_server: Callable[[], str]) -> Callable[[Framework], str]:
    def url_of(framework: Framework) -> str:
        peer = framework.peer
        if framework.before_ours and not peer.missing:
            peer = replace(peer, server=(*peer.server, our_server()))
        return server_of(peer) + framework.path

    return url_of


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param(operation, marks=[pytest.mark.smoke] if operation == "text" else [])
        for operation in FRAMEWORK_SERVER_CASES
    ],
)
@pytest.mark.parametrize("framework", SERVERS, ids=str)
async def test_our_client_and_the_server_of_a_framework(
    framework: Framework, operation: str, their_server: Callable[[Framework], str], record: Record
) -> None:
    result, why, check = IN_SERVERS.get((str(framework), operation), (PASS, "", SERVER_CASES[operation]))
    try:
        await check(their_server(framework))
    except BaseException as error:
        record(Cell(FRAMEWORKS_OURS, str(framework), "", operation, FAIL, str(error)))
        raise
    record(Cell(FRAMEWORKS_OURS, str(framework), "", operation, result, why))


@pytest.mark.parametrize("framework", [each for each in SERVERS if (str(each), "ask") not in IN_SERVERS], ids=str)
async def test_a_front_passes_the_questions_of_a_framework_on(
    framework: Framework, their_server: Callable[[Framework], str]
) -> None:
    with served(Agent.from_a2a(their_server(framework))) as url:
        await ask(url)


async def test_langgraph_api_is_understood_in_the_version_that_its_card_names(
    their_server: Callable[[Framework], str],
) -> None:
    """It declares 1.0 and sends the events and files of 0.3, without the envelopes of 1.0; files it refuses."""
    async with Client(their_server(LANGGRAPH), protocol="1.0") as client:
        events = client.stream(f"stream {script.PIECES}")
        assert "".join([event.text async for event in events]) == events.task.text == WHOLE
        assert [found.raw for found in (await client.send("file")).files] == [script.FILE]
        with pytest.raises(ContentTypeNotSupported, match="Unsupported part type"):
            await client.send("take", files=[File(script.FILE, name=script.FILE_NAME, media_type=script.FILE_TYPE)])


# Their client, Dragoman's server


def same(wanted: Any) -> Callable[[dict[str, Any]], None]:
    """The case found this."""

    def check(line: dict[str, Any]) -> None:
        assert line.get("found") == wanted, line

    return check


def streamed(line: dict[str, Any]) -> None:
    assert line.get("found"), line
    assert line["found"]["answer"] == WHOLE
    assert "".join(line["found"]["pieces"]) == WHOLE


def failed(line: dict[str, Any]) -> None:
    assert script.FAILURE in line.get("raised", ""), line


CLIENT_CASES: dict[str, Callable[[dict[str, Any]], None]] = {
    "text": same(script.ECHO),
    "stream": streamed,
    "talk": same(script.WORDS),
    "ask": same({"question": script.QUESTION, "answer": script.greeting(script.USER)}),
    "failure": failed,
    "file": same(
        {
            "sent": script.taken_file(script.FILE, script.FILE_TYPE, script.FILE_NAME),
            "received": [base64.b64encode(script.FILE).decode(), script.FILE_TYPE, script.FILE_NAME],
        }
    ),
    "data": same({"sent": script.taken_data(script.DATA), "received": script.DATA}),
}


@pytest.fixture(scope="session")
def lines_of(our_server: Callable[[], str]) -> Callable[[Framework], dict[str, Any]]:
    """What a framework's client reported of all its cases, which are played once."""
    played: dict[str, dict[str, Any]] = {}

    def lines(framework: Framework) -> dict[str, Any]:
        if framework.peer.missing:
            pytest.skip(framework.peer.missing)
        if framework.peer.folder not in played:
            played[framework.peer.folder] = converse(framework, our_server())
        return played[framework.peer.folder]

    return lines


@pytest.mark.smoke
@pytest.mark.parametrize("framework", CLIENTS, ids=str)
def test_the_client_of_a_framework_and_our_server(
    framework: Framework, lines_of: Callable[[Framework], dict[str, Any]], record: Record
) -> None:
    lines = lines_of(framework)
    failing: list[str] = []
    for operation in FRAMEWORK_CLIENT_CASES:
        result, why, check = IN_CLIENTS.get((str(framework), operation), (PASS, "", CLIENT_CASES[operation]))
        try:
            check(lines.get(framework.begins + operation, {}))
        except AssertionError as error:
            result, why = FAIL, str(error)
            failing.append(f"{operation}: {json.dumps(lines.get(framework.begins + operation))}\n{error}")
        record(Cell(FRAMEWORKS_THEIRS, str(framework), "", operation, result, why))
    assert not failing, "\n".join(failing)
