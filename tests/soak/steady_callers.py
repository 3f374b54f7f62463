"""Everyday callers, in a process of their own: `steady_callers.py PORT KEY SECONDS RATE`. It ends by itself.

They do what callers do, in turn, at an even pace: RATE of these a second. What went other than it should is printed at
the end, as JSON, with how often each was done.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from uuid import uuid4

import httpx2

PORT, KEY, SECONDS, RATE = int(sys.argv[1]), sys.argv[2], float(sys.argv[3]), float(sys.argv[4])
ROOT = f"http://127.0.0.1:{PORT}"
CHOICE = random.Random(36)


def message(skill: str, text: str = "go", **more: Any) -> dict[str, Any]:
    body = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [{"text": text}], "metadata": {"skillId": skill}}
    return {**body, **more}


class Receiver:
    """Takes webhooks, and answers 200."""

    def __init__(self) -> None:
        self.delivered: dict[str, asyncio.Event] = {}
        self.url = ""
        self._writers: set[asyncio.StreamWriter] = set()

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                path = head.split(b" ", 2)[1].decode()
                fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
                body = await reader.readexactly(int(fields.get(b"content-length", 0)))
                if b"COMPLETED" in body and path in self.delivered:
                    self.delivered[path].set()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()


class Callers:
    """What they do. Each checks what it gets."""

    def __init__(self, http: httpx2.AsyncClient, hooks: Receiver) -> None:
        self._http = http
        self._hooks = hooks
        self._contexts = [str(uuid4()) for _ in range(20)]

    async def _rpc(self, method: str, params: dict[str, Any], version: str = "1.0") -> dict[str, Any]:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return (await self._http.post("/", json=body, headers={"A2A-Version": version})).json()

    async def _send(self, body: dict[str, Any], state: str, **configuration: Any) -> dict[str, Any]:
        answer = await self._rpc("SendMessage", {"message": body, "configuration": configuration})
        task = answer["result"]["task"]
        assert task["status"]["state"] == f"TASK_STATE_{state}", task["status"]
        return task

    async def _events(self, method: str, params: dict[str, Any]) -> AsyncIterator[str]:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        async with self._http.stream("POST", "/", json=body, headers={"A2A-Version": "1.0"}) as response:
            async for line in response.aiter_lines():
                if line.startswith("data:"):
                    yield line

    async def send(self) -> None:
        await self._send(message("echo", "hello " * CHOICE.randint(1, 400)), "COMPLETED")

    async def send_in_conversation(self) -> None:
        await self._send(message("echo", contextId=CHOICE.choice(self._contexts)), "COMPLETED")

    async def send_to_thread(self) -> None:
        await self._send(message("in_thread"), "COMPLETED")

    async def send_again(self) -> None:
        body = message("echo")
        first, second = await self._send(body, "COMPLETED"), await self._send(body, "COMPLETED")
        assert first["id"] == second["id"]

    async def send_by_rest(self) -> None:
        answer = await self._http.post("/message:send", json={"message": message("echo")})
        assert answer.json()["task"]["status"]["state"] == "TASK_STATE_COMPLETED"

    async def send_as_of_old(self) -> None:
        body = {"messageId": str(uuid4()), "role": "user", "kind": "message", "parts": [{"kind": "text", "text": "x"}]}
        answer = await self._rpc("message/send", {"message": body}, "0.3")
        assert answer["result"]["status"]["state"] == "completed"

    async def stream(self) -> None:
        lines = [line async for line in self._events("SendStreamingMessage", {"message": message("talk")})]
        assert "COMPLETED" in lines[-1]

    async def leave_a_stream(self) -> None:
        async for _ in self._events("SendStreamingMessage", {"message": message("talk")}):
            break

    async def replay(self) -> None:
        task = await self._send(message("hold"), "WORKING", returnImmediately=True)
        following = self._events("SubscribeToTask", {"id": task["id"]})
        await anext(following)
        await self._rpc("CancelTask", {"id": task["id"]})
        lines = [line async for line in following]
        assert "CANCELED" in lines[-1]

    async def answer_a_question(self) -> None:
        task = await self._send(message("greet"), "INPUT_REQUIRED")
        await self._send(message("greet", "Ada", taskId=task["id"]), "COMPLETED")

    async def leave_a_question(self) -> None:
        await self._send(message("greet"), "INPUT_REQUIRED")

    async def cancel_a_question(self) -> None:
        task = await self._send(message("greet"), "INPUT_REQUIRED")
        assert (await self._rpc("CancelTask", {"id": task["id"]}))["result"]

    async def cancel_work(self) -> None:
        task = await self._send(message("hold"), "WORKING", returnImmediately=True)
        answer = await self._rpc("CancelTask", {"id": task["id"]})
        assert answer["result"]["status"]["state"] == "TASK_STATE_CANCELED"

    async def failure(self) -> None:
        await self._send(message("fail"), "FAILED")

    async def webhook(self) -> None:
        path = f"/{uuid4()}"
        delivered = self._hooks.delivered[path] = asyncio.Event()
        config = {"url": self._hooks.url + path, "token": "secret"}
        await self._send(message("echo"), "COMPLETED", taskPushNotificationConfig=config)
        await asyncio.wait_for(delivered.wait(), 20)
        del self._hooks.delivered[path]

    async def push_configs(self) -> None:
        task = (await self._send(message("greet"), "INPUT_REQUIRED"))["id"]
        for name in ("a", "b"):
            made = await self._rpc(
                "CreateTaskPushNotificationConfig", {"taskId": task, "id": name, "url": f"{self._hooks.url}/none"}
            )
            assert "result" in made, made
        listed = await self._rpc("ListTaskPushNotificationConfigs", {"taskId": task})
        assert len(listed["result"]["configs"]) == 2
        for name in ("a", "b"):
            await self._rpc("DeleteTaskPushNotificationConfig", {"taskId": task, "id": name})
        await self._rpc("CancelTask", {"id": task})

    async def list_tasks(self) -> None:
        state = CHOICE.choice(["TASK_STATE_COMPLETED", "TASK_STATE_INPUT_REQUIRED", "TASK_STATE_FAILED"])
        page = (await self._rpc("ListTasks", {"pageSize": 20, "status": state}))["result"]
        if page["nextPageToken"]:
            await self._rpc("ListTasks", {"pageSize": 20, "status": state, "pageToken": page["nextPageToken"]})
        if page["tasks"]:
            task = CHOICE.choice(page["tasks"])["id"]
            assert (await self._rpc("GetTask", {"id": task}))["result"]["id"] == task

    async def look_around(self) -> None:
        for path in ("/.well-known/agent-card.json", "/healthz", "/metrics", f"/{uuid4()}", f"/tasks/{uuid4()}"):
            await self._http.get(path)

    async def wrong(self) -> None:
        for answer in (
            await self._rpc("GetTask", {"id": str(uuid4())}),
            await self._rpc(f"No{uuid4()}", {}),
            await self._rpc("SendMessage", {"message": {"messageId": "x", "role": "ROLE_USER", "parts": []}}),
        ):
            assert "error" in answer, answer
        json_type = {"Content-Type": "application/json"}
        refused = await self._http.post("/", content=b"{" * 5000, headers=json_type)
        assert "error" in refused.json(), refused.text
        refused = await self._http.post("/", json={}, headers={"Authorization": f"Bearer dk_{uuid4().hex}"})
        assert refused.status_code == 401, refused.text
        refused = await self._http.post("/", content=b"x", headers={"Content-Type": "text/plain"})
        assert "error" in refused.json(), refused.text

    async def hang_up(self) -> None:
        """In the middle of a request, and in the middle of an answer."""
        body = json.dumps({"message": message("talk")}).encode()
        head = (
            f"POST /message:stream HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {KEY}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode()
        for sent, read in ((head + body[:20], 0), (head + body, 1)):
            reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
            writer.write(sent)
            await writer.drain()
            if read:
                await reader.read(read)
            writer.transport.abort()


OFTEN = (Callers.send, Callers.stream, Callers.answer_a_question, Callers.webhook)
EVERY: list[Callable[[Callers], Awaitable[None]]] = [
    *(OFTEN * 2),
    *(value for name, value in vars(Callers).items() if not name.startswith("_")),
]


async def main() -> None:
    hooks, done, wrong = Receiver(), Counter[str](), Counter[str]()
    await hooks.open()
    loop = asyncio.get_running_loop()
    limits = httpx2.Limits(max_connections=20, max_keepalive_connections=5)
    headers = {"Authorization": f"Bearer {KEY}"}
    gate = asyncio.Semaphore(20)

    async with httpx2.AsyncClient(base_url=ROOT, headers=headers, timeout=60, limits=limits) as http:
        callers = Callers(http, hooks)

        async def one(what: Callable[[Callers], Awaitable[None]]) -> None:
            try:
                await what(callers)
                done[what.__name__] += 1
            except (AssertionError, KeyError, httpx2.HTTPError, TimeoutError) as error:
                wrong[f"{what.__name__}: {error!r:.300}"] += 1
            finally:
                gate.release()

        began, turns = loop.time(), 0
        async with asyncio.TaskGroup() as group:
            while (now := loop.time() - began) < SECONDS:
                await gate.acquire()
                group.create_task(one(EVERY[turns % len(EVERY)]))
                turns += 1
                await asyncio.sleep(max(0.0, turns / RATE - now))
    await hooks.close()
    print(json.dumps({"done": done, "wrong": wrong}))


if __name__ == "__main__":
    asyncio.run(main())
