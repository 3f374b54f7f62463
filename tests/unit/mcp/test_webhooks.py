"""Webhooks: configured with the tool, served by the agent or from here."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp import Client
from support.webhook_receiver import Delivery, WebhookReceiver
from unit.mcp.foreign_agent import ForeignAgent, answer

from dragoman import Agent, Artifact, Context, Part, State, Task
from dragoman import Client as A2AClient
from dragoman.client.event import NumberedEvent, TaskAssembler
from dragoman.mcp import webhooks
from dragoman.mcp.serve import McpOptions
from dragoman.mcp.server import McpServer
from dragoman.model.event import ArtifactUpdate
from dragoman.model.task import TaskStatus
from dragoman.testing import served

TOOL = "configure_push_notifications"
BOTH = ["status_update", "artifact_update"]


def worker() -> Agent:
    agent = Agent("worker", description="Works in steps")

    @agent.skill
    async def count(text: str) -> AsyncIterator[str]:
        """Count."""
        for word in ("one ", "two ", "three"):
            yield word

    @agent.skill
    async def hold(ctx: Context, text: str) -> AsyncIterator[str]:
        """Wait for a word."""
        yield "begun "
        yield (await ctx.messages().__anext__()).text

    @agent.skill
    async def plan(ctx: Context) -> str:
        """Ask."""
        return f"{await ctx.ask('How many?')} days"

    return agent


class Receiver(WebhookReceiver):
    """Records what is accepted, at an address with a secret in its query."""

    def __init__(self, answer: int | Callable[[Delivery], int] = 200, port: int = 0) -> None:
        super().__init__(answer, path="/hooks/?secret=in-the-query", port=port)

    @property
    def bodies(self) -> list[Any]:
        return [each.json for each in self.accepted]

    def events(self) -> list[str]:
        """The accepted events, each as its state or its text."""
        return [
            each["status"]["state"]
            if each["event"] == "status_update"
            else "".join(part["text"] for part in each["artifact"]["parts"])
            for each in self.bodies
        ]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def silent() -> Iterator[str]:
    """An agent that posts nothing itself."""
    with served(worker(), push=False) as url:
        yield url


@pytest.fixture
def pushing() -> Iterator[str]:
    """An agent that posts to this machine."""
    with served(worker(), push_allow=("127.0.0.1",)) as url:
        yield url


@pytest.fixture
def picky() -> Iterator[str]:
    """An agent whose card says that it posts, but which may not post to this machine."""
    with served(worker()) as url:
        yield url


class Host:
    """A host with its server."""

    def __init__(self, client: Client, mine: McpServer) -> None:
        self.client = client
        self.mine = mine

    async def call(self, tool: str, **arguments: Any) -> Any:
        result = await self.client.call_tool(tool, arguments)
        assert not result.is_error, result.content
        return result.structured_content

    async def problem(self, tool: str, **arguments: Any) -> str:
        result = await self.client.call_tool(tool, arguments)
        assert result.is_error
        return result.content[0].text  # type: ignore[union-attr]

    async def begin(self, url: str, skill: str, text: str = "go") -> str:
        """The id of a task that is under way."""
        answer = await self.call("send_message", agent_id=url, text=text, skill_id=skill, wait_seconds=0.2)
        return answer["id"]


@asynccontextmanager
async def hosted(**options: Any) -> AsyncGenerator[Host]:
    async with McpServer(McpOptions(**options)) as mine, Client(mine.server) as client:
        yield Host(client, mine)


# -- the tool ----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S4-49")
async def test_an_agent_and_an_address_are_required_and_events_are_not(silent: str, receiver: Receiver) -> None:
    async with hosted() as host:
        (tool,) = [each for each in (await host.client.list_tools()).tools if each.name == TOOL]
        assert tool.input_schema["required"] == ["agent_id", "webhook_url"]
        assert tool.input_schema["properties"]["events"]["items"]["type"] == "string"
        assert "webhook_url" in await host.problem(TOOL, agent_id=silent)
        assert "agent_id" in await host.problem(TOOL, webhook_url=receiver.url)
        assert "events" in await host.problem(TOOL, agent_id=silent, webhook_url=receiver.url, events=["all"])
        assert (await host.call(TOOL, agent_id=silent, webhook_url=receiver.url, events=BOTH[:1]))["events"] == BOTH[:1]


@pytest.mark.requirement("S4-50", "S4-51")
async def test_a_webhook_is_registered_as_configured_and_for_all_events(silent: str, receiver: Receiver) -> None:
    async with hosted() as host:
        agent_id = (await host.call("resolve_agent_card", base_url=silent))["agent_id"]
        configured = await host.call(TOOL, agent_id=agent_id, webhook_url=receiver.url)
        assert configured.pop("config_id").startswith("push_")
        assert configured == {
            "agent_id": agent_id,
            "webhook_url": receiver.url,
            "events": BOTH,
            "active": True,
            "served_by": "this server",
        }


@pytest.mark.requirement("S4-52")
async def test_the_same_address_again_is_the_same_webhook_with_other_events(silent: str, receiver: Receiver) -> None:
    async with hosted() as host:
        first = await host.call(TOOL, agent_id=silent, webhook_url=receiver.url)
        again = await host.call(TOOL, agent_id=silent, webhook_url=receiver.url, events=["artifact_update"])
        other = await host.call(TOOL, agent_id=silent, webhook_url=receiver.url + "2")
        assert again["config_id"] == first["config_id"] != other["config_id"]
        assert again["events"] == ["artifact_update"]
        assert set(host.mine.context.registry.webhooks) == {first["config_id"], other["config_id"]}
        await host.call("send_message", agent_id=silent, text="go", skill_id="count")
        await receiver.until(lambda: "completed" in receiver.events())
    posted: dict[str, set[str]] = {}
    for each in receiver.accepted:
        posted.setdefault(each.path, set()).add(each.json["event"])
    assert posted == {"/hooks/?secret=in-the-query": {"artifact_update"}, "/hooks/?secret=in-the-query2": set(BOTH)}


async def test_an_unknown_agent_and_an_address_elsewhere_are_refused(silent: str, receiver: Receiver) -> None:
    async with hosted() as host:
        assert await host.problem(TOOL, agent_id="nobody", webhook_url=receiver.url) == "Agent not found: nobody"
        elsewhere = "https://hooks.example.com/in"
        assert "may not be called" in await host.problem(TOOL, agent_id=silent, webhook_url=elsewhere)
        assert host.mine.context.registry.webhooks == {}


# -- posted from here --------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S4-53")
@pytest.mark.parametrize("tool", ["send_message", "send_streaming_message"])
async def test_each_event_of_a_task_is_posted_in_order(silent: str, receiver: Receiver, tool: str) -> None:
    async with hosted() as host:
        await host.call(TOOL, agent_id=silent, webhook_url=receiver.url)
        answer = await host.call(tool, agent_id=silent, text="go", skill_id="count")
        await receiver.until(lambda: "completed" in receiver.events())
    events = receiver.events()
    assert events[-1] == "completed"
    assert "three" in "".join(events)
    last = receiver.bodies[-1]
    assert (last["kind"], last["taskId"], last["final"]) == (
        "status-update",
        answer.get("id") or answer["task_id"],
        True,
    )
    assert [each["final"] for each in receiver.bodies if each["event"] == "status_update"].count(True) == 1
    assert {each.headers["content-type"] for each in receiver.requests} == {"application/json"}
    assert len({each.key for each in receiver.requests}) == len(receiver.bodies)


@pytest.mark.requirement("S4-53")
@pytest.mark.parametrize("wanted", BOTH)
async def test_only_the_kinds_that_are_wanted_are_posted(silent: str, receiver: Receiver, wanted: str) -> None:
    with Receiver() as other:
        async with hosted() as host:
            await host.call(TOOL, agent_id=silent, webhook_url=receiver.url, events=[wanted])
            await host.call(TOOL, agent_id=silent, webhook_url=other.url)
            await host.call("send_message", agent_id=silent, text="go", skill_id="count")
        assert {each["event"] for each in other.bodies} == set(BOTH)
        assert receiver.bodies == [each for each in other.bodies if each["event"] == wanted] != []


async def test_no_events_is_no_post(silent: str, receiver: Receiver) -> None:
    async with hosted() as host:
        await host.call(TOOL, agent_id=silent, webhook_url=receiver.url, events=[])
        await host.call("send_message", agent_id=silent, text="go", skill_id="count")
    assert receiver.requests == []


async def test_an_answer_that_needs_no_following_is_posted(receiver: Receiver) -> None:
    agent = ForeignAgent()
    agent.answers["message/send"] = {
        "id": "42",
        "status": {"state": "completed"},
        "artifacts": [{"parts": [{"kind": "text", "text": "done"}]}],
    }
    with served(agent) as url:
        agent.offers(url)
        async with hosted() as host:
            configured = await host.call(TOOL, agent_id=url, webhook_url=receiver.url)
            assert configured["served_by"] == "this server"
            await host.call("send_message", agent_id=url, text="go")
    assert receiver.events() == ["done", "completed"]
    assert {each["taskId"] for each in receiver.bodies} == {"42"}


async def test_a_task_that_can_only_be_looked_at_is_posted_once(receiver: Receiver) -> None:
    looks = iter(["working", "working", "completed"])
    agent = ForeignAgent()
    agent.answers["message/send"] = {"id": "7", "status": {"state": "submitted"}}

    def look(params: Any) -> dict[str, Any]:
        state = next(looks, "completed")
        parts = [{"kind": "text", "text": "all"}]
        done = {"artifacts": [{"artifactId": "a", "parts": parts}]} if state == "completed" else {}
        return {"id": "7", "contextId": "c", "kind": "task", "status": {"state": state}, **done}

    agent.answers["tasks/get"] = look
    with served(agent) as url:
        agent.offers(url)
        async with hosted() as host:
            await host.call(TOOL, agent_id=url, webhook_url=receiver.url)
            await host.call("send_message", agent_id=url, text="go")
    assert receiver.events() == ["submitted", "working", "all", "completed"]


async def test_a_task_is_not_put_together_for_each_event_that_is_posted(
    silent: str, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with hosted() as host:
        agent = await host.call("resolve_agent_card", base_url=silent)
        await host.call(TOOL, agent_id=silent, webhook_url=receiver.url)
        record = host.mine.context.registry.start_task(agent["agent_id"])
        assembly = TaskAssembler()
        events = [assembly.add(NumberedEvent(0, Task("t", "c", TaskStatus(State.WORKING))))]
        for word in ("a ", "b ", "c"):
            update = ArtifactUpdate("t", "c", Artifact("x", (Part(text=word),)), append=word != "a ")
            events.append(assembly.add(NumberedEvent(0, update)))
        monkeypatch.setattr(TaskAssembler, "result", property(lambda _: pytest.fail("the whole task was put together")))
        for event in events:
            host.mine.context.webhooks.post(record, event)
        await receiver.until(lambda: len(receiver.events()) == 4)
        assert receiver.events() == ["working", "a ", "b ", "c"]


async def test_a_question_and_what_follows_the_answer_are_posted(silent: str, receiver: Receiver) -> None:
    async with hosted() as host:
        await host.call(TOOL, agent_id=silent, webhook_url=receiver.url)
        task = await host.call("send_message", agent_id=silent, text="go", skill_id="plan")
        assert task["status"]["state"] == "input_required"
        await host.call("send_message", agent_id=silent, text="3", task_id=task["id"])
    events = receiver.events()
    assert events.count("input-required") == 1
    assert events[-2:] == ["3 days", "completed"]


async def test_what_is_only_seen_by_looking_is_posted_too(silent: str, receiver: Receiver) -> None:
    async with hosted() as host:
        await host.call(TOOL, agent_id=silent, webhook_url=receiver.url)
        task = await host.call("send_message", agent_id=silent, text="go", skill_id="plan")
        async with A2AClient(silent) as other:
            await other.send("4", task=task["id"])
        await host.call("get_task", task_id=task["id"])
        await receiver.until(lambda: receiver.events()[-1:] == ["completed"])
        assert receiver.events()[-2] == "4 days"
        again = await host.call("send_message", agent_id=silent, text="go", skill_id="plan")
        await host.call("cancel_task", task_id=again["id"])
        await receiver.until(lambda: receiver.events()[-1:] == ["canceled"])


async def test_a_webhook_that_comes_late_hears_the_rest(silent: str, receiver: Receiver) -> None:
    async with hosted() as host:
        task_id = await host.begin(silent, "hold")
        assert "note" not in await host.call(TOOL, agent_id=silent, webhook_url=receiver.url)
        await host.call("send_message", agent_id=silent, text="end", task_id=task_id)
        await receiver.until(lambda: "completed" in receiver.events())
    assert "end" in "".join(receiver.events())


async def test_a_receiver_that_is_away_holds_up_nobody_and_its_secrets_are_not_logged(
    silent: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Receiver() as gone:
        url = gone.url
    with caplog.at_level(logging.DEBUG, "dragoman"):
        async with hosted() as host:
            await host.call(TOOL, agent_id=silent, webhook_url=url)
            task = await host.call("send_message", agent_id=silent, text="go", skill_id="count")
            assert task["status"]["state"] == "completed"
    assert "not posted" in caplog.text
    assert "in-the-query" not in caplog.text


async def test_the_end_is_not_put_off_for_a_receiver_that_says_nothing(
    silent: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(webhooks, "CLOSE_SECONDS", 0.05)
    go_on = threading.Event()

    def says_nothing(_: Any) -> int:
        go_on.wait()
        return 200

    with Receiver(says_nothing) as receiver:
        async with hosted() as host:
            await host.call(TOOL, agent_id=silent, webhook_url=receiver.url)
            await host.call("send_message", agent_id=silent, text="go", skill_id="count")
        assert receiver.bodies == []
        go_on.set()
    assert "were not posted before the end" in caplog.text


# -- served by the agent -----------------------------------------------------------------------------------------------


async def test_an_agent_that_can_post_is_given_the_webhook_with_the_message(pushing: str, receiver: Receiver) -> None:
    async with hosted() as host:
        configured = await host.call(TOOL, agent_id=pushing, webhook_url=receiver.url)
        assert configured["served_by"] == "agent"
        await host.call("send_message", agent_id=pushing, text="go", skill_id="count")
        await receiver.until(lambda: any("COMPLETED" in each.upper() for each in receiver.states))
    assert not any("event" in each for each in receiver.bodies)
    assert all(f"/{configured['config_id']}/" in each.key for each in receiver.requests)


async def test_an_agent_that_posts_all_events_is_not_asked_to_post_some(pushing: str, receiver: Receiver) -> None:
    async with hosted() as host:
        configured = await host.call(TOOL, agent_id=pushing, webhook_url=receiver.url, events=["status_update"])
        assert configured["served_by"] == "this server"
        await host.call("send_message", agent_id=pushing, text="go", skill_id="count")
    assert {each["event"] for each in receiver.bodies} == {"status_update"}


async def test_only_one_webhook_goes_along_and_the_others_are_served_from_here(
    pushing: str, receiver: Receiver
) -> None:
    with Receiver() as other:
        async with hosted() as host:
            first = await host.call(TOOL, agent_id=pushing, webhook_url=receiver.url)
            second = await host.call(TOOL, agent_id=pushing, webhook_url=other.url)
            assert (first["served_by"], second["served_by"]) == ("agent", "this server")
            await host.call("send_message", agent_id=pushing, text="go", skill_id="count")
            await receiver.until(lambda: any("COMPLETED" in each.upper() for each in receiver.states))
    assert not any("event" in each for each in receiver.bodies)
    assert other.events()[-1] == "completed"


async def test_an_agent_that_refuses_the_webhook_still_gets_the_message(picky: str, receiver: Receiver) -> None:
    async with hosted() as host:
        assert (await host.call(TOOL, agent_id=picky, webhook_url=receiver.url))["served_by"] == "agent"
        task = await host.call("send_message", agent_id=picky, text="go", skill_id="count")
        assert task["text"] == "one two three"
        assert (await host.call(TOOL, agent_id=picky, webhook_url=receiver.url))["served_by"] == "this server"
        await host.call("send_streaming_message", agent_id=picky, text="go", skill_id="count")
        await receiver.until(lambda: receiver.events().count("completed") == 2)


async def test_a_message_that_is_wrong_is_not_blamed_on_the_webhook(picky: str, receiver: Receiver) -> None:
    async with hosted() as host:
        ended = await host.call("send_message", agent_id=picky, text="go", skill_id="count")
        await host.call(TOOL, agent_id=picky, webhook_url=receiver.url)
        problem = await host.problem("send_message", agent_id=picky, text="more", task_id=ended["id"])
        assert "Request failed" in problem
        assert (await host.call(TOOL, agent_id=picky, webhook_url=receiver.url))["served_by"] == "agent"


class Boasting(ForeignAgent):
    """Its card says that it posts, but it does not."""

    async def _rpc(self, request: Any, send: Any) -> None:
        if "pushNotificationConfig" not in request["params"].get("configuration", {}):
            await super()._rpc(request, send)
            return
        self.bodies.append(request)
        error = {"code": -32003, "message": "Push Notification is not supported"}
        await answer(send, 200, json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}).encode())


async def test_an_agent_that_cannot_do_what_its_card_says_is_asked_once(receiver: Receiver) -> None:
    agent = Boasting()
    agent.answers["message/send"] = {"id": "1", "kind": "task", "contextId": "c", "status": {"state": "completed"}}
    with served(agent) as url:
        agent.offers(url, capabilities={"streaming": False, "pushNotifications": True})
        async with hosted() as host:
            config_id = (await host.call(TOOL, agent_id=url, webhook_url=receiver.url))["config_id"]
            await host.call("send_message", agent_id=url, text="go")
            assert agent.methods() == ["message/send", "message/send"]
            given = agent.bodies[0]["params"]["configuration"]["pushNotificationConfig"]
            assert (given["url"], given["id"]) == (receiver.url, config_id)
            agent.answers["message/send"] = {**agent.answers["message/send"], "id": "2"}
            await host.call("send_message", agent_id=url, text="go")
            assert agent.methods() == ["message/send"] * 3
    # Of two tasks, either may be reported first.
    assert sorted((each["taskId"], each["status"]["state"]) for each in receiver.bodies) == [
        ("1", "completed"),
        ("2", "completed"),
    ]


PUBLIC = "https://hooks.example.com/a2a"


async def test_a_public_webhook_that_the_agent_refuses_is_not_posted_to_from_here(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Boasting()
    agent.answers["message/send"] = {"id": "1", "kind": "task", "contextId": "c", "status": {"state": "completed"}}
    with served(agent) as url:
        agent.offers(url, capabilities={"streaming": False, "pushNotifications": True})
        async with hosted() as host:
            http = host.mine.context.webhooks._http  # pyright: ignore[reportPrivateUsage]
            monkeypatch.setattr(http, "send", None)  # nothing can be posted from here
            assert (await host.call(TOOL, agent_id=url, webhook_url=PUBLIC))["served_by"] == "agent"
            await host.call("send_message", agent_id=url, text="go")
            assert "pushNotificationConfig" not in agent.bodies[-1]["params"].get("configuration", {})
            problem = await host.problem(TOOL, agent_id=url, webhook_url=PUBLIC)
            assert problem.startswith("hooks.example.com may not be called: this server would have to post there")
            assert "because the agent has refused webhooks." in problem
    assert "not posted to the webhook at https://hooks.example.com:443: its address may not be called" in caplog.text


async def test_the_agent_posts_where_this_server_may_not_and_this_server_elsewhere(receiver: Receiver) -> None:
    agent = ForeignAgent()
    agent.answers["message/send"] = {"id": "1", "kind": "task", "contextId": "c", "status": {"state": "completed"}}
    with served(agent) as url:
        agent.offers(url, capabilities={"streaming": False, "pushNotifications": True})
        async with hosted() as host:
            assert (await host.call(TOOL, agent_id=url, webhook_url=receiver.url))["served_by"] == "agent"
            assert (await host.call(TOOL, agent_id=url, webhook_url=PUBLIC))["served_by"] == "agent"
            assert (await host.call(TOOL, agent_id=url, webhook_url=receiver.url))["served_by"] == "this server"
            assert "posts to another already" in await host.problem(TOOL, agent_id=url, webhook_url=f"{PUBLIC}/2")
            assert "would post all events" in await host.problem(
                TOOL, agent_id=url, webhook_url=PUBLIC, events=BOTH[:1]
            )
            await host.call("send_message", agent_id=url, text="go")
        assert agent.bodies[0]["params"]["configuration"]["pushNotificationConfig"]["url"] == PUBLIC
    assert receiver.events() == ["completed"]


async def test_a_stream_with_a_webhook_that_is_refused_is_no_problem(picky: str, receiver: Receiver) -> None:
    async with hosted() as host:
        await host.call(TOOL, agent_id=picky, webhook_url=receiver.url)
        await host.call("send_streaming_message", agent_id=picky, text="go", skill_id="count")
        await receiver.until(lambda: receiver.events()[-1:] == ["completed"])


async def test_a_refused_stream_is_begun_again_without_the_webhook(picky: str, receiver: Receiver) -> None:
    async with hosted() as host:
        configured = await host.call(TOOL, agent_id=picky, webhook_url=receiver.url)
        context = host.mine.context
        agent = context.registry.agents[configured["agent_id"]]
        client, push = context.peers.client(agent), context.push_config(agent)
        assert push is not None
        follower = context.followers.new(context.registry.start_task(agent.agent_id))
        follower.stream(client.stream("go", push=push), without_webhook=lambda: client.stream("go"))
        assert await follower.wait(20)
        assert follower.problem == ""
        assert context.push_config(agent) is None
    assert receiver.events()[-1] == "completed"


async def test_tasks_under_way_get_the_webhook_too(pushing: str, receiver: Receiver) -> None:
    async with hosted() as host:
        task_id = await host.begin(pushing, "hold")
        configured = await host.call(TOOL, agent_id=pushing, webhook_url=receiver.url)
        assert (configured["served_by"], "note" in configured) == ("agent", False)
        await host.call("send_message", agent_id=pushing, text="end", task_id=task_id)
        await receiver.until(lambda: any("COMPLETED" in each.upper() for each in receiver.states))
    assert not any("event" in each for each in receiver.bodies)


async def test_where_tasks_under_way_cannot_get_it_the_answer_says_so(picky: str, receiver: Receiver) -> None:
    async with hosted() as host:
        task_id = await host.begin(picky, "hold")
        configured = await host.call(TOOL, agent_id=picky, webhook_url=receiver.url)
        assert configured["served_by"] == "this server"
        assert configured["note"].startswith("1 of 1 tasks under way stay as they were, this server posts what it sees")
        await host.call("send_message", agent_id=picky, text="end", task_id=task_id)
        await receiver.until(lambda: "completed" in receiver.events())


async def test_a_webhook_that_wants_less_is_taken_back_from_the_agent(pushing: str, receiver: Receiver) -> None:
    async with hosted() as host:
        await host.call(TOOL, agent_id=pushing, webhook_url=receiver.url)
        task_id = await host.begin(pushing, "hold")
        configured = await host.call(TOOL, agent_id=pushing, webhook_url=receiver.url, events=["status_update"])
        assert (configured["served_by"], "note" in configured) == ("this server", False)
        before = len(receiver.bodies)
        await host.call("send_message", agent_id=pushing, text="end", task_id=task_id)
        await receiver.until(lambda: any(each.get("event") == "status_update" for each in receiver.bodies[before:]))
    assert {each["event"] for each in receiver.bodies[before:]} == {"status_update"}


async def test_a_webhook_of_this_machine_is_not_given_to_an_agent_elsewhere(receiver: Receiver) -> None:
    async with hosted() as host:
        registry = host.mine.context.registry
        card = {"capabilities": {"pushNotifications": True}}
        agent = registry.register_agent("https://agents.example.com", "far", card)
        registry.put_webhook(agent.agent_id, receiver.url, BOTH)
        assert host.mine.context.push_config(agent) is None
        hook = registry.put_webhook(agent.agent_id, "https://hooks.example.com/in", BOTH)
        config = host.mine.context.push_config(agent)
        assert (config.url, config.id) == (hook.webhook_url, hook.config_id)
