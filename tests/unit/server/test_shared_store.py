"""Servers that share a PostgreSQL: what they need, and that any of them answers for all."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any
from uuid import uuid4

import pytest

from dragoman import Agent, Client, Context, State
from dragoman.errors import CannotConnect, ConfigError, PushNotificationNotSupported
from dragoman.net.asgi import AsgiClient
from dragoman.net.exchange import HttpRequest
from dragoman.server.agent.adapter import EngineAgent
from dragoman.server.config.settings import Settings
from dragoman.server.listen.startup import Startup
from dragoman.testing import served

SECRET = "dk1_" + "s" * 43  # as if it were generated: no slow derivation
ELSEWHERE = "postgresql://me:hunter2@db.example.com/tasks"
SECONDS = 15


def make_agent() -> Agent:
    agent = Agent("shared", description="Works on any node")

    @agent.skill
    async def trip(ctx: Context) -> str:
        """Plan a trip."""
        days = await ctx.ask("How many days?")
        return f"{days} days"

    @agent.skill
    async def wait(ctx: Context):
        """Wait for a word."""
        yield "waiting "
        async for message in ctx.messages():
            yield message.text
            return

    return agent


class Node:
    """A server without a port."""

    def __init__(self, url: str, name: str, **settings: Any) -> None:
        self.app = make_agent().app(store=url, secret=SECRET, node=name, **settings)
        self._client = AsgiClient(self.app)

    async def get(self, path: str) -> tuple[int, Any]:
        response = await self._client.send(HttpRequest("GET", f"http://127.0.0.1{path}", {}, None))
        return response.status, json.loads(await response.read())

    async def call(self, path: str, body: dict[str, Any]) -> Any:
        response = await self._client.send(self._request(path, body))
        answer = json.loads(await response.read())
        assert response.status == 200, answer
        return answer

    async def send(
        self, text: str, *, skill: str = "", task: str | None = None, wait: bool = True, webhook: str | None = None
    ) -> Any:
        message: dict[str, Any] = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [{"text": text}]}
        if skill:
            message["metadata"] = {"skillId": skill}
        if task is not None:
            message["taskId"] = task
        configuration: dict[str, Any] = {"returnImmediately": not wait}
        if webhook is not None:
            configuration["taskPushNotificationConfig"] = {"url": webhook}
        body = {"message": message, "configuration": configuration}
        async with asyncio.timeout(SECONDS):
            return (await self.call("/message:send", body))["task"]

    async def subscribe(self, task: str) -> AsyncIterator[Any]:
        response = await self._client.send(self._request(f"/tasks/{task}:subscribe", {}))
        assert response.status == 200
        async for chunk in response.chunks():
            for line in chunk.decode().splitlines():
                if line.startswith("data:"):
                    yield json.loads(line[5:])

    def _request(self, path: str, body: dict[str, Any]) -> HttpRequest:
        headers = {"Content-Type": "application/json", "A2A-Version": "1.0"}
        return HttpRequest("POST", f"http://127.0.0.1{path}", headers, json.dumps(body).encode())

    async def close(self) -> None:
        await self._client.close()


@pytest.fixture
async def join(postgres_url: str) -> AsyncIterator[Callable[..., Any]]:
    """Starts a node on the database of the test."""
    async with AsyncExitStack() as stack:

        async def start(name: str, **settings: Any) -> Node:
            node = Node(postgres_url, name, drain=0, **settings)
            stack.push_async_callback(node.close)
            assert await node.get("/readyz") == (200, {"status": "ready"})
            return node

        yield start


async def test_a_question_of_one_node_is_answered_at_another(join: Any) -> None:
    one, two = await join("one"), await join("two")
    task = await one.send("go", skill="trip")
    assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    ended = await two.send("3", task=task["id"])
    assert ended["status"]["state"] == "TASK_STATE_COMPLETED"
    assert (await one.get(f"/tasks/{task['id']}"))[1]["artifacts"][0]["parts"] == [{"text": "3 days"}]


async def test_a_stream_and_words_for_a_run_go_through_another_node(join: Any) -> None:
    one, two = await join("one"), await join("two")
    task = await one.send("go", skill="wait", wait=False)
    seen: list[Any] = []
    is_waiting = asyncio.Event()

    async def read() -> None:
        async for event in two.subscribe(task["id"]):
            seen.append(event)
            if "waiting" in json.dumps(event):
                is_waiting.set()

    async with asyncio.timeout(SECONDS):
        reading = asyncio.create_task(read())
        await is_waiting.wait()
        await two.send("enough", task=task["id"], wait=False)
        await reading
    assert seen[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert "enough" in json.dumps(seen)


async def test_a_run_is_canceled_from_another_node(join: Any) -> None:
    one, two = await join("one"), await join("two")
    task = await one.send("go", skill="wait", wait=False)
    canceled = await two.call(f"/tasks/{task['id']}:cancel", {})
    assert canceled["status"]["state"] == "TASK_STATE_CANCELED"
    assert (await one.get(f"/tasks/{task['id']}"))[1]["status"]["state"] == "TASK_STATE_CANCELED"
    async with asyncio.timeout(SECONDS):
        while one.app.running:  # noqa: ASYNC110 - the run ends once the notification has arrived
            await asyncio.sleep(0.01)


async def test_a_front_accepts_what_another_node_runs(join: Any) -> None:
    front, _ = await join("front", limits={"runs": 0}), await join("worker")
    task = await front.send("go", skill="trip")
    assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    ended = await front.send("2", task=task["id"])
    assert ended["artifacts"][0]["parts"] == [{"text": "2 days"}]


class Receiver:
    """A receiver of webhooks that may refuse them for a while."""

    def __init__(self) -> None:
        self.status = 503
        self.refused = asyncio.Event()
        self.keys: list[str] = []
        self.states: asyncio.Queue[str] = asyncio.Queue()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head)}
        body = json.loads(await reader.readexactly(int(headers["content-length"])))
        if self.status == 200:
            self.keys.append(headers["idempotency-key"])
            if "statusUpdate" in body:
                self.states.put_nowait(body["statusUpdate"]["status"]["state"])
        else:
            self.refused.set()
        writer.write(b"HTTP/1.1 %d Whatever\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % self.status)
        await writer.drain()
        writer.close()
        await writer.wait_closed()


async def test_the_webhooks_of_a_node_that_left_are_delivered_by_another(join: Any) -> None:
    receiver = Receiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
    one, _ = [await join(name, push_allow="127.0.0.1", lease=1) for name in ("one", "two")]
    async with server, asyncio.timeout(SECONDS):
        task = await one.send("go", skill="trip", webhook=url)
        await receiver.refused.wait()
        receiver.status = 200
        await one.close()
        states = [await receiver.states.get() for _ in range(2)]
    assert states == ["TASK_STATE_WORKING", "TASK_STATE_INPUT_REQUIRED"]
    assert all(key.startswith(f"{task['id']}/") for key in receiver.keys)


async def test_a_front_delivers_the_events_of_a_task_that_another_node_runs(join: Any) -> None:
    receiver = Receiver()
    receiver.status = 200
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
    front, worker = await join("front", push_allow="127.0.0.1", limits={"runs": 0}), await join("worker")
    async with server, asyncio.timeout(SECONDS):
        task = await front.send("go", skill="trip", webhook=url)
        await worker.send("3", task=task["id"])
        states: list[str] = []
        while "TASK_STATE_COMPLETED" not in states:
            states.append(await receiver.states.get())
    numbers = [int(key.rpartition("/")[2]) for key in receiver.keys]
    assert numbers == sorted(set(numbers))


# Starting


async def test_a_server_that_stopped_can_start_again(join: Any, caplog: pytest.LogCaptureFixture) -> None:
    node = await join("one")
    task = await node.send("go", skill="trip")
    await node.app.stop()
    await node.app.start()
    assert (await node.send("3", task=task["id"]))["status"]["state"] == "TASK_STATE_COMPLETED"
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]


def test_the_app_is_not_used_on_another_event_loop_before_it_was_stopped(postgres_url: str) -> None:
    app = make_agent().app(store=postgres_url, secret=SECRET)
    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    try:
        first.run_until_complete(app.start())
        with pytest.raises(ConfigError, match="run the app with its lifespan"):
            second.run_until_complete(app.start())
        first.run_until_complete(app.stop())
        second.run_until_complete(app.start())
        second.run_until_complete(app.stop())
    finally:
        first.close()
        second.close()


@pytest.mark.parametrize(
    ("settings", "needs"),
    [
        ({"sign": True}, "^signed cards need a key .* set DRAGOMAN_SECRET"),
        ({"auth": "bearer"}, "^logins need a key"),
        ({"auth": "bearer", "sign": True}, "^signed cards and logins need a key"),
    ],
)
async def test_servers_need_a_secret_in_common_and_say_so_when_they_have_reached_the_database(
    postgres_url: str, settings: dict[str, Any], needs: str
) -> None:
    with pytest.raises(ConfigError, match=needs):
        await make_agent().app(store=postgres_url, node="one", **settings).start()


@pytest.mark.parametrize("settings", [{}, {"sign": True}, {"auth": "bearer"}])
async def test_a_missing_secret_hides_nothing_that_is_wrong_with_the_database(
    unused_tcp_port: int, postgres_url: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.stores.postgres.store.START_SECONDS", 0)
    wrong = {
        f"postgresql://me:hunter2@127.0.0.1:{unused_tcp_port}/tasks": "is PostgreSQL running there",
        postgres_url.replace("postgres@", "nobody-here:hunter2@"): "nobody-here",
        f"{postgres_url}_not_there": "not_there",
    }
    for url, says in wrong.items():
        with pytest.raises((ConfigError, CannotConnect), match=says) as caught:
            await make_agent().app(store=url, **settings).start()
        assert "hunter2" not in str(caught.value)


async def test_without_a_secret_a_server_works_and_its_card_has_no_webhooks(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = make_agent().app(store=postgres_url, node="one")
    assert [each.message for each in caplog.records if "there are no webhooks" in each.message]
    with served(app) as url:
        async with Client(url) as client:
            assert (await client.send("Lisbon")).state is State.INPUT_REQUIRED
            assert not (await client.card()).capabilities.push_notifications
            with pytest.raises(PushNotificationNotSupported):
                await client.send("Lisbon", push="https://hooks.example.com/")


def test_without_webhooks_nothing_is_said_about_a_secret(caplog: pytest.LogCaptureFixture) -> None:
    assert make_agent().app(store=ELSEWHERE, push=False)
    assert "DRAGOMAN_SECRET" not in caplog.text


async def test_a_database_that_is_not_there_is_told_without_its_password(
    unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.stores.postgres.store.START_SECONDS", 0)
    url = f"postgresql://me:hunter2@127.0.0.1:{unused_tcp_port}/tasks"
    app = make_agent().app(store=url, secret=SECRET)
    with pytest.raises(CannotConnect, match="is PostgreSQL running there") as caught:
        await app.start()
    assert "hunter2" not in str(caught.value)


def test_the_startup_lines_name_the_database_and_no_password() -> None:
    lines = list(Startup(make_agent(), Settings(store=ELSEWHERE), "127.0.0.1", 8080).lines())
    assert "  store   postgresql://me@db.example.com/tasks" in lines
    assert "hunter2" not in "\n".join(lines)


def test_conversations_with_a_program_or_a_server_that_asks_belong_to_their_node() -> None:
    from mcp_types.version import LATEST_MODERN_VERSION

    place = "http://127.0.0.1:1/mcp"
    newest = Agent.from_mcp(place, name="newest", revision=LATEST_MODERN_VERSION)
    agents = (make_agent(), Agent.from_command(["cat"], name="program"), Agent.from_mcp(place, name="any"), newest)
    pinned = {agent.name: EngineAgent(agent).pinned for agent in agents}
    assert pinned == {"shared": False, "program": True, "any": True, "newest": False}
