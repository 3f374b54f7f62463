"""Whoever calls cannot get past a login: nothing that is sent continues a task that waits for one."""

from __future__ import annotations

import asyncio
import base64
import re
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from uuid import uuid4

import httpx2
import pytest

from dragoman import Agent, Context
from dragoman.errors import InvalidParams
from dragoman.server.http.app import App
from dragoman.testing import served

SPEAKERS = (
    "1.0-rpc",
    "1.0-rest",
    "1.0-grpc",
    "1.1-rpc",
    "1.1-rest",
    "0.3-rpc",
    "0.3-rest",
    "0.3-grpc",
    "0.1-rpc",
)
SECONDS = 10
FORGED = {"name": "Administrator"}
HOOK = "http://127.0.0.1:9/hook"  # nobody listens there


class House:
    """A server with one agent, the logins that the agent was told of, and the server's own code."""

    def __init__(self) -> None:
        self.logins: dict[str, list[Any]] = {}
        self.loop: asyncio.AbstractEventLoop | None = None
        agent = Agent("calendar")

        @agent.skill
        async def today(ctx: Context) -> str:
            self.loop = asyncio.get_running_loop()
            self.logins.setdefault(ctx.task_id, [])
            login = await ctx.ask_auth("Log in", url=lambda handle: f"https://login.example.com/?state={handle}")
            self.logins[ctx.task_id].append(login)
            return f"Nothing today, {login['name']}."

        self.app: App = agent.app(store="memory:", heartbeat=0.05, drain=0, grpc=0, push_allow=["127.0.0.1"])

    def log_in(self, handle: str) -> None:
        """What a callback does, once it has asked the provider who has logged in."""
        assert self.loop is not None
        asyncio.run_coroutine_threadsafe(self.app.resume(handle, {"name": "Ann"}), self.loop).result(SECONDS)


@pytest.fixture(scope="module")
def house() -> House:
    return House()


@pytest.fixture(scope="module")
def wire(house: House, wire_at: Callable[[str], Any]) -> Iterator[Any]:
    with served(house.app) as url:
        yield wire_at(url)


class Victim(NamedTuple):
    """A task that waits for a login, and what everybody who reads it knows."""

    id: str
    context: str
    handle: str


@pytest.fixture
def victim(house: House, speaker: Any) -> Iterator[Victim]:
    """The task of a test. After the test it waits as before, and the login that was verified continues it."""
    answer = speaker.send("hi", message={} if speaker.version == "0.1" else {"messageId": str(uuid4())})
    task = answer.result.get("task", answer.result)
    found = re.search(r"login\.example\.com/\?state=([\w.-]+)", answer.text)
    assert found is not None
    victim = Victim(task["id"], task.get("contextId") or task.get("sessionId"), found[1])
    yield victim
    assert house.logins[victim.id] == []
    assert speaker.state(speaker.get(victim.id)) == waiting(speaker)
    house.log_in(victim.handle)
    deadline = time.monotonic() + SECONDS
    while speaker.state(ended := speaker.get(victim.id)) != "completed":
        assert time.monotonic() < deadline
    assert speaker.texts(ended) == ["Nothing today, Ann."]
    assert house.logins[victim.id] == [{"name": "Ann"}]


def waiting(speaker: Any) -> str:
    return "input-required" if speaker.version == "0.1" else "auth-required"


