"""Executors written for a2a-sdk, 1.x and 0.3, run by Dragoman as they are. They are those that the peers serve."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from interop.field import INSTALLED, PROGRAMS, Peer, serving
from interop.peers import script

from dragoman import Client, Message, State, Task
from dragoman.errors import InvalidParams
from dragoman.model.event import ArtifactUpdate

pytestmark = [pytest.mark.interop, pytest.mark.timeout(60)]

FOLDERS = ("a2a-sdk", "a2a-sdk-03")
ADA = {"Authorization": "Bearer ada"}
GUIDE = Path(__file__).resolve().parents[2] / "docs" / "coming-from" / "a2a-sdk.md"


def packages(folder: str) -> Path:
    """Where the packages of a peer are; skips the test when the peer is not there."""
    if not (INSTALLED / folder / "ready").exists():
        pytest.skip(f"no .peers/{folder}: run `make interop`")
    [found] = (INSTALLED / folder / "lib").glob("python*/site-packages")
    return found


@pytest.fixture(scope="module", params=FOLDERS)
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A Dragoman server, in a process of its own, whose agent is an executor of that a2a-sdk."""
    command = (sys.executable, PROGRAMS / "executor_server.py", str(packages(request.param)))
    with serving(Peer(f"executors of {request.param}", request.param, command, (), ("", ""))) as base:
        yield base


@pytest.fixture(params=["1.0", "0.3"])
async def client(url: str, request: pytest.FixtureRequest) -> AsyncGenerator[Client, None]:
    async with Client(url, protocol=request.param, headers=ADA) as client:
        yield client


async def sent(client: Client, text: str, task: Task | None = None) -> Task:
    answer = await client.send(text, task=task)
    assert isinstance(answer, Task)
    return answer


async def test_it_answers_with_an_artifact(client: Client) -> None:
    task = await sent(client, "echo hello there")
    assert (task.state, task.text) == (State.COMPLETED, "hello there")
    assert [artifact.name for artifact in task.artifacts] == ["result"]


async def test_a_bare_message_is_an_answer_without_a_task(client: Client) -> None:
    answer = await client.send("message")
    assert isinstance(answer, Message)
    assert answer.text == script.BARE
    stream = client.stream("message")
    assert [event.kind async for event in stream] == ["message"]


async def test_pieces_arrive_one_by_one_with_their_flags(client: Client) -> None:
    stream = client.stream("stream 5")
    updates = [event.raw async for event in stream]
    pieces = [(each.append, each.last_chunk) for each in updates if isinstance(each, ArtifactUpdate)]
    assert pieces == [(False, False), *[(True, False)] * 3, (True, True)]
    assert stream.task.state is State.COMPLETED
    assert stream.task.text == "".join(script.chunks(5))
    assert (await client.get_task(stream.task)).text == stream.task.text


async def test_a_question_pauses_and_the_answer_goes_on(client: Client) -> None:
    asked = await sent(client, "ask")
    assert (asked.state, asked.question) == (State.INPUT_REQUIRED, script.QUESTION)
    answered = await sent(client, "Ada", asked)
    assert (answered.id, answered.state, answered.text) == (asked.id, State.COMPLETED, script.greeting("Ada"))


async def test_a_request_for_credentials_pauses(client: Client) -> None:
    asked = await sent(client, "auth")
    assert (asked.state, asked.question) == (State.AUTH_REQUIRED, "Sign in")
    assert (await sent(client, "Ada", asked)).text == script.greeting("Ada")


async def test_the_task_that_was_given_may_be_enqueued_again(client: Client) -> None:
    asked = await sent(client, "again")
    assert (asked.question, [artifact.text for artifact in asked.artifacts]) == ("Again?", ["once"])
    events = [event.raw async for event in client.stream("again", task=asked)]
    updates = [event for event in events if isinstance(event, ArtifactUpdate)]
    assert [(event.artifact.text, event.append, event.last_chunk) for event in updates] == [("", True, True)]  # its end
    assert (await client.get_task(asked)).state is State.COMPLETED


async def test_a_cancel_reaches_both_cancel_and_the_work(client: Client) -> None:
    before = json.loads((await sent(client, "canceled")).text)
    task = await client.send("hang", wait=False)
    assert isinstance(task, Task)
    async for event in client.subscribe(task):
        if event.state is State.WORKING:
            break
    assert (await client.cancel_task(task)).state is State.CANCELED
    assert json.loads((await sent(client, "canceled")).text) == [*before, "cancel", "execute"]


async def test_integers_are_integers_again(client: Client) -> None:
    data = (await sent(client, "data")).data
    assert data == script.DATA
    assert (type(data["n"]), type(data["list"][0]), type(data["list"][1])) == (int, int, float)


