"""The tasks extension of MCP, with a host that knows it."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal

import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from pydantic import ConfigDict
from support.login_link import PAGE, link
from unit.mcp.parrot import replying

import dragoman
from dragoman import Agent, Context, Failed, Rejected, State
from dragoman.mcp.serve import McpOptions
from dragoman.mcp.server import McpServer
from dragoman.mcp.session import tasks_extension
from dragoman.mcp.session.tasks_extension import EXTENSION, TTL_MS, CreatedTask, TaskParams, UpdateParams
from dragoman.testing import Clock, served

SECONDS = 20


class GetTask(types.Request[TaskParams, Literal["tasks/get"]]):
    method: Literal["tasks/get"] = "tasks/get"
    name_param = "taskId"


class UpdateTask(types.Request[UpdateParams, Literal["tasks/update"]]):
    method: Literal["tasks/update"] = "tasks/update"
    name_param = "taskId"


class CancelTask(types.Request[TaskParams, Literal["tasks/cancel"]]):
    method: Literal["tasks/cancel"] = "tasks/cancel"
    name_param = "taskId"


class Shown(types.Result):
    """Whatever came, as it came."""

    model_config = ConfigDict(extra="allow")

    @property
    def wire(self) -> dict[str, Any]:
        return {key: value for key, value in (self.model_extra or {}).items() if key != "resultType"}


class Tasks(ClientExtension):
    """A host's half of the extension: it polls, and says nothing to questions."""

    identifier = EXTENSION

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return (ResultClaim(result_type="task", model=CreatedTask, resolve=self._resolve),)

    async def _resolve(self, created: CreatedTask, ctx: ClaimContext) -> types.CallToolResult:
        shown = await settled(ctx.session, created.task_id)
        return types.CallToolResult.model_validate(shown["result"])


async def poll(session: Any, task_id: str) -> dict[str, Any]:
    return (await session.send_request(GetTask(params=TaskParams(task_id=task_id)), Shown)).wire


async def settled(session: Any, task_id: str, *, after: str = "") -> dict[str, Any]:
    """Poll until it is not working, nor asks the question that was answered already."""
    async with asyncio.timeout(SECONDS):
        while True:
            shown = await poll(session, task_id)
            if shown["status"] != "working" and after not in shown.get("inputRequests", ()):
                return shown


async def answer(session: Any, task_id: str, key: str, **result: Any) -> dict[str, Any]:
    params = UpdateParams(task_id=task_id, input_responses={key: types.ElicitResult(**result)})
    return (await session.send_request(UpdateTask(params=params), Shown)).wire


async def cancel(session: Any, task_id: str) -> dict[str, Any]:
    return (await session.send_request(CancelTask(params=TaskParams(task_id=task_id)), Shown)).wire


async def never(*_: Any) -> types.ElicitResult:
    raise AssertionError("the host answers with tasks/update")


def trip() -> Agent:
    agent = Agent("trip", description="Plans trips")

    @agent.skill
    async def plan(ctx: Context, city: str) -> AsyncIterator[str]:
        """Plan a trip."""
        if city == "Nowhere":
            raise Failed("there is no such place")
        if city == "Mars":
            raise Rejected("too far")
        if city == "Forever":
            await ctx.progress("walking")
            await asyncio.Event().wait()
        if city == "Lisbon":
            who = await ctx.ask("Who goes?")
            where = await ctx.ask("Where to sleep?")
            yield f"{who} sleeps in a {where}. "
        yield f"Walk around {city}."

    return agent


@asynccontextmanager
async def hosted(*, asks: bool = True, clock: Any = None, **options: Any) -> AsyncIterator[tuple[Client, McpServer]]:
    async with (
        McpServer(McpOptions(**options), clock=clock) as mine,
        Client(mine.server, extensions=[Tasks()], elicitation_callback=never if asks else None) as client,
    ):
        yield client, mine