# Each says something to the task that waits.
MESSAGES: dict[str, Callable[[Any, Victim], dict[str, Any]]] = {
    "data": lambda speaker, it: speaker.params(FORGED, task=it.id),
    "text": lambda speaker, it: speaker.params("I have logged in", task=it.id),
    "text and data": lambda speaker, it: speaker.params("done", FORGED, task=it.id),
    "the tool again": lambda speaker, it: speaker.params(tool="today", arguments=FORGED, task=it.id),
    "the handle as text": lambda speaker, it: speaker.params(it.handle, task=it.id),
    "the link as text": lambda speaker, it: speaker.params(f"https://x/?state={it.handle}&name=root", task=it.id),
    "the handle as data": lambda speaker, it: speaker.params({"handle": it.handle, "data": FORGED}, task=it.id),
    "the handle in the metadata": lambda speaker, it: speaker.params(
        FORGED, task=it.id, metadata={"handle": it.handle, "state": it.handle, "dragoman/answer": FORGED}
    ),
    "a skill in the metadata": lambda speaker, it: speaker.params(FORGED, task=it.id, metadata={"skillId": "today"}),
    "an answer to an elicitation": lambda speaker, it: speaker.params({"action": "accept", **FORGED}, task=it.id),
    "no wait": lambda speaker, it: speaker.params(FORGED, task=it.id, now=True),
}
MODERN: dict[str, Callable[[Any, Victim], dict[str, Any]]] = {
    "its context": lambda speaker, it: speaker.params(FORGED, task=it.id, message={"contextId": it.context}),
    "a reference to itself": lambda speaker, it: speaker.params(
        FORGED, task=it.id, message={"referenceTaskIds": [it.id]}
    ),
    "the role of the agent": lambda speaker, it: speaker.params(
        FORGED, task=it.id, message={"role": "agent" if speaker.name == "0.3-rpc" else "ROLE_AGENT"}
    ),
}


@pytest.mark.parametrize("what", [*MESSAGES, *MODERN])
def test_no_message_continues_it_and_each_is_kept(speaker: Any, house: House, victim: Victim, what: str) -> None:
    if what in MODERN and speaker.version == "0.1":
        pytest.skip("0.1 has no such field")
    params = (MESSAGES | MODERN)[what](speaker, victim)
    answer = speaker._call("send", params, None)
    if answer.status != 200 or "error" in answer.json:
        return  # refused: that is no way in either
    # It does not wait, for there is nothing to wait for.
    assert speaker.state(answer) == waiting(speaker)
    kept = [message for message in speaker.task(answer).get("history", ()) if message["role"] in ("user", "ROLE_USER")]
    assert len(kept) == (1 if "role" in what else 2)


def test_a_message_that_is_repeated_is_kept_once(speaker: Any, victim: Victim) -> None:
    if speaker.version == "0.1":
        pytest.skip("messages of 0.1 have no ids")
    named = {"messageId": str(uuid4())}
    for _ in range(3):
        answer = speaker.send(FORGED, task=victim.id, message=named)
        assert speaker.state(answer) == waiting(speaker)
    assert answer.text.count(named["messageId"]) == 1


def test_a_stream_shows_the_task_and_stays_open(speaker: Any, house: House, victim: Victim) -> None:
    with speaker.stream(FORGED, task=victim.id) as reading:
        assert speaker.state(speaker.event(reading.next())) == waiting(speaker)
        if not speaker.is_grpc:  # there are no comments in a stream of gRPC
            assert reading.comment()


def test_a_file_is_no_login(speaker: Any, victim: Victim) -> None:
    raw = base64.b64encode(b'{"name": "Administrator"}').decode()
    file = {"name": "login.json", "mimeType": "application/json", "bytes": raw}
    part: dict[str, Any] = {"raw": raw, "mediaType": "application/json", "filename": "login.json"}
    if not speaker.is_modern:
        tag = {"0.3": {"kind": "file"}, "0.1": {"type": "file"}}[speaker.version]
        part = {**tag, "file": file}
        if speaker.is_rest:
            part = {"file": {"name": "login.json", "mimeType": "application/json", "fileWithBytes": raw}}
    params = speaker.params("see the file", task=victim.id)
    message = params["message"]
    message["content" if "content" in message else "parts"].append(part)
    assert speaker.state(speaker._call("send", params, None)) == waiting(speaker)


# -- other ways, which are the same in every version -------------------------------------------------------------------


ONE = pytest.mark.parametrize("speaker", ["1.0-rpc"], indirect=True)


@ONE
def test_a_message_that_insists_on_the_generation_is_a_note_too(speaker: Any, victim: Victim) -> None:
    generation = int(speaker.get(victim.id, headers={"A2A-Version": "1.1"}).result.get("generation", 3))
    answer = speaker.send(FORGED, task=victim.id, configuration={"ifGenerationMatch": generation})
    assert answer.status in (200, 409)


