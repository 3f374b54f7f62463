"""A Dragoman server in front of a foreign one: durable, resumable, and understood by callers of every version."""

from __future__ import annotations

import asyncio
import json
import subprocess
import urllib.request
from collections.abc import Callable, Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from interop.agents import agent as interop_agent
from interop.field import JSONRPC_03, JSONRPC_10, PEERS, PROGRAMS, REST_10, Peer, Wire, drive
from interop.peers import script
from support.command import DRAGOMAN, inherited_environment
from support.server_process import ServerProcess

from dragoman import Agent, Client, State, Task
from dragoman.model.event import ArtifactUpdate
from dragoman.testing import served

pytestmark = pytest.mark.interop

CHUNKS = 12
# Long enough to kill somebody in the middle of it.
MANY = 200
BY_FOLDER = {peer.folder: peer for peer in PEERS}
OLD, NEW = BY_FOLDER["a2a-sdk-03"], BY_FOLDER["a2a-sdk"]


@pytest.fixture
def front(tmp_path: Path) -> Generator[Callable[[str], ServerProcess]]:
    """Start `dragoman serve --a2a` in front of it, each on the same file."""
    with ExitStack() as running:

        def start(behind: str) -> ServerProcess:
            store = f"sqlite:///{tmp_path / 'front.db'}"
            command = [*DRAGOMAN, "serve", "--a2a", behind, "--port", "0", "--store", store]
            return running.enter_context(ServerProcess(command, tmp_path, environment=inherited_environment()))

        yield start


def chunks_of(events: list[Any]) -> list[str]:
    return [event.text for event in events if event.text]


async def _answers(client: Client) -> None:
    """Everything the script has, through the front."""
    echo = await client.send("echo hello there")
    assert isinstance(echo, Task)
    assert (echo.state, echo.text) == (State.COMPLETED, "hello there")
    failed = await client.send("fail")
    assert (failed.state, failed.error) == (State.FAILED, script.FAILURE)
    bare = await client.send("message")
    assert isinstance(bare, Task)
    assert (bare.state, bare.text) == (State.COMPLETED, script.BARE)
    data = await client.send("data")
    assert isinstance(data, Task)
    [file] = (await client.send("file")).files
    assert (file.raw, file.filename, file.media_type) == (script.FILE, script.FILE_NAME, script.FILE_TYPE)
    stream = client.stream(f"stream {CHUNKS}")
    events = [event async for event in stream]
    assert chunks_of(events) == script.chunks(CHUNKS)
    assert len([event for event in events if isinstance(event.raw, ArtifactUpdate)]) == CHUNKS
    assert (await client.get_task(stream.task)).text == "".join(script.chunks(CHUNKS))
    asked = await client.send("ask")
    assert (asked.state, asked.question) == (State.INPUT_REQUIRED, script.QUESTION)
    answered = await client.send("Ada", task=asked)
    assert (answered.state, answered.text) == (State.COMPLETED, script.greeting("Ada"))


@pytest.mark.parametrize("peer", [peer for peer in PEERS if peer.folder != "fasta2a"], ids=str)
@pytest.mark.parametrize("protocol", ["1.0", "0.3", "0.1"])
async def test_callers_of_every_version_get_the_answers_of_the_agent_behind(
    server_of: Callable[[Peer], str], peer: Peer, protocol: str
) -> None:
    with served(Agent.from_a2a(server_of(peer))) as url:
        async with Client(url, protocol=protocol) as client, Client(server_of(peer)) as direct:
            ours, theirs = await client.card(), await direct.card()
            assert (ours.name, ours.skills) == (theirs.name, theirs.skills)
            await _answers(client)


@pytest.mark.parametrize("protocol", ["1.0", "0.3", "0.1"])
async def test_numbers_and_the_order_of_keys_survive(server_of: Callable[[Peer], str], protocol: str) -> None:
    with served(Agent.from_a2a(server_of(OLD))) as url:
        async with Client(url, protocol=protocol) as client:
            assert json.dumps((await client.send("data")).data) == json.dumps(script.DATA)