async def begin(client: Client, url: str, text: str) -> CreatedTask:
    created = await client.session.call_tool("send_message", {"agent_id": url, "text": text}, allow_claimed=True)
    assert isinstance(created, CreatedTask)
    return created


# -- from beginning to end ---------------------------------------------------------------------------------------------


async def test_the_extension_is_advertised() -> None:
    async with hosted() as (client, _):
        assert client.server_capabilities.extensions == {EXTENSION: {}}


async def test_a_host_that_knows_tasks_gets_one_at_once_and_polls_for_the_result() -> None:
    with served(trip()) as url:
        async with hosted() as (client, mine):
            created = await begin(client, url, "Porto")
            shown = created.model_dump(by_alias=True, exclude_none=True)
            assert set(shown) - {"_meta"} == {
                "resultType",
                "taskId",
                "status",
                "createdAt",
                "lastUpdatedAt",
                "ttlMs",
                "pollIntervalMs",
            }
            assert (shown["resultType"], shown["status"]) == ("task", "working")
            ended = await settled(client.session, created.task_id)
            assert ended["status"] == "completed"
            assert ended["taskId"] == created.task_id
            assert ended["result"]["structuredContent"]["text"] == "Walk around Porto."
            assert ended["result"]["isError"] is False
            assert ended["lastUpdatedAt"] >= ended["createdAt"] == created.created_at
            (record,) = mine.context.registry.tasks()
            assert record.remote_id not in created.task_id  # it says nothing about the agent's own id
            assert await poll(client.session, created.task_id) == ended  # an end is an end


async def test_for_a_host_with_the_extension_a_call_of_the_tool_is_what_it_was() -> None:
    with served(trip()) as url:
        async with hosted() as (client, _):
            result = await client.call_tool("send_message", {"agent_id": url, "text": "Porto"})
            assert result.structured_content is not None
            assert result.structured_content["text"] == "Walk around Porto."


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_host_that_does_not_know_tasks_gets_none(mode: str) -> None:
    with served(trip()) as url:
        async with McpServer(McpOptions()) as mine, Client(mine.server, mode=mode) as client:
            result = await client.call_tool("send_message", {"agent_id": url, "text": "Porto"})
            assert result.structured_content is not None
            with pytest.raises(MCPError) as caught:
                await poll(client.session, "any")
            if mode == "legacy":
                assert caught.value.code == types.METHOD_NOT_FOUND
            else:
                assert caught.value.code == types.MISSING_REQUIRED_CLIENT_CAPABILITY
                assert caught.value.data == {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}


async def test_the_other_tools_stay_as_they_are() -> None:
    with served(trip()) as url:
        async with hosted() as (client, _):
            result = await client.session.call_tool("resolve_agent_card", {"base_url": url}, allow_claimed=True)
            assert isinstance(result, types.CallToolResult)
            wrong = await client.session.call_tool(
                "send_message", {"agent_id": "agent_x", "text": "hi"}, allow_claimed=True
            )
            assert isinstance(wrong, types.CallToolResult)
            assert wrong.is_error


@pytest.mark.parametrize(("city", "text"), [("Nowhere", "there is no such place"), ("Mars", "too far")])
async def test_a_task_that_failed_or_was_rejected_has_completed_with_an_error(city: str, text: str) -> None:
    with served(trip()) as url:
        async with hosted() as (client, _):
            created = await begin(client, url, city)
            ended = await settled(client.session, created.task_id)
            assert (ended["status"], ended["result"]["isError"]) == ("completed", True)
            assert ended["result"]["structuredContent"]["text"] == text


async def test_a_mere_message_completes_the_task() -> None:
    with served(replying({"kind": "text", "text": "hello"})) as url:
        async with hosted() as (client, _):
            created = await begin(client, url, "hi")
            ended = await settled(client.session, created.task_id)
            assert (ended["status"], ended["result"]["structuredContent"]["text"]) == ("completed", "hello")