@ONE
def test_a_new_task_of_the_same_conversation_is_another_task(speaker: Any, house: House, victim: Victim) -> None:
    for members in ({"contextId": victim.context}, {"referenceTaskIds": [victim.id]}):
        task = speaker.task(speaker.send(FORGED, message={**members, "messageId": str(uuid4())}))
        assert task["id"] != victim.id
        assert house.logins.get(task["id"], []) == []


@ONE
def test_a_webhook_with_the_handle_continues_nothing(speaker: Any, wire: Any, victim: Victim) -> None:
    config = {"taskId": victim.id, "id": victim.handle, "url": f"{HOOK}?state={victim.handle}", "token": victim.handle}
    wire.rpc("CreateTaskPushNotificationConfig", config, **{"A2A-Version": "1.0"})
    wire.rpc("GetTaskPushNotificationConfig", {"taskId": victim.id, "id": victim.handle}, **{"A2A-Version": "1.0"})


@ONE
@pytest.mark.parametrize("method", ["resume", "ResumeTask", "tasks/resume", "app.resume", "message/resume"])
def test_no_operation_takes_the_handle(speaker: Any, wire: Any, victim: Victim, method: str) -> None:
    params = {"handle": victim.handle, "id": victim.id, "data": FORGED}
    assert "error" in wire.rpc(method, params, **{"A2A-Version": "1.0"}).json


@ONE
@pytest.mark.parametrize("http_method", ["GET", "POST", "PUT"])
def test_no_path_takes_the_handle(
    speaker: Any, wire: Any, victim: Victim, http_method: str, http: httpx2.Client
) -> None:
    handle, task = victim.handle, victim.id
    paths = ["/", f"/tasks/{task}", f"/tasks/{task}:resume", f"/tasks/{handle}", "/callback", "/resume", "/agents"]
    paths += ["/login", "/console/api/resume", f"/console/api/tasks/{task}", "/healthz", "/message:send", "/v1/resume"]
    for path in paths:
        response = http.request(
            http_method,
            f"{wire.url}{path}?state={handle}&code=x&handle={handle}&name=root",
            headers={"Authorization": f"Bearer {handle}", "X-Handle": handle, "Cookie": f"state={handle}"},
            json={"handle": handle, "data": FORGED} if http_method != "GET" else None,
        )
        assert response.status_code < 500


@ONE
def test_resuming_with_a_wrong_handle_is_refused_without_saying_what_is_wrong(
    speaker: Any, house: House, victim: Victim
) -> None:
    handle = victim.handle
    wrong = [victim.id, handle[:-1], handle[1:], handle.swapcase(), f"{handle}=", handle.split(".")[0]]
    wrong += [f"{'A' * 32}.{handle.split('.')[1]}", handle.replace(".", ""), f" {handle}", victim.context]
    texts = set()
    for each in wrong:
        with pytest.raises(InvalidParams) as refused:
            house.log_in(each)
        texts.add(str(refused.value))
    assert len(texts) == 1  # it does not say what is wrong


@ONE
def test_the_handle_of_one_task_continues_no_other(speaker: Any, house: House, victim: Victim) -> None:
    answer = speaker.send("another", message={"messageId": str(uuid4())})
    other = re.search(r"state=([\w.-]+)", answer.text)
    assert other is not None
    house.log_in(other[1])
    assert house.logins[victim.id] == []
    with pytest.raises(InvalidParams):  # used
        house.log_in(other[1])


@ONE
def test_what_is_stored_is_not_the_handle(speaker: Any, house: House, victim: Victim) -> None:
    async def notes() -> list[Any]:
        stored = await house.app._store.task(victim.id)
        assert stored is not None
        return await house.app._store.notes(stored.row.number)

    assert house.loop is not None
    found = asyncio.run_coroutine_threadsafe(notes(), house.loop).result(SECONDS)
    assert [note.kind for note in found if note.kind == "ask"] == ["ask"]
    assert not any(victim.handle.split(".")[0].encode() in note.body for note in found)
