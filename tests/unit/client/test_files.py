"""Files and webhooks over REST 0.3: the client finds out how the server's SDK has them."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from support.stub_server import Close, Stub, card, reply

from dragoman import Client, Part, Task
from dragoman.client.connect import SHARED_CARDS

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(40))
BLOB = b"\x00\x01dragoman"
HOOK = "https://example.com/hook"
FILE = Part(raw=BLOB, media_type="application/octet-stream")
A2A_SDK_03 = reply({"message": "Task not found"}, 404)
A2A_JS = reply({"code": -32001, "message": "Task not found"}, 404)


@pytest.fixture(autouse=True)
def no_card_of_another_test() -> None:
    # A port is given again, sooner or later, and its card may be that of an earlier test.
    SHARED_CARDS.clear()


def once(content: bytes) -> str:
    return base64.b64encode(content).decode()


def twice(content: bytes) -> str:
    return once(once(content).encode())


class Server:
    """A server that answers every message with one file, and every other request with its error."""

    def __init__(self, error: Any, text: str = "", kind: str = "application/octet-stream") -> None:
        self.error = error
        self.file = {"fileWithBytes": text, "mimeType": kind}
        self.sent: list[str] = []
        self.webhooks: list[Any] = []
        self.probes = 0

    def __call__(self, got: Any) -> bytes:
        if "well-known" in got.path:
            return reply(card((f"http://{got.headers['host']}", "rest"), version="0.3"))
        if got.path.endswith("/pushNotificationConfigs"):
            self.webhooks.append(json.loads(got.body))
            name = "tasks/t/pushNotificationConfigs/hook"
            return reply({"name": name, "pushNotificationConfig": {"id": "hook", "url": HOOK}})
        if not got.path.endswith("message:send"):
            assert got.path.startswith("/v1/tasks/")
            self.probes += 1
            return self.error
        content = json.loads(got.body)["message"]["content"]
        self.sent += [part["file"]["fileWithBytes"] for part in content if "file" in part]
        parts = [{"file": self.file}] if self.file["fileWithBytes"] else [{"text": "done"}]
        artifact = {"artifactId": "a", "parts": parts}
        status = {"state": "TASK_STATE_COMPLETED"}
        return reply({"task": {"id": "t", "contextId": "c", "status": status, "artifacts": [artifact]}})


async def send(server: Server, *messages: Any) -> list[bytes | None]:
    """Send messages and give the files of their tasks."""
    received: list[bytes | None] = []
    async with Stub(server) as stub, Client(stub.url, protocol="0.3", transport="rest") as client:
        for files in messages:
            task = await client.send("hi", files=files)
            assert isinstance(task, Task)
            received += [file.raw for file in task.files]
    return received


@pytest.mark.parametrize(("error", "encode"), [(A2A_SDK_03, twice), (A2A_JS, once)])
async def test_the_server_is_asked_once_before_the_first_file(error: Any, encode: Any) -> None:
    server = Server(error)
    await send(server, [], [FILE], [FILE])
    assert server.sent == [encode(BLOB), encode(BLOB)]
    assert server.probes == 1


async def test_a_server_that_gets_and_sends_no_files_is_not_asked() -> None:
    server = Server(A2A_SDK_03)
    await send(server, [], [])
    assert server.probes == 0


@pytest.mark.parametrize(("error", "expected"), [(A2A_SDK_03, BLOB), (A2A_JS, once(BLOB).encode())])
async def test_the_server_is_asked_what_a_file_means_that_may_be_encoded_twice(error: Any, expected: bytes) -> None:
    server = Server(error, twice(BLOB))
    assert await send(server, []) == [expected]
    assert server.probes == 1


@pytest.mark.parametrize("encode", [once, twice])
async def test_a_file_that_shows_how_it_is_encoded_needs_no_question(encode: Any) -> None:
    server = Server(A2A_JS, encode(PNG), "image/png")
    assert await send(server, []) == [PNG]
    assert server.probes == 0


async def test_a_server_that_has_sent_a_file_gets_files_alike() -> None:
    server = Server(A2A_JS, twice(PNG), "image/png")
    await send(server, [], [FILE])
    assert server.sent == [twice(BLOB)]
    assert server.probes == 0


@pytest.mark.parametrize("error", [Close, reply({}, 500), reply("no", 401)])
async def test_a_question_that_is_not_answered_does_no_harm(error: Any) -> None:
    server = Server(error, twice(BLOB))
    assert await send(server, [FILE]) == [once(BLOB).encode()]
    assert server.sent == [once(BLOB)]


NAME = "tasks/t/pushNotificationConfigs/hook"
WEBHOOK = {"name": NAME, "pushNotificationConfig": {"url": HOOK, "id": "hook"}}


@pytest.mark.parametrize(
    ("error", "body"),
    [(A2A_SDK_03, {"parent": "tasks/t", "configId": "hook", "config": WEBHOOK}), (A2A_JS, WEBHOOK)],
)
async def test_a_webhook_is_created_in_the_form_that_the_server_reads(error: Any, body: Any) -> None:
    server = Server(error)
    async with Stub(server) as stub, Client(stub.url, protocol="0.3", transport="rest") as client:
        for _ in range(2):
            assert (await client.create_push_config("t", HOOK, id="hook")).id == "hook"
    assert server.webhooks == [body, body]
    assert server.probes == 1
