"""Servers that share a PostgreSQL: what they need, and that any of them answers for all."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any
from uuid import uuid4

import pytest
from support.command import SECRET
from support.login_link import PAGE, link
from support.webhook_receiver import WebhookReceiver

from dragoman import Agent, Client, Context, State
from dragoman.engine.ports.agent import ForeignTasks
from dragoman.errors import CannotConnect, ConfigError, InvalidParams, PushNotificationNotSupported
from dragoman.net.asgi import AsgiClient
from dragoman.net.exchange import HttpRequest
from dragoman.outputs import Ask
from dragoman.server.agent.adapter import EngineAgent
from dragoman.server.agent.base import Backend
from dragoman.testing import served

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
    async def log_in(ctx: Context) -> str:
        """Log in elsewhere."""
        return await ctx.ask_auth("Log in", url=link)

    return agent


class Node:
    """A server without a port."""

    def __init__(self, url: str, name: str, agent: Agent, **settings: Any) -> None:
        self.app = agent.app(store=url, secret=SECRET, node=name, **settings)
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

    def _request(self, path: str, body: dict[str, Any]) -> HttpRequest:
        headers = {"Content-Type": "application/json", "A2A-Version": "1.0"}
        return HttpRequest("POST", f"http://127.0.0.1{path}", headers, json.dumps(body).encode())

    async def close(self) -> None:
        await self._client.close()


@pytest.fixture
async def join(postgres_url: str) -> AsyncIterator[Callable[..., Any]]:
    """Starts a node on the database of the test."""
    async with AsyncExitStack() as stack:

        async def start(name: str, agent: Agent | None = None, **settings: Any) -> Node:
            node = Node(postgres_url, name, agent or make_agent(), drain=0, **settings)
            stack.push_async_callback(node.close)
            assert await node.get("/readyz") == (200, {"status": "ready"})
            return node

        yield start


async def test_no_message_is_a_login_wherever_it_is_sent_and_of_two_logins_one_counts(join: Any) -> None:
    one, two = await join("one"), await join("two")
    task = await one.send("go", skill="log_in")
    kept = [await node.send(word, task=task["id"]) for node, word in ((one, "a"), (two, "b"))]
    assert [each["status"]["state"] for each in kept] == ["TASK_STATE_AUTH_REQUIRED"] * 2
    (handle,) = [part["url"].removeprefix(PAGE) for part in task["status"]["message"]["parts"] if "url" in part]
    for wrong in (task["id"], handle[:-1], handle.swapcase()):
        with pytest.raises(InvalidParams):
            await two.app.resume(wrong, "Administrator")
    logins = [node.app.resume(handle, name) for node in (one, two) for name in ("Ann", "Bea")]
    results = await asyncio.gather(*logins, return_exceptions=True)
    assert [isinstance(each, InvalidParams) for each in results].count(True) == 3
    async with asyncio.timeout(SECONDS):
        while (ended := (await two.get(f"/tasks/{task['id']}"))[1])["status"]["state"] != "TASK_STATE_COMPLETED":
            pass
    assert ended["artifacts"][0]["parts"] in ([{"text": "Ann"}], [{"text": "Bea"}])
    assert [message["parts"][0]["text"] for message in ended["history"]] == ["go", "Log in", "a", "b"]


class Foreign:
    """A foreign task that goes on in the moment in which two nodes look at it, and the runs of the task in front."""

    def __init__(self) -> None:
        self.runs: list[bool] = []
        self._looks = asyncio.Barrier(2)
        self.agent = Agent("front", Backend(self.run, foreign=ForeignTasks("there", self.has_moved)))

    async def run(self, ctx: Any) -> AsyncIterator[Any]:
        self.runs.append(ctx.resume is not None)
        yield "it went on" if ctx.resume is not None else Ask("?", ref={"n": 1}, forwards=True)

    async def has_moved(self, ref: Any) -> bool:
        assert ref == {"n": 1}
        await self._looks.wait()
        return True


async def test_a_foreign_task_that_two_nodes_watch_continues_the_task_in_front_once(join: Any) -> None:
    foreign = Foreign()
    task = await (await join("one", foreign.agent)).send("go")
    assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    two = await join("two", foreign.agent)  # it takes up the watch of a task that waits already
    async with asyncio.timeout(SECONDS):
        while (ended := (await two.get(f"/tasks/{task['id']}"))[1])["status"]["state"] != "TASK_STATE_COMPLETED":
            pass
    assert ended["artifacts"][0]["parts"] == [{"text": "it went on"}]
    assert [message["parts"][0]["text"] for message in ended["history"] if message["role"] == "ROLE_USER"] == ["go"]
    assert foreign.runs == [False, True]


async def test_the_webhooks_of_a_node_that_left_are_delivered_by_another(join: Any) -> None:
    one, _ = [await join(name, push_allow="127.0.0.1", lease=1) for name in ("one", "two")]
    with WebhookReceiver(503) as receiver:
        task = await one.send("go", skill="trip", webhook=receiver.url)
        await receiver.until(lambda: receiver.requests)
        receiver.answer = 200
        await one.close()
        await receiver.until(lambda: len(receiver.states) == 2)
    assert receiver.states == ["TASK_STATE_WORKING", "TASK_STATE_INPUT_REQUIRED"]
    assert all(each.task == task["id"] for each in receiver.accepted)


async def test_a_front_delivers_the_events_of_a_task_that_another_node_runs(join: Any) -> None:
    front, worker = await join("front", push_allow="127.0.0.1", limits={"runs": 0}), await join("worker")
    with WebhookReceiver() as receiver:
        task = await front.send("go", skill="trip", webhook=receiver.url)
        await worker.send("3", task=task["id"])
        await receiver.until(lambda: "TASK_STATE_COMPLETED" in receiver.states)
    numbers = [each.number for each in receiver.accepted]
    assert numbers == sorted(set(numbers))


# Starting


async def test_after_a_server_has_stopped_another_of_its_name_goes_on(
    join: Any, caplog: pytest.LogCaptureFixture
) -> None:
    before = await join("one")
    task = await before.send("go", skill="trip")
    await before.close()
    after = await join("one")
    assert (await after.send("3", task=task["id"]))["status"]["state"] == "TASK_STATE_COMPLETED"
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]


def test_an_app_on_another_event_loop_is_refused_and_can_be_stopped_on_its_own(postgres_url: str) -> None:
    app = make_agent().app(store=postgres_url, secret=SECRET)
    with asyncio.Runner() as first, asyncio.Runner() as second:
        first.run(app.start())
        for refused in (app.start(), app.drain(), app.stop()):
            with pytest.raises(ConfigError, match="run it with its lifespan"):
                second.run(refused)
        first.run(app.stop())


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


def test_without_webhooks_there_is_no_warning_about_a_secret(caplog: pytest.LogCaptureFixture) -> None:
    assert make_agent().app(store=ELSEWHERE, push=False)
    assert "DRAGOMAN_SECRET" not in caplog.text


def test_conversations_with_a_program_or_a_server_that_asks_belong_to_their_node() -> None:
    from mcp_types.version import LATEST_MODERN_VERSION

    place = "http://127.0.0.1:1/mcp"
    newest = Agent.from_mcp(place, name="newest", revision=LATEST_MODERN_VERSION)
    agents = (make_agent(), Agent.from_command(["cat"], name="program"), Agent.from_mcp(place, name="any"), newest)
    pinned = {agent.name: EngineAgent(agent).pinned for agent in agents}
    assert pinned == {"shared": False, "program": True, "any": True, "newest": False}
