"""The same executor by HTTP."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace

from dragoman import Client
from dragoman.compat.executor import (
    AgentCapabilities,
    AgentCard,
    AgentProvider,
    AgentSkill,
    Message,
    PushSender,
    RequestHandler,
    Role,
    Task,
    TaskState,
    TaskStatus,
    TaskStore,
    TextPart,
)
from dragoman.testing import served

SAID: dict[str, Any] = {"role": "user", "messageId": "m", "parts": [{"kind": "text", "text": "hi"}]}
CARD = AgentCard("n", "d", "https://x.example", "1")


def rpc(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def post(url: str, method: str, **params: Any) -> Any:
    answer = httpx2.post(url, json=rpc(method, **params), timeout=10)
    assert answer.status_code == 200
    return answer.json()


def events(answer: httpx2.Response) -> list[dict[str, Any]]:
    lines = answer.text.splitlines()
    return [json.loads(line.removeprefix("data: "))["result"] for line in lines if line.startswith("data: ")]


@pytest.mark.requirement("S2-97")
def test_a_message_by_http_is_answered_in_camel_case_with_kinds(echo: Any) -> None:
    with served(RequestHandler(echo).app()) as url:
        task = post(url, "message/send", message=SAID)["result"]
    assert set(task) == {"kind", "id", "contextId", "status", "history"}
    assert task["kind"] == "task"
    assert set(task["status"]) == {"state", "message", "timestamp"}
    assert set(task["status"]["message"]) == {"kind", "messageId", "role", "parts", "contextId", "taskId"}
    assert task["status"]["message"]["parts"] == [{"kind": "text", "text": "hi"}]


@pytest.mark.requirement("S2-24", "S2-110")
def test_each_of_the_ten_methods_does_its_work_by_http(doing: Any) -> None:
    async def work(told: Any) -> None:
        if told.context.message.text == "ask":
            await told.status(TaskState.INPUT_REQUIRED, "which?")

    card = AgentCard("n", "d", "https://x.example", "1", supports_authenticated_extended_card=True)
    hook = {"id": "p", "url": "https://x.example"}
    handler = RequestHandler(doing(work), agent_card=card, extended_card=card, push_sender=PushSender())
    with served(handler.app()) as url:
        asked = post(url, "message/send", message=SAID | {"parts": [{"kind": "text", "text": "ask"}]})["result"]
        task = asked["id"]
        assert asked["status"]["state"] == "input-required"
        stream = httpx2.post(url, json=rpc("message/stream", message=SAID | {"messageId": "m2"}), timeout=10)
        assert events(stream)[-1]["status"]["state"] == "completed"
        assert post(url, "tasks/get", id=task)["result"] == asked
        made = post(url, "tasks/pushNotificationConfig/set", taskId=task, pushNotificationConfig=hook)["result"]
        named = {"id": task, "pushNotificationConfigId": "p"}
        assert made == {"taskId": task, "pushNotificationConfig": hook}
        assert post(url, "tasks/pushNotificationConfig/get", **named)["result"] == made
        assert post(url, "tasks/pushNotificationConfig/list", id=task)["result"] == [made]
        assert post(url, "tasks/pushNotificationConfig/delete", **named)["result"] is None
        assert post(url, "tasks/pushNotificationConfig/list", id=task)["result"] == []
        body = json.dumps(rpc("tasks/resubscribe", id=task)).encode()
        with httpx2.stream("POST", url, content=body, headers={"content-type": "application/json"}) as followed:
            lines = (line for line in followed.iter_lines() if line.startswith("data: "))
            assert json.loads(next(lines).removeprefix("data: "))["result"]["id"] == task
            assert post(url, "tasks/cancel", id=task)["result"]["status"]["state"] == "canceled"
            *_, last = lines
        assert json.loads(last.removeprefix("data: "))["result"]["status"]["state"] == "canceled"
        assert post(url, "agent/getAuthenticatedExtendedCard")["result"] == card.to_map() | {
            "preferredTransport": "JSONRPC"
        }


@pytest.mark.requirement("S2-40")
def test_a_task_saved_into_the_store_is_read_by_http(echo: Any) -> None:
    store = TaskStore()
    new = Task.new_submitted(Message(Role.USER, (TextPart("hi"),), "m"))
    task = replace(new, status=TaskStatus(TaskState.COMPLETED), metadata={"k": 1})
    assert asyncio.run(store.save(task)) == ("ok", task)
    with served(RequestHandler(echo, task_store=store).app()) as url:
        answer = post(url, "tasks/get", id=task.id)
    assert answer["result"] == task.to_map()
    assert echo.executed == []


@pytest.mark.requirement("S2-36", "S2-113")
@pytest.mark.parametrize("path", ["/.well-known/agent.json", "/.well-known/agent-card.json"])
def test_a_card_is_served_as_it_was_given(echo: Any, path: str) -> None:
    with served(RequestHandler(echo, agent_card=CARD).app()) as url:
        answer = httpx2.get(url + path)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert AgentCard.from_map(answer.json()) == ("ok", CARD)
    assert answer.json() == CARD.to_map()


@pytest.mark.requirement("S2-36")
def test_without_a_card_there_is_none(echo: Any) -> None:
    with served(RequestHandler(echo).app()) as url:
        answer = httpx2.get(url + "/.well-known/agent.json")
    assert (answer.status_code, answer.json()) == (404, {"error": "agent card not configured"})


@pytest.mark.requirement("S2-47")
def test_a_path_nobody_knows_is_not_found(echo: Any) -> None:
    with served(RequestHandler(echo, agent_card=CARD).app()) as url:
        assert httpx2.get(url + "/unknown").status_code == 404
        assert httpx2.post(url + "/unknown", json=rpc("tasks/get", id="t")).status_code == 404
        assert post(url, "tasks/get", id="t")["error"]["code"] == -32001
        assert httpx2.get(url + "/.well-known/agent.json").status_code == 200


@pytest.mark.requirement("S2-100")
def test_an_unknown_method_and_an_empty_one_are_told_apart_by_http(echo: Any) -> None:
    with served(RequestHandler(echo).app()) as url:
        assert post(url, "nonsense")["error"]["code"] == -32601
        assert post(url, "")["error"]["code"] == -32600


@pytest.mark.requirement("S2-102", "S2-103")
def test_an_executor_that_crashes_fails_its_task_ends_its_stream_and_spares_the_server(doing: Any) -> None:
    async def work(told: Any) -> None:
        if told.context.message.text == "boom":
            raise RuntimeError("secret")
        await told.status(TaskState.COMPLETED)

    boom = SAID | {"parts": [{"kind": "text", "text": "boom"}]}
    with served(RequestHandler(doing(work)).app()) as url:
        crashed = post(url, "message/send", message=boom)["result"]
        stream = httpx2.post(url, json=rpc("message/stream", message=boom), timeout=10)
        fine = post(url, "message/send", message=SAID)["result"]
    assert crashed["status"]["state"] == "failed"
    assert crashed["status"]["message"]["parts"][0]["text"].startswith("execution failed: ")
    assert stream.headers["content-type"] == "text/event-stream"
    last = events(stream)[-1]
    assert (last["status"]["state"], last["final"]) == ("failed", True)
    assert "secret" not in stream.text
    assert fine["status"]["state"] == "completed"


@pytest.mark.requirement("S2-93")
async def test_a_listener_that_leaves_does_not_stop_the_task(calling: Any, doing: Any, exchange: Any) -> None:
    go = asyncio.Event()
    counted: list[int] = []

    async def work(told: Any) -> None:
        await told.artifact("a", "before")
        await go.wait()
        counted.append(told.context.queue.subscribers)
        await told.artifact("a", " after", append=True, last_chunk=True)

    caller = calling(doing(work))
    stream = exchange(caller.handler.app(), "POST", "/", json.dumps(rpc("message/stream", message=SAID)).encode())
    status, headers = await stream.start()
    assert (status, headers["content-type"]) == (200, "text/event-stream")
    heard = b""
    while b"before" not in heard:
        heard += await stream.chunk() or b""
    await stream.leave()
    first = next(line for line in heard.decode().splitlines() if line.startswith("data: "))
    task_id = json.loads(first.removeprefix("data: "))["result"]["id"]
    follow = {"jsonrpc": "2.0", "id": 2, "method": "tasks/resubscribe", "params": {"id": task_id}}
    async for _ in caller.handler.handle_stream(follow):
        go.set()
    answer = await caller.ask("tasks/get", id=task_id)
    assert answer["result"]["status"]["state"] == "completed"
    assert [part["text"] for part in answer["result"]["artifacts"][0]["parts"]] == ["before after"]
    # Only the run itself listened when the executor went on.
    assert counted == [1]


async def test_http_and_the_handler_share_tasks_and_runs(calling: Any, doing: Any, exchange: Any) -> None:
    begun = asyncio.Event()

    async def work(told: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    executor = doing(work)
    caller = calling(executor)
    task = await caller.send("hi", blocking=False)
    await begun.wait()
    body = json.dumps(rpc("tasks/cancel", id=task["id"])).encode()
    answer = await exchange(caller.handler.app(), "POST", "/", body).whole()
    assert answer.json()["result"]["status"]["state"] == "canceled"
    await executor.stopped.wait()


# -- the whole of it, as the document has it ---------------------------------------------------------------------------


@pytest.mark.requirement("S2-1", "S2-4", "S2-28", "S2-53", "S2-119")
async def test_a_card_is_built_served_and_parsed_and_its_agent_called_by_the_client(echo: Any) -> None:
    card = AgentCard(
        "echo",
        "Says it again",
        "https://x.example",
        "0.5.0",
        capabilities=AgentCapabilities(streaming=True),
        skills=(AgentSkill("echo", "Echo", "Says it again", ("text",)),),
        provider=AgentProvider("https://p.example", "P"),
    )
    with served(RequestHandler(echo, agent_card=card).app()) as url:
        answer = httpx2.get(f"{url}/.well-known/agent.json", timeout=10)
        assert AgentCard.from_map(answer.json()) == ("ok", card)
        assert answer.json()["provider"] == {"organization": "P", "url": "https://p.example"}
        async with Client(url) as client:
            provider = (await client.card()).provider
            assert provider is not None
            assert (provider.organization, provider.url) == ("P", "https://p.example")
        async with Client(replace(card, url=url).to_map()) as client:
            assert (await client.send("hello")).text == "hello"
            stream = client.stream("again")
            assert [event.state.value async for event in stream][-1] == "TASK_STATE_COMPLETED"
            assert stream.task.text == "again"


@pytest.mark.requirement("S2-8")
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"jsonrpc": "2.0", "id": 1, "method": ', -32700),
        (b'{"jsonrpc": "1.0", "id": 1, "method": "tasks/get"}', -32600),
        (b'{"id": 1, "method": "tasks/get"}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": 7}', -32600),
        (b'{"jsonrpc": "2.0", "id": {}, "method": "tasks/get"}', -32600),
    ],
)
async def test_what_is_no_json_rpc_is_an_error_with_its_code(
    calling: Any, echo: Any, exchange: Any, body: bytes, expected: int
) -> None:
    answer = await exchange(calling(echo).handler.app(), "POST", "/", body).whole()
    assert (answer.status, answer.json()["error"]["code"]) == (200, expected)
    assert answer.json()["jsonrpc"] == "2.0"
