"""An ADK agent behind a real port: all ten methods of the protocol."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from unit.agents.adk.scripted import call, llm, parts, says
from unit.agents.adk.scripted import served as as_agent

from dragoman.model.user import User
from dragoman.testing import served


def message(text: str, **more: Any) -> dict[str, Any]:
    fields = {"role": "user", "kind": "message", "messageId": text, "parts": [{"kind": "text", "text": text}], **more}
    return {"message": fields}


class Caller:
    """A client that knows nothing but JSON-RPC."""

    def __init__(self, url: str) -> None:
        self._url = url

    def _options(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return {"json": body, "headers": {"Authorization": "Bearer ann"}, "timeout": 10}

    def rpc(self, method: str, **params: Any) -> Any:
        answer = httpx2.post(self._url, **self._options(method, params))
        assert answer.status_code == 200
        return answer.json()["result"]

    def stream(self, method: str, **params: Any) -> Iterator[dict[str, Any]]:
        with httpx2.stream("POST", self._url, **self._options(method, params)) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    yield json.loads(line.removeprefix("data: "))["result"]


@pytest.mark.requirement("S2-2", "S2-110")
def test_all_ten_methods_work_with_an_adk_agent() -> None:
    began = threading.Event()
    held: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def wait() -> str:
        """Wait."""
        held.append((asyncio.get_running_loop(), asyncio.Event()))
        began.set()
        await held[-1][1].wait()
        return "waited"

    def go_on() -> None:
        loop, event = held[-1]
        loop.call_soon_threadsafe(event.set)

    turns = (
        says("Hello ", "you."),
        says("Once ", "more."),
        [parts(call("wait"))],
        says("Waited."),
        [parts(call("wait"))],
    )

    async def caller(request: Any) -> User | None:
        return User("ann") if request.headers.get("authorization") == "Bearer ann" else None

    hook = {"url": "https://127.0.0.1:9/hook", "id": "h"}
    agent = as_agent(llm(*turns, tools=[wait]))
    with served(agent, auth=caller, push_allow="127.0.0.1") as url:
        client = Caller(url)

        task = client.rpc("message/send", **message("one"))
        assert (task["status"]["state"], task["artifacts"][0]["parts"][0]["text"]) == ("completed", "Hello you.")
        assert client.rpc("tasks/get", id=task["id"])["id"] == task["id"]

        events = list(client.stream("message/stream", **message("two")))
        assert events[-1]["status"]["state"] == "completed"
        texts = [part["text"] for event in events for part in event.get("artifact", {}).get("parts", ())]
        assert "".join(texts) == "Once more."

        running = client.rpc("message/send", **message("three"), configuration={"blocking": False})
        assert began.wait(10)
        named = {"taskId": running["id"], "pushNotificationConfig": hook}
        assert client.rpc("tasks/pushNotificationConfig/set", **named)["pushNotificationConfig"]["id"] == "h"
        both = {"id": running["id"], "pushNotificationConfigId": "h"}
        assert client.rpc("tasks/pushNotificationConfig/get", **both)["taskId"] == running["id"]
        assert len(client.rpc("tasks/pushNotificationConfig/list", id=running["id"])) == 1
        assert client.rpc("tasks/pushNotificationConfig/delete", **both) is None
        assert client.rpc("tasks/pushNotificationConfig/list", id=running["id"]) == []
        states: list[str] = []
        for event in client.stream("tasks/resubscribe", id=running["id"]):
            states += [event["status"]["state"]] if "status" in event else []
            go_on()  # somebody listens: now it may end
        assert (states[0], states[-1]) == ("working", "completed")

        began.clear()
        running = client.rpc("message/send", **message("four"), configuration={"blocking": False})
        assert began.wait(10)
        assert client.rpc("tasks/cancel", id=running["id"])["status"]["state"] == "canceled"

        assert client.rpc("agent/getAuthenticatedExtendedCard")["name"] == "helper"
