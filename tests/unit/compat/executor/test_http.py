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
    PushSender,
    RequestHandler,
    TaskState,
)
from dragoman.testing import served

MESSAGE: dict[str, Any] = {"role": "user", "messageId": "m", "parts": [{"kind": "text", "text": "hi"}]}
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


@pytest.mark.requirement("S2-24", "S2-110")
def test_each_of_the_ten_methods_does_its_work_by_http(doing: Any) -> None:
    async def work(reporter: Any) -> None:
        if reporter.context.message.text == "ask":
            await reporter.status(TaskState.INPUT_REQUIRED, "which?")

    card = AgentCard("n", "d", "https://x.example", "1", supports_authenticated_extended_card=True)
    hook = {"id": "p", "url": "https://x.example"}
    handler = RequestHandler(doing(work), agent_card=card, extended_card=card, push_sender=PushSender())
    with served(handler.app()) as url:
        asked = post(url, "message/send", message=MESSAGE | {"parts": [{"kind": "text", "text": "ask"}]})["result"]
        task = asked["id"]
        assert asked["status"]["state"] == "input-required"
        stream = httpx2.post(url, json=rpc("message/stream", message=MESSAGE | {"messageId": "m2"}), timeout=10)
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


@pytest.mark.requirement("S2-93")
async def test_a_listener_that_leaves_does_not_stop_the_task(calling: Any, doing: Any, exchange: Any) -> None:
    go = asyncio.Event()
    counted: list[int] = []

    async def work(reporter: Any) -> None:
        await reporter.artifact("a", "before")
        await go.wait()
        counted.append(reporter.context.queue.subscribers)
        await reporter.artifact("a", " after", append=True, last_chunk=True)

    caller = calling(doing(work))
    stream = exchange(caller.handler.app(), "POST", "/", json.dumps(rpc("message/stream", message=MESSAGE)).encode())
    status, headers = await stream.start()
    assert (status, headers["content-type"]) == (200, "text/event-stream")
    received = b""
    while b"before" not in received:
        received += await stream.chunk() or b""
    await stream.leave()
    first = next(line for line in received.decode().splitlines() if line.startswith("data: "))
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

    async def work(reporter: Any) -> None:
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
