"""Whatever callers write where an id belongs, they are told so: no store takes it for an outage."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dragoman import Agent, User
from dragoman.net.asgi import AsgiClient
from dragoman.net.exchange import HttpRequest

SECRET = "dk1_" + "s" * 43  # as if it were generated: no slow derivation
PARAMS, NOT_FOUND = -32602, -32001
NUL, ESCAPE = "a\0b", "a\x1bb"
KNOWN = object()  # stands for the id of a task that there is


def message(**fields: Any) -> dict[str, Any]:
    return {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}], **fields}}


def webhook(**fields: Any) -> dict[str, Any]:
    return {"taskId": KNOWN, "id": "w", "url": "http://127.0.0.1:9/x", **fields}


NAMELESS = {"id": NUL, "url": "http://127.0.0.1:9/x"}

# Each a method, its parameters, and the errors that it may have; None is a result.
CALLS: list[tuple[str, dict[str, Any], set[int | None]]] = [
    ("SendMessage", {**message(), "tenant": NUL}, {PARAMS}),
    ("SendMessage", {**message(), "tenant": ESCAPE}, {PARAMS}),
    ("SendStreamingMessage", {**message(), "tenant": NUL}, {PARAMS}),
    ("GetTask", {"id": KNOWN, "tenant": NUL}, {PARAMS}),
    ("ListTasks", {"tenant": NUL}, {PARAMS}),
    ("CancelTask", {"id": KNOWN, "tenant": NUL}, {PARAMS}),
    ("SubscribeToTask", {"id": KNOWN, "tenant": NUL}, {PARAMS}),
    ("CreateTaskPushNotificationConfig", webhook(tenant=NUL), {PARAMS}),
    ("GetTaskPushNotificationConfig", {"taskId": KNOWN, "id": "w", "tenant": NUL}, {PARAMS}),
    ("ListTaskPushNotificationConfigs", {"taskId": KNOWN, "tenant": NUL}, {PARAMS}),
    ("DeleteTaskPushNotificationConfig", {"taskId": KNOWN, "id": "w", "tenant": NUL}, {PARAMS}),
    ("SendMessage", message(messageId=NUL), {PARAMS}),
    ("SendMessage", message(contextId=NUL), {PARAMS}),
    ("SendMessage", message(taskId=NUL), {NOT_FOUND}),
    ("SendMessage", message(messageId="m2", referenceTaskIds=[NUL]), {None, PARAMS}),
    ("SendMessage", message(messageId="m3", extensions=[NUL]), {None, PARAMS}),
    ("SendMessage", message(messageId="m4", metadata={NUL: NUL}), {None}),
    ("SendMessage", message(messageId="m5", parts=[{"text": NUL}, {"data": {NUL: NUL}}]), {None}),
    ("GetTask", {"id": NUL}, {NOT_FOUND}),
    ("CancelTask", {"id": NUL}, {NOT_FOUND}),
    ("SubscribeToTask", {"id": NUL}, {NOT_FOUND}),
    ("ListTasks", {"contextId": NUL}, {None, PARAMS}),
    ("ListTasks", {"pageToken": NUL}, {PARAMS}),
    ("ListTasks", {"statusTimestampAfter": NUL}, {PARAMS}),
    ("CreateTaskPushNotificationConfig", webhook(id=NUL), {PARAMS}),
    ("CreateTaskPushNotificationConfig", webhook(taskId=NUL), {NOT_FOUND}),
    ("CreateTaskPushNotificationConfig", webhook(url=f"http://127.0.0.1:9/{NUL}"), {PARAMS}),
    ("CreateTaskPushNotificationConfig", webhook(token=NUL), {None, PARAMS}),
    ("CreateTaskPushNotificationConfig", webhook(authentication={"scheme": NUL, "credentials": NUL}), {None, PARAMS}),
    ("GetTaskPushNotificationConfig", {"taskId": KNOWN, "id": NUL}, {NOT_FOUND, PARAMS}),
    ("GetTaskPushNotificationConfig", {"taskId": NUL, "id": "w"}, {NOT_FOUND}),
    ("DeleteTaskPushNotificationConfig", {"taskId": KNOWN, "id": NUL}, {None, PARAMS}),
    ("SendMessage", {**message(messageId="m6"), "configuration": {"taskPushNotificationConfig": NAMELESS}}, {PARAMS}),
]


def echo() -> Agent:
    agent = Agent("echo", description="Says it again")

    @agent.skill
    async def say(text: str) -> str:
        return text

    return agent


class Caller:
    """Calls an agent in this process, over JSON-RPC and REST."""

    def __init__(self, app: Any) -> None:
        self._client = AsgiClient(app)

    async def rpc(self, method: str, params: Any, version: str = "1.0") -> dict[str, Any]:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        headers = {"Content-Type": "application/json", "A2A-Version": version}
        request = HttpRequest("POST", "http://127.0.0.1/", headers, json.dumps(body).encode())
        response = await self._client.send(request)
        text = (await response.read()).decode()
        return json.loads(text.partition("data: ")[2].partition("\n")[0] if text.startswith(("id:", "data:")) else text)

    async def close(self) -> None:
        await self._client.close()


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return request.getfixturevalue("postgres_url") if request.param == "postgres" else f"sqlite:///{tmp_path}/tasks.db"


@asynccontextmanager
async def calling(store: str, **settings: Any) -> AsyncIterator[Caller]:
    caller = Caller(echo().app(store=store, secret=SECRET, open_list=True, push_allow=["127.0.0.1"], **settings))
    try:
        yield caller
    finally:
        await caller.close()


def _errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


def _filled(params: Any, task_id: str) -> Any:
    return {name: task_id if value is KNOWN else value for name, value in params.items()}


async def test_no_id_of_a_caller_is_taken_for_an_outage(
    store: str, subtests: pytest.Subtests, caplog: pytest.LogCaptureFixture
) -> None:
    async with calling(store) as caller:
        task = (await caller.rpc("SendMessage", message(messageId="first")))["result"]["task"]
        for method, params, expected in CALLS:
            with subtests.test(method, params=params):
                answer = await caller.rpc(method, _filled(params, task["id"]))
                error = answer.get("error")
                assert (error and error["code"]) in expected, answer
                assert not _errors(caplog)


async def test_a_user_with_an_unprintable_id_is_refused(store: str, caplog: pytest.LogCaptureFixture) -> None:
    async def named(_: Any) -> User:
        return User(NUL)

    async with calling(store, auth=named) as caller:
        answer = await caller.rpc("SendMessage", message())
    assert answer["error"]["code"] == -31401
    assert not _errors(caplog)