async def test_an_agent_that_is_gone_has_failed() -> None:
    async with hosted() as (client, _):
        with served(trip()) as url:
            await client.call_tool("resolve_agent_card", {"base_url": url})
        created = await begin(client, url, "Porto")
        ended = await settled(client.session, created.task_id)
        text = "Request failed: connection refused"
        assert (ended["status"], ended["statusMessage"]) == ("failed", text)
        assert ended["error"] == {"code": types.INTERNAL_ERROR, "message": text}
        assert await poll(client.session, created.task_id) == ended


async def test_an_agent_that_goes_away_in_the_middle_has_failed() -> None:
    async with hosted(reconnect=0.5) as (client, _):
        with served(trip()) as url:
            created = await begin(client, url, "Forever")
            async with asyncio.timeout(SECONDS):
                while (await poll(client.session, created.task_id)).get("statusMessage") != "walking":
                    pass
        ended = await settled(client.session, created.task_id)
        assert (ended["status"], ended["error"]["message"]) == ("failed", "Request failed: connection refused")
        assert await poll(client.session, created.task_id) == ended


# -- questions ---------------------------------------------------------------------------------------------------------


async def test_what_a_task_asks_is_answered_with_an_update() -> None:
    with served(trip()) as url:
        async with hosted() as (client, _):
            task_id = (await begin(client, url, "Lisbon")).task_id
            asks = await settled(client.session, task_id)
            assert asks["status"] == "input_required"
            ((first, request),) = asks["inputRequests"].items()
            assert (request["method"], request["params"]["message"]) == ("elicitation/create", "trip asks: Who goes?")
            assert await poll(client.session, task_id) == asks  # until it is answered

            acknowledged = await answer(client.session, task_id, first, action="accept", content={"answer": "Ada"})
            assert acknowledged == {}
            asks = await settled(client.session, task_id, after=first)
            ((second, request),) = asks["inputRequests"].items()
            assert second != first
            assert request["params"]["message"] == "trip asks: Where to sleep?"

            # To what was answered already, and to what nobody asked, there is nothing to say.
            await answer(client.session, task_id, first, action="accept", content={"answer": "Bob"})
            await answer(client.session, task_id, "other", action="accept", content={"answer": "Bob"})
            assert await poll(client.session, task_id) == asks

            await answer(client.session, task_id, second, action="accept", content={"answer": "tent"})
            ended = await settled(client.session, task_id, after=second)
            assert ended["result"]["structuredContent"]["text"] == "Ada sleeps in a tent. Walk around Lisbon."


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_question_that_is_not_answered_is_shown_to_the_model(action: str) -> None:
    with served(trip()) as url:
        async with hosted() as (client, _):
            created = await begin(client, url, "Lisbon")
            (key,) = (await settled(client.session, created.task_id))["inputRequests"]
            await answer(client.session, created.task_id, key, action=action)
            ended = await poll(client.session, created.task_id)
            shown = ended["result"]["structuredContent"]
            assert (ended["status"], shown["status"]["state"]) == ("completed", "input_required")
            assert shown["question"] == "Who goes?"
            assert shown["id"] in shown["next_step"]


async def test_a_host_without_elicitation_gets_the_next_step() -> None:
    with served(trip()) as url:
        async with hosted(asks=False) as (client, _):
            created = await begin(client, url, "Lisbon")
            ended = await settled(client.session, created.task_id)
            shown = ended["result"]["structuredContent"]
            assert (ended["status"], shown["question"]) == ("completed", "Who goes?")
            # The model answers, and that is a task of its own; the first one stays as it ended.
            arguments = {"agent_id": url, "text": "Ada", "task_id": shown["id"]}
            again = await client.session.call_tool("send_message", arguments, allow_claimed=True)
            assert isinstance(again, CreatedTask)
            shown = (await settled(client.session, again.task_id))["result"]["structuredContent"]
            assert shown["question"] == "Where to sleep?"
            assert await poll(client.session, created.task_id) == ended