async def test_canceling_in_front_cancels_behind(server_of: Callable[[Peer], str], front: Any) -> None:
    behind = server_of(OLD)
    async with Client(front(behind).url) as client, Client(behind) as direct:
        stream = client.stream("slow")
        async for event in stream:
            if event.state is State.WORKING:
                break
        await client.cancel_task(stream.task)
        # a2a-sdk 0.3 lists nothing: that it works no more is seen when it stops without delay.
        assert (await client.get_task(stream.task)).state is State.CANCELED
        assert (await direct.send("echo still there")).text == "still there"


async def test_a_login_behind_completes_the_task_in_front_and_its_caller_sends_nothing(
    server_of: Callable[[Peer], str], front: Any
) -> None:
    behind = server_of(NEW)
    async with Client(front(behind).url) as client:
        task = await client.send("login Ada")
        assert (task.state, task.question) == (State.AUTH_REQUIRED, script.LOGIN)
        stream = client.subscribe(task)
        async for event in stream:
            if event.state is State.AUTH_REQUIRED:
                assert await asyncio.to_thread(_read, f"{behind.rstrip('/')}/login") == b"welcome"
        ended = stream.task
        assert (ended.state, ended.text) == (State.COMPLETED, script.greeting("Ada"))


def _read(url: str) -> bytes:
    with urllib.request.urlopen(url) as page:
        return page.read()


async def test_a_task_that_runs_when_the_front_is_killed_is_taken_up_where_it_is(
    server_of: Callable[[Peer], str], front: Any
) -> None:
    behind = server_of(OLD)  # which knows no way to resume a stream
    first = front(behind)
    seen: list[Any] = []
    async with Client(first.url) as client:
        stream = client.stream(f"stream {MANY}")
        async for event in stream:
            seen.append(event)
            if len(chunks_of(seen)) == 20:
                break
        first.kill()
        task = stream.task
    second = front(behind)
    async with Client(second.url) as client:
        rest = [event async for event in client.subscribe(task.id, after=seen[-1].id)]
        ended = await client.get_task(task.id)
    whole = "".join(script.chunks(MANY))
    assert (ended.state, ended.text, len(ended.artifacts)) == (State.COMPLETED, whole, 1)
    assert "".join(chunks_of([*seen, *rest])) == whole
    assert [event.id for event in (*seen, *rest)] == list(range(1, len(seen) + len(rest) + 1))


# Official clients in front


SDK_CLIENT = """
import asyncio, json, sys, uuid
import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import Message, Part, Role, SendMessageRequest

async def main(url, text):
    async with httpx.AsyncClient(timeout=30) as http:
        card = await A2ACardResolver(http, url).get_agent_card()
        client = ClientFactory(ClientConfig(httpx_client=http, streaming=True)).create(card)
        message = Message(message_id=str(uuid.uuid4()), role=Role.ROLE_USER, parts=[Part(text=text)])
        texts = []
        async for event in client.send_message(SendMessageRequest(message=message)):
            if event.HasField("artifact_update"):
                texts += [part.text for part in event.artifact_update.artifact.parts]
        print(json.dumps(texts))

asyncio.run(main(*sys.argv[1:]))
"""


def test_the_official_client_of_1_0_reads_a_stream_of_a_server_of_0_3(server_of: Callable[[Peer], str]) -> None:
    if NEW.missing:
        pytest.skip(NEW.missing)
    with served(Agent.from_a2a(server_of(OLD))) as url:
        done = subprocess.run(
            [NEW.client[0], "-c", SDK_CLIENT, url, f"stream {CHUNKS}"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd=PROGRAMS,
        )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == script.chunks(CHUNKS)


@pytest.mark.parametrize(
    ("peer", "wire"), [(NEW, JSONRPC_10), (NEW, REST_10), (NEW, JSONRPC_03), (OLD, JSONRPC_03)], ids=str
)
def test_official_clients_find_in_front_what_they_find_behind(peer: Peer, wire: Wire) -> None:
    """All that a driver tries against our own agent, with the agent behind one that speaks 0.3 to it."""
    if peer.missing:
        pytest.skip(peer.missing)
    with served(interop_agent) as behind, served(Agent.from_a2a(behind, protocol="0.3")) as url:
        there, here = drive(peer, behind, wire), drive(peer, url, wire)
    passed_there, passed_here = ({case["case"] for case in driven.cases if case["ok"]} for driven in (there, here))
    assert len(passed_here) > 10
    # What is answered without a task behind is a task in front.
    assert passed_there - passed_here == {"send_reply", "stream_reply"}
