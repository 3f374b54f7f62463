"""Webhooks across kills and outages, with real processes and real sockets: all of it arrives, in order."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.command import dragoman, inherited_environment
from support.http_server import Raw
from support.webhook_receiver import Delivery, WebhookReceiver

from dragoman import Agent
from dragoman.push import verify
from dragoman.testing import served

pytestmark = pytest.mark.fault

SECONDS = 60.0
EACH = 12


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with WebhookReceiver() as receiver:
        yield receiver


@pytest.fixture
def hasty(launch: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Starts a server that may call webhooks here, and does not wait long before it tries again."""
    monkeypatch.setenv("FAULT_HASTY", "1")

    def start(*flags: str) -> Any:
        return launch("--push-allow", "127.0.0.1", *flags)

    return start


def begin(server: Any, receiver: WebhookReceiver, skill: str = "echo", **more: Any) -> str:
    params = {
        **server.params(skill, "hello"),
        "configuration": {"returnImmediately": True, "taskPushNotificationConfig": {"url": receiver.url, **more}},
    }
    return server.rpc("SendMessage", params)["result"]["task"]["id"]


def assert_in_order(receiver: WebhookReceiver, tasks: list[str]) -> None:
    """All events of every task, in order; a repeated one has the same key and the same body."""
    found = receiver.numbers()
    assert set(found) == set(tasks)
    for numbers in found.values():
        first = list(dict.fromkeys(numbers))
        assert first == sorted(first)
        assert first[0] == 2
    bodies: dict[str, bytes] = {}
    for each in receiver.requests:
        assert bodies.setdefault(each.key, each.body) == each.body


def test_a_kill_and_an_outage_lose_nothing(hasty: Any, receiver: WebhookReceiver, tmp_path: Path) -> None:
    before = hasty()
    tasks = [begin(before, receiver) for _ in range(EACH)]
    receiver.wait_for(lambda: len(receiver.requests) >= 4)
    # Away for a while, and in the middle of it the server dies.
    receiver.close()
    tasks += [begin(before, receiver) for _ in range(EACH)]
    parked = begin(before, receiver, "plan")
    task = before.rpc("GetTask", {"id": parked}, version="1.1")["result"]
    while task["status"]["state"] != "TASK_STATE_INPUT_REQUIRED":  # else the kill would interrupt it at work
        news = {"id": parked, "currentGeneration": task["generation"]}
        task = before.rpc("GetTask", news, version="1.1")["result"]
    before.kill()
    after = hasty()
    tasks += [begin(after, receiver) for _ in range(EACH)]
    # The outage outlasts several tries, also of the task that began last.
    while tasks[-1] not in after.until("tried 3 times"):
        pass
    receiver.open()
    receiver.wait_for(lambda: receiver.ended() >= set(tasks) and len(receiver.numbers()[parked]) >= 2)
    after.send("", "3", taskId=parked)
    receiver.wait_for(lambda: parked in receiver.ended())
    assert_in_order(receiver, [*tasks, parked])
    # What arrived before the kill and had not been written down is repeated, and nothing else.
    repeats = len(receiver.requests) - len({each.key for each in receiver.requests})
    assert repeats <= EACH
    keys = httpx2.get(f"{after.url}/.well-known/jwks.json").json()
    for each in receiver.requests[-3:]:
        assert verify(each.headers, each.body, jwks=keys).task.id == each.task
    assert after.end() == 0
    with closing(sqlite3.connect(tmp_path / "tasks.db")) as connection:
        assert connection.execute("SELECT count(*), min(state), max(state) FROM pushes").fetchone() == (
            3 * EACH + 1,
            1,
            1,
        )
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"


def test_a_server_killed_again_and_again_brings_each_event_in_the_end(hasty: Any, receiver: WebhookReceiver) -> None:
    tasks: list[str] = []
    for _ in range(3):
        server = hasty()
        seen = len(receiver.requests)
        tasks += [begin(server, receiver) for _ in range(10)]
        receiver.wait_for(lambda seen=seen: len(receiver.requests) > seen)
        server.kill()
    hasty()
    receiver.wait_for(lambda: receiver.ended() == set(tasks))
    assert_in_order(receiver, tasks)