async def test_an_answer_that_does_not_arrive_is_a_failure() -> None:
    async with hosted() as (client, _):
        with served(trip()) as url:
            task_id = (await begin(client, url, "Lisbon")).task_id
            (key,) = (await settled(client.session, task_id))["inputRequests"]
        assert key in (await poll(client.session, task_id))["inputRequests"]  # that the agent is gone is not known yet
        await answer(client.session, task_id, key, action="accept", content={"answer": "Ada"})
        ended = await settled(client.session, task_id)
        assert (ended["status"], ended["error"]["message"]) == ("failed", "Request failed: connection refused")


async def test_a_question_that_somebody_else_answered_is_not_asked_any_more() -> None:
    with served(trip()) as url:
        async with hosted() as (client, mine), dragoman.Client(url) as other:
            task_id = (await begin(client, url, "Lisbon")).task_id
            (key,) = (await settled(client.session, task_id))["inputRequests"]
            (record,) = mine.context.registry.tasks()
            assert record.remote_id is not None
            await other.send("Ada", task=record.remote_id)
            asks = await settled(client.session, task_id)
            ((second, request),) = asks["inputRequests"].items()
            assert (second != key, request["params"]["message"]) == (True, "trip asks: Where to sleep?")
            await other.cancel_task(record.remote_id)
            # The answer comes too late: the end counts.
            await answer(client.session, task_id, second, action="accept", content={"answer": "tent"})
            assert (await settled(client.session, task_id, after=second))["status"] == "cancelled"


async def test_who_went_elsewhere_to_allow_something_is_not_sent_there_again() -> None:
    agent = Agent("calendar", description="Reads calendars")

    @agent.skill
    async def today(ctx: Context) -> AsyncIterator[str]:
        """Say what is on today."""
        login = await ctx.ask_auth("Please log in", url=link)
        yield f"Nothing today, {login['name']}."

    app = agent.app(store="memory:", drain=1)

    async def with_callback(scope: Any, receive: Any, send: Any) -> None:
        if scope.get("path") == "/callback":
            await app.resume(scope["query_string"].decode(), {"name": "Ada"})
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body"})
        else:
            await app(scope, receive, send)

    with served(with_callback) as url:
        async with hosted() as (client, _):
            task_id = (await begin(client, url, "hi")).task_id
            ((key, request),) = (await settled(client.session, task_id))["inputRequests"].items()
            assert request["params"]["mode"] == "url"
            handle = request["params"]["url"].removeprefix(PAGE)
            await answer(client.session, task_id, key, action="accept")
            for _ in range(3):
                shown = await poll(client.session, task_id)
                assert (shown["status"], shown.get("statusMessage")) == ("working", "Please log in")
            await asyncio.to_thread(urllib.request.urlopen, f"{url}/callback?{handle}")
            ended = await settled(client.session, task_id)
            assert ended["result"]["structuredContent"]["text"] == "Nothing today, Ada."


# -- cancelling --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("city", ["Forever", "Lisbon"])
async def test_a_cancel_reaches_the_agent(city: str) -> None:
    with served(trip()) as url:
        async with hosted() as (client, mine), dragoman.Client(url) as direct:
            task_id = (await begin(client, url, city)).task_id
            if city == "Lisbon":
                await settled(client.session, task_id)
            assert await cancel(client.session, task_id) == {}
            async with asyncio.timeout(SECONDS):
                while (shown := await poll(client.session, task_id))["status"] != "cancelled":
                    pass
            assert {"result", "error", "inputRequests"}.isdisjoint(shown)
            (record,) = mine.context.registry.tasks()
            assert record.remote_id is not None
            assert (await direct.get_task(record.remote_id)).state is State.CANCELED
            assert await cancel(client.session, task_id) == {}  # what has ended is acknowledged as well


async def test_a_cancel_that_comes_too_late_changes_nothing() -> None:
    with served(trip()) as url:
        async with hosted() as (client, _):
            task_id = (await begin(client, url, "Porto")).task_id
            ended = await settled(client.session, task_id)
            assert await cancel(client.session, task_id) == {}
            assert await poll(client.session, task_id) == ended