async def test_bytes_names_and_types_of_files_are_kept(client: Client) -> None:
    [file] = (await sent(client, "file")).files
    assert (file.raw, file.filename, file.media_type) == (script.FILE, script.FILE_NAME, script.FILE_TYPE)


async def test_a_failure_has_its_reason_and_an_exception_has_no_text(client: Client) -> None:
    failed = await sent(client, "fail")
    assert (failed.state, failed.error) == (State.FAILED, script.FAILURE)
    with pytest.raises(InvalidParams, match="say please") as refused:
        await client.send("refuse")
    assert (await client.get_task(refused.value.metadata["taskId"])).error == "say please"
    raised = await sent(client, "raise")
    assert raised.state is State.FAILED
    assert "swordfish" not in (raised.error or "")


async def test_it_finds_its_own_types_and_all_it_looks_at(url: str) -> None:
    async with Client(url, headers={**ADA, "A2A-Extensions": "urn:x"}) as client:
        answer = await client.send("facts", data={"n": 1}, metadata={"k": {"n": 1}})
    found = json.loads(answer.text)
    assert found.pop("extensions") == []  # those that the card does not offer are not passed on
    assert found == {
        "context": True,
        "queue": True,
        "message": True,
        "ids": True,
        "configuration": True,
        "metadata": {"k": {"n": 1}},
        "user": [True, "ada"],
        "current_task": False,
        "related": [],
        "parts": 2,
    }


# -- docs/coming-from/a2a-sdk.md --------------------------------------------------------------------------------


def saved(folder: Path) -> list[str]:
    """Save the files that the guide shows, and give their names."""
    files = re.findall(r'^```python[^\n]* ?title="([^"]+)"\n(.*?)^```$', GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    for name, text in files:
        (folder / name).write_text(text)
    return [name for name, _ in files]


@pytest.mark.parametrize("file", ["before.py", "after.py", "trips.py"])
async def test_what_the_guide_shows_before_and_after_answers_alike(file: str, tmp_path: Path) -> None:
    assert saved(tmp_path) == ["before.py", "after.py", "trips.py", "own_store.py"]
    command = (sys.executable, PROGRAMS / "guide_server.py", str(packages("a2a-sdk")), str(tmp_path / file))
    with serving(Peer(file, "a2a-sdk", command, (), ("", ""))) as url:
        async with Client(url) as client:
            card = await client.card()
            assert (card.name, card.description, [skill.id for skill in card.skills]) == (
                "trips",
                "Plans trips",
                ["trip"],
            )
            asked = await sent(client, "Porto")
            assert (asked.state, asked.question) == (State.INPUT_REQUIRED, "How many days?")
            stream = client.stream("3", task=asked)
            pieces = [event.text async for event in stream if event.text]
            assert pieces == ["Porto, ", "3 days"]
            assert (stream.task.id, stream.task.state) == (asked.id, State.COMPLETED)
            assert (await client.get_task(asked)).text == "Porto, 3 days"


def test_before_an_exception_was_shown_and_a_task_without_an_end_stayed_at_work(tmp_path: Path) -> None:
    """What the guide says of a2a-sdk is so."""
    saved(tmp_path)
    (tmp_path / "rough.py").write_text(ROUGH)
    command = (sys.executable, PROGRAMS / "guide_server.py", str(packages("a2a-sdk")), str(tmp_path / "rough.py"))
    with serving(Peer("rough.py", "a2a-sdk", command, (), ("", ""))) as url:
        assert posted(url, "return")["result"]["task"]["status"]["state"] == "TASK_STATE_WORKING"
        assert posted(url, "raise")["error"]["message"] == "the password is swordfish"


def posted(url: str, text: str) -> dict[str, Any]:
    """The answer to a message, as it stands on the wire: our client would wait for the end of the task."""
    message = {"messageId": text, "role": "ROLE_USER", "parts": [{"text": text}]}
    call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    headers = {"Content-Type": "application/json", "A2A-Version": "1.0"}
    with urlopen(Request(url, json.dumps(call).encode(), headers)) as answer:
        return json.loads(answer.read())


ROUGH = """
from before import *

class RoughExecutor(AgentExecutor):
    async def execute(self, context, event_queue):
        task = new_task_from_user_message(context.message)
        await event_queue.enqueue_event(task)
        await TaskUpdater(event_queue, task.id, task.context_id).start_work()
        if context.get_user_input() == "raise":
            raise ValueError("the password is swordfish")

    async def cancel(self, context, event_queue):
        pass

handler = DefaultRequestHandler(agent_executor=RoughExecutor(), task_store=InMemoryTaskStore(), agent_card=card)
app = Starlette(routes=[*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/")])
"""