def test_the_first_webhook_of_a_process_finds_all_it_needs_loaded(receiver: WebhookReceiver, tmp_path: Path) -> None:
    program = Path(__file__).with_name("first_webhook.py")
    command = [sys.executable, str(program), str(receiver.port), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    assert [each.number for each in receiver.requests] == [2, 3, 4]
    loaded = json.loads(done.stdout)
    # A library takes a tenth of a second to load, which would be the first event's.
    heavy = {name.partition(".")[0] for name in loaded} & {"aiohttp", "yarl", "cryptography", "ssl", "jwt"}
    assert heavy == set(), loaded
    assert len(loaded) < 20, loaded


# -- by hand ---------------------------------------------------------------------------------------------------------


def push(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    store = f"sqlite:///{folder / 'tasks.db'}"
    return dragoman(folder, "push", *words, "--store", store, environment=inherited_environment())


def test_a_dead_webhook_is_listed_and_retried_while_the_server_runs(
    hasty: Any, receiver: WebhookReceiver, tmp_path: Path
) -> None:
    server = hasty()
    receiver.answer = 410
    task = begin(server, receiver, id="mine", token="T0K3N")
    receiver.wait_for(lambda: len(receiver.requests) == 1)
    listed: list[Any] = []
    while not listed or listed[0]["state"] != "dead":
        listed = json.loads(push(tmp_path, "list", "--json").stdout)
    (row,) = listed
    assert (row["task"], row["id"], row["url"], row["error"]) == (task, "mine", receiver.url, "HTTP 410")
    listed = push(tmp_path, "list").stdout
    assert "dead" in listed
    assert "T0K3N" not in listed
    receiver.answer = 200
    done = push(tmp_path, "retry", task, "mine")
    assert (done.returncode, done.stderr) == (0, "retrying 1 webhook\n")
    receiver.wait_for(lambda: task in receiver.ended())
    # The one it died of comes again, with the same key.
    assert receiver.numbers()[task] == [2, 2, 3, 4]
    while json.loads(push(tmp_path, "list", "--json").stdout):
        pass


# -- a receiver that misbehaves --------------------------------------------------------------------------------------


def endless(_: Delivery) -> Raw:
    return Raw(chain([b"HTTP/1.1 200 OK\r\nContent-Length: 100000000000\r\n\r\n"], repeat(b"x" * 65536)))


ANSWERS = {
    "endless": (endless, True),
    "bad chunks": (Raw([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"]), False),
    "204": (Raw([b"HTTP/1.1 204 No Content\r\n\r\n"]), True),
    "a redirect": (
        Raw([b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n"]),
        False,
    ),
    "SSH": (Raw([b"SSH-2.0-OpenSSH_9.6\r\n"]), False),
    "headers without end": (Raw([b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100_000]), False),
    "nothing": (Raw([b""]), False),
}


def test_no_answer_of_a_receiver_stops_the_server(hasty: Any, subtests: pytest.Subtests) -> None:
    server = hasty()
    for name, (answer, arrives) in ANSWERS.items():
        with subtests.test(name), WebhookReceiver() as receiver:
            receiver.answer = answer
            task = begin(server, receiver)
            if arrives:
                receiver.wait_for(lambda receiver=receiver, task=task: task in receiver.ended())
                assert receiver.numbers()[task] == [2, 3, 4]
                continue
            receiver.wait_for(lambda receiver=receiver: len(receiver.requests) >= 3)
            assert set(receiver.numbers()[task]) == {2}
            receiver.answer = 200
            receiver.wait_for(lambda receiver=receiver, task=task: task in receiver.ended())
            assert_in_order(receiver, [task])
            assert server.send("echo", "still there")["status"]["state"] == "TASK_STATE_COMPLETED"


def test_a_receiver_that_accepts_and_says_nothing_delays_no_stream(receiver: WebhookReceiver) -> None:
    """Streams end while not one of their webhooks has been answered."""
    agent = Agent("talker")

    @agent.skill
    async def talk(text: str):
        for number in range(100):
            yield f"{number} "

    over = threading.Event()
    receiver.answer = lambda _: over.wait(SECONDS) and None
    settings = {"push_allow": ["127.0.0.1"], "push_chunks": True}
    try:
        with served(agent, **settings) as url, httpx2.Client(timeout=SECONDS) as client:
            for number in range(13):
                assert stream_once(client, url, receiver.url) > 100
                receiver.wait_for(lambda number=number: len(receiver.requests) > number)
            assert list(receiver.numbers().values()) == [[2]] * 13
            over.set()
    finally:
        over.set()


def stream_once(client: httpx2.Client, url: str, hook: str) -> int:
    """How many events a stream had until its end."""
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "go"}]}
    body = {"message": message, "configuration": {"taskPushNotificationConfig": {"url": hook}}}
    with client.stream("POST", f"{url}/message:stream", json=body, headers={"A2A-Version": "1.0"}) as response:
        return sum(line.startswith("data:") for line in response.iter_lines())