# -- ids ---------------------------------------------------------------------------------------------------------------


async def test_an_id_that_is_not_known_is_an_error_for_every_method() -> None:
    with served(trip()) as url:
        async with hosted() as (client, mine):
            await settled(client.session, (await begin(client, url, "Porto")).task_id)
            (record,) = mine.context.registry.tasks()
            for task_id in ("nothing", record.id, str(record.remote_id)):
                for method in (poll, cancel):
                    with pytest.raises(MCPError, match="Task not found") as caught:
                        await method(client.session, task_id)
                    assert caught.value.code == types.INVALID_PARAMS
                with pytest.raises(MCPError, match="Task not found"):
                    await answer(client.session, task_id, "answer-1", action="decline")


async def test_a_task_is_forgotten_when_its_time_is_over() -> None:
    clock = Clock()
    with served(trip()) as url:
        async with hosted(clock=clock) as (client, _):
            task_id = (await begin(client, url, "Porto")).task_id
            await settled(client.session, task_id)
            clock.move(TTL_MS / 1000)
            await poll(client.session, task_id)
            clock.move(0.001)
            with pytest.raises(MCPError, match="Task not found"):
                await poll(client.session, task_id)


async def test_of_too_many_tasks_those_that_ended_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks_extension, "MAX_HANDLES", 2)
    with served(trip()) as url:
        async with hosted() as (client, _):
            going = (await begin(client, url, "Forever")).task_id
            ended = [(await begin(client, url, "Porto")).task_id]
            for _ in range(2):
                await settled(client.session, ended[-1])
                ended.append((await begin(client, url, "Porto")).task_id)
            assert (await poll(client.session, going))["status"] == "working"
            assert (await settled(client.session, ended[-1]))["status"] == "completed"
            for task_id in ended[:-1]:
                with pytest.raises(MCPError, match="Task not found"):
                    await poll(client.session, task_id)


# -- over HTTP ---------------------------------------------------------------------------------------------------------


def post(url: str, method: str, name: str | None, **params: Any) -> tuple[int, dict[str, Any]]:
    """A request of the modern era by hand; `name` is the header that proxies go by."""
    capabilities = {"extensions": {EXTENSION: {}}}
    meta = {
        types.PROTOCOL_VERSION_META_KEY: "2026-07-28",
        types.CLIENT_CAPABILITIES_META_KEY: capabilities,
    }
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": method,
    }
    if name is not None:
        headers["Mcp-Name"] = name
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


async def test_over_http_the_name_in_the_header_must_be_the_id_of_the_task() -> None:
    with served(trip()) as url:
        mine = McpServer(McpOptions())
        web = mine.server.streamable_http_app(json_response=True)

        async def app(scope: Any, receive: Any, send: Any) -> None:
            async def closing(message: Any) -> None:
                if message["type"] == "lifespan.shutdown.complete":  # what belongs to a loop is closed in it
                    await mine.__aexit__(None, None, None)
                await send(message)

            await web(scope, receive, closing)

        with served(app) as mcp_url:
            place = f"{mcp_url}/mcp"
            async with Client(place, extensions=[Tasks()]) as client:
                result = await client.call_tool("send_message", {"agent_id": url, "text": "Porto"})
                assert result.structured_content is not None
                task_id = (await begin(client, url, "Porto")).task_id
            status, body = await asyncio.to_thread(post, place, "tasks/get", task_id, taskId=task_id)
            assert (status, body["result"]["resultType"], body["result"]["taskId"]) == (200, "complete", task_id)
            for method in ("tasks/get", "tasks/cancel", "tasks/update"):
                status, body = await asyncio.to_thread(
                    post, place, method, "another", taskId=task_id, inputResponses={}
                )
                assert (status, body["error"]["code"]) == (400, types.HEADER_MISMATCH)
            status, body = await asyncio.to_thread(post, place, "tasks/cancel", None, taskId=task_id)
            assert (status, body["result"]["resultType"]) == (200, "complete")
