"""Callers who do all they can to make series: new names, contexts, methods, versions, tools and errors each time.

`Hostility` serves an agent in this process and calls it. Whatever callers choose must not become a label.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

from prometheus_client import generate_latest

from dragoman import Agent, Client, Context, Server, User
from dragoman.errors import A2AError, DragomanError
from dragoman.net.asgi import AsgiClient
from dragoman.net.exchange import HttpRequest
from dragoman.telemetry.metrics.catalog import METRICS
from dragoman.telemetry.metrics.exposition import prometheus_name, prometheus_registry
from dragoman.telemetry.metrics.registry import OTHER

# Callers at the same time.
TOGETHER = 8
LONG, TOO_LONG = "long" * 40, "long" * 5000


class Hostility:
    """An agent, and callers who send it tasks in every way that is not meant."""

    def __init__(self, app: Any, every: int) -> None:
        self._client = AsgiClient(app)
        self._every = every
        self.tasks = 0
        self.statuses: set[int] = set()

    async def send_until(self, tasks: int) -> None:
        """Send messages until there were so many tasks, and much else meanwhile."""
        numbers = iter(range(self.tasks, tasks))
        async with asyncio.TaskGroup() as group:
            for _ in range(TOGETHER):
                group.create_task(self._send(numbers))
        self.tasks = tasks

    async def close(self) -> None:
        """End the agent."""
        await self._client.close()

    async def _send(self, numbers: Iterator[int]) -> None:
        for number in numbers:
            response = await self._call(number, _sent(number, f"context-{number}"))
            task = response["result"]["task"]
            assert task["status"]["state"] == "TASK_STATE_COMPLETED", task
            if number % self._every == 0:
                for request in _attacks(number, task["id"]):
                    await self._call(number, *request)

    async def _call(self, number: int, body: Any, path: str = "/", **headers: str) -> Any:
        headers = {"Content-Type": "application/json", "X-Name": f"caller-{number}", **headers}
        url = f"http://127.0.0.1{path}"
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        response = await self._client.send(HttpRequest("POST", url, headers, payload))
        self.statuses.add(response.status)
        content = await response.read()
        with suppress(ValueError):
            return json.loads(content)


def _attacks(number: int, task_id: str) -> Iterator[tuple[Any, ...]]:
    """Requests in which everything that a caller can choose is new. Each is a body, and perhaps a path."""
    name = f"{number}-{LONG}"
    yield (_rpc(f"Method{name}", {}),)
    yield (_rpc(f"tasks/{number}", {}),)
    yield (_sent(number, f"{number}-{TOO_LONG}"),)
    yield (_rpc("GetTask", {"id": name}),)
    yield (_rpc("GetTask", {"id": task_id, "historyLength": -1}),)
    yield (_rpc("ListTasks", {"contextId": name}),)
    yield (_rpc("CancelTask", {"id": task_id}),)
    yield (f"{{{number}".encode(),)
    yield _rpc("GetTask", {"id": task_id}), f"/?A2A-Version=9.{number}"
    yield {}, f"/v1/{name}"
    yield {}, f"/agents/{name}"
    yield {}, f"/tasks/{task_id}:{number}"
    for tool in (name, "fail", "refuse", "relay"):
        data = {"data": {"tool": tool, "arguments": {"number": number}}}
        yield (_sent(f"{tool}-{number}", name, data),)
    streamed = _sent(f"stream-{number}", name)
    yield ({**streamed, "method": "SendStreamingMessage"},)
    yield ({**streamed, "method": "message/stream", "id": name},)
    hook = {"taskId": task_id, "id": name, "url": f"https://{number}.example/{number}"}
    yield (_rpc("CreateTaskPushNotificationConfig", hook),)


def _rpc(method: str, params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def _sent(message_id: object, context_id: str, part: Any = None) -> dict[str, Any]:
    message = {
        **{"messageId": f"m-{message_id}", "contextId": context_id, "role": "ROLE_USER"},
        **{"parts": [part or {"text": f"text {message_id}"}], "metadata": {f"key-{message_id}": message_id}},
    }
    return _rpc("SendMessage", {"message": message})


@asynccontextmanager
async def hostility(every: int) -> AsyncGenerator[Hostility]:
    """Serve an agent in this process, with metrics on; with one of so many tasks come all attacks."""
    METRICS.begin()
    try:
        app = Server(_agent(), auth=_name, store="memory:", limits={"keep_tasks": 1000}).app()
        calling = Hostility(app, every)
        try:
            yield calling
        finally:
            await calling.close()
    finally:
        METRICS.end()


async def _name(request: Any) -> User:
    return User(request.headers["x-name"])


def _agent() -> Agent:
    agent = Agent("target", description="Is attacked")

    @agent.skill(default=True)
    async def echo(text: str) -> str:
        return text

    @agent.skill
    async def fail(number: int) -> str:
        raise type(f"Problem{number}", (Exception,), {})(f"problem {number}")

    @agent.skill
    async def refuse(number: int) -> str:
        raise type(f"Refusal{number}", (A2AError,), {"reason": f"REFUSAL_{number}", "code": -33000 - number})

    @agent.skill
    async def relay(ctx: Context, number: int) -> str:
        """Call an agent that is another one each time, and answers with another error each time."""
        with suppress(DragomanError):
            async with Client(_Impostor(number)) as client:
                await client.send("hello")
        return "called"

    return agent


class _Impostor:
    """An ASGI app that is an agent of any name, whose every answer is an error of any name."""

    def __init__(self, number: int) -> None:
        self._number = number

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        number = self._number
        info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": f"REASON_{number}", "domain": "x"}
        error = {"code": -40000 - number, "message": f"error {number}", "data": [info]}
        url = "http://127.0.0.1/"
        card: dict[str, Any] = {
            **{"name": f"impostor-{number}", "description": "", "version": str(number), "skills": []},
            **{"defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"], "capabilities": {}},
            "supportedInterfaces": [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        }
        body: dict[str, Any] = card if scope["method"] == "GET" else {"jsonrpc": "2.0", "id": 1, "error": error}
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(body).encode()})


class Cardinality(NamedTuple):
    """The series that there are, each with the name of its metric and its labels, and the lines that show them."""

    series: frozenset[tuple[str, ...]]
    lines: int


def cardinality() -> Cardinality:
    """Return what has been recorded in this process so far; without stalls, which a busy machine has at any time."""
    text = generate_latest(prometheus_registry(METRICS, METRICS.read, "")).decode()
    return Cardinality(
        frozenset(
            (metric.name, *labels)
            for metric in METRICS.metrics.values()
            if metric is not METRICS.loop_stalls
            for labels, _ in metric.series()
        ),
        sum(prometheus_name(METRICS.loop_stalls) not in line for line in text.splitlines()),
    )


async def check_cardinality(few: int, many: int, *, every: int) -> None:
    """Compare what there is after few hostile tasks and after many. Raises AssertionError."""
    # Other tests of this process have recorded too.
    foreign = cardinality().series
    async with hostility(every) as callers:
        await callers.send_until(few)
        # What is measured once a second has been measured, too.
        sampled = {(METRICS.tasks_in_progress.name, "target"), (METRICS.wakeups.name, "local")}
        while not sampled <= cardinality().series:  # noqa: ASYNC110 - any time
            await asyncio.sleep(0.02)
        before = cardinality()
        await callers.send_until(many)
        after = cardinality()
    new = after.series - before.series
    assert not new, sorted(new)
    assert after.lines == before.lines, (before.lines, after.lines)
    operations = "a2a.server.operation.duration"
    # What agents call their errors has a limit of its own, and other errors keep their names.
    assert (operations, "target", "SendMessage", "1.0", OTHER) in after.series
    assert (operations, "target", "SendMessage", "1.0", "INVALID_PARAMS") in after.series
    assert ("a2a.server.task.duration", "target", "relay", "TASK_STATE_COMPLETED") in after.series
    assert any(name == METRICS.client_operations.name for name, *_ in after.series)
    # Else there are no more only because there were too many.
    assert not any({*labels} == {OTHER} for _, *labels in after.series - foreign)
    assert max(len(label) for _, *labels in after.series for label in labels) < 50
    assert callers.statuses == {200, 404, 405}
