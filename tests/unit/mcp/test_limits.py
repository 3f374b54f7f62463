"""What one agent can make this server do and keep: streams without end, tasks without number."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from mcp import Client
from unit.mcp import foreign_agent

from dragoman.mcp import registry as registries
from dragoman.mcp.registry import Registry, TaskRecord
from dragoman.mcp.serve import McpOptions
from dragoman.mcp.server import McpServer
from dragoman.mcp.session import follower as followers
from dragoman.model.state import State
from dragoman.model.task import Task, TaskStatus
from dragoman.testing import Clock, served

Json = dict[str, Any]
END: Json = {"kind": "status-update", "taskId": "t", "contextId": "c", "final": True, "status": {"state": "completed"}}


def whole(task_id: str, state: str = "working") -> Json:
    return {"kind": "task", "id": task_id, "contextId": "c", "status": {"state": state}}


def chunk(text: str, *, append: bool = True) -> Json:
    artifact = {"artifactId": "a", "parts": [{"kind": "text", "text": text}]}
    return {"kind": "artifact-update", "taskId": "t", "contextId": "c", "append": append, "artifact": artifact}


class Streaming:
    """An agent whose every stream tells `events`; if the last of them ends nothing, it then says nothing more."""

    def __init__(self, card_of: Callable[..., Json]) -> None:
        self._card_of = card_of
        self.url = ""
        self.events: Callable[[int], list[Json]] = lambda _: []
        self.streams = 0

    async def __call__(self, scope: Any, receive: Callable[..., Any], send: Callable[..., Any]) -> None:
        if scope["type"] != "http":
            return
        body = (await receive())["body"]
        if scope["method"] == "GET":
            capabilities = {"streaming": True, "pushNotifications": False}
            card = self._card_of(self.url, protocolVersion="0.3.0", capabilities=capabilities)
            await self._answer(send, "application/json", json.dumps(card).encode())
            return
        asked = json.loads(body)
        if asked["method"] != "message/stream":
            result = {"jsonrpc": "2.0", "id": asked["id"], "result": whole(asked["params"].get("id", "t"))}
            await self._answer(send, "application/json", json.dumps(result).encode())
            return
        self.streams += 1
        events = self.events(self.streams)
        lines = [json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": each}).encode() for each in events]
        await self._answer(send, "text/event-stream", b"".join(b"data: %s\n\n" % each for each in lines), more=True)
        if events[-1:] != [END]:
            await receive()  # until the caller goes
        await send({"type": "http.response.body", "body": b""})

    @staticmethod
    async def _answer(send: Callable[..., Any], kind: str, body: bytes, *, more: bool = False) -> None:
        headers = [(b"content-type", kind.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": more})


@pytest.fixture
def agent() -> Iterator[Streaming]:
    made = Streaming(foreign_agent.card_of)
    with served(made) as url:
        made.url = url
        yield made


async def call(client: Client, tool: str, **arguments: Any) -> Json:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    assert result.structured_content is not None
    return result.structured_content


async def followed(client: Client, agent: Streaming, seconds: float = 20) -> Json:
    """Send a message as a stream, and follow its task until there is nothing more to come, or time is up."""
    begun = await call(client, "send_streaming_message", agent_id=agent.url, text="go")
    return await call(client, "subscribe_to_task", task_id=begun["task_id"], wait_seconds=seconds)


async def streamed(mine: McpServer, agent: Streaming) -> followers.TaskFollower:
    """Send a message as a stream, and follow that until it is over."""
    record = await mine.context.peers.resolve(agent.url)
    stream = mine.context.peers.client(record).stream("go")
    follower = mine.context.followers.new(mine.context.registry.start_task(record.agent_id)).stream(stream)
    assert await follower.wait(20)
    return follower


# -- streams -----------------------------------------------------------------------------------------------------------


async def test_many_small_chunks_are_put_together_now_and_then(
    agent: Streaming, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent.events = lambda _: [whole("t"), *[chunk("x")] * 4000, END]
    async with McpServer(McpOptions()) as mine, Client(mine.server) as client:
        learned: list[Task] = []
        learn = mine.context.registry.update_task

        def noted(record: Any, task: Task, **options: Any) -> Any:
            learned.append(task)
            return learn(record, task, **options)

        monkeypatch.setattr(mine.context.registry, "update_task", noted)
        shown = await followed(client, agent)
    assert (shown["current_state"], shown["text"]) == ("completed", "x" * 4000)
    assert len(learned) < 200


async def test_text_before_a_long_silence_is_kept(agent: Streaming) -> None:
    agent.events = lambda _: [whole("t"), chunk("a"), chunk("b"), chunk("c")]
    async with McpServer(McpOptions()) as mine, Client(mine.server) as client:
        shown = await followed(client, agent, seconds=1)
        assert (shown["current_state"], shown["text"]) == ("working", "abc")
        assert mine.context.followers.active_count == 1


async def test_a_stream_that_tells_of_ever_other_tasks_is_left(agent: Streaming) -> None:
    agent.events = lambda _: [whole(f"t{number}") for number in range(50)]
    async with McpServer(McpOptions()) as mine:
        follower = await streamed(mine, agent)
        assert follower.problem == "Request failed: the agent keeps switching tasks on one stream"
        assert [each.remote_id for each in mine.context.registry.tasks()] == ["t1", "t0"]


async def test_a_task_that_grows_beyond_all_bounds_is_not_followed_and_can_be_fetched(
    agent: Streaming, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followers, "MAX_TASK_BYTES", 1 << 20)
    agent.events = lambda _: [whole("t"), *[chunk("x" * 100_000)] * 20]
    async with McpServer(McpOptions()) as mine, Client(mine.server) as client:
        follower = await streamed(mine, agent)
        assert follower.problem.startswith("Request failed: the task has grown beyond 1 MB: call get_task")
        assert follower.record.problem == follower.problem
        assert (await call(client, "get_task", task_id="t"))["status"] == {"state": "working"}


async def test_a_text_that_is_sent_again_and_again_is_counted_once(
    agent: Streaming, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followers, "MAX_TASK_BYTES", 1 << 20)
    again = [chunk(str(number) * 100_000, append=False) for number in range(10)]
    agent.events = lambda _: [whole("t"), *again * 3, END]
    async with McpServer(McpOptions()) as mine, Client(mine.server) as client:
        shown = await followed(client, agent)
    assert (shown["current_state"], shown["text"]) == ("completed", "9" * 100_000)


# -- followers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", ["MAX_FOLLOWED_PER_AGENT", "MAX_FOLLOWED"])
async def test_of_too_many_tasks_the_most_silent_is_not_followed_and_can_be_fetched(
    agent: Streaming, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(followers, limit, 2)
    agent.events = lambda number: [whole(f"t{number}")]
    async with McpServer(McpOptions()) as mine, Client(mine.server) as client:
        ids = [
            (await call(client, "send_streaming_message", agent_id=agent.url, text="go"))["task_id"] for _ in range(3)
        ]
        assert ids == ["t1", "t2", "t3"]
        assert mine.context.followers.active_count == 2
        dropped, *others = [mine.context.registry.require_task(each) for each in ids]
        assert (dropped.problem, [each.problem for each in others]) == (followers.DROPPED, ["", ""])
        assert (await call(client, "get_task", task_id="t1"))["status"] == {"state": "working"}
        assert dropped.problem == ""


async def test_one_that_gives_way_before_it_has_begun_leaves_nothing(
    agent: Streaming, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followers, "MAX_FOLLOWED_PER_AGENT", 1)
    async with McpServer(McpOptions()) as mine:
        record = await mine.context.peers.resolve(agent.url)
        client, registry = mine.context.peers.client(record), mine.context.registry
        first, second = (
            mine.context.followers.new(registry.start_task(record.agent_id)).send(client, text=text)
            for text in ("1", "2")
        )
        assert await first.wait(5)
        assert (first.problem, first.record.remote_id) == (followers.DROPPED, None)
        assert await second.wait_for_id(5)
        assert (second.problem, second.record.remote_id) == ("", "t")


async def test_a_task_that_is_silent_for_too_long_is_not_followed(
    agent: Streaming, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followers, "IDLE_SECONDS", 0.3)
    agent.events = lambda _: [whole("t"), chunk("a")]
    async with McpServer(McpOptions()) as mine:
        follower = await streamed(mine, agent)
        assert follower.problem == follower.record.problem == followers.SILENT
        assert follower.record.task is not None
        assert follower.record.task.text == "a"


# -- records -----------------------------------------------------------------------------------------------------------


def task(task_id: str, state: State = State.WORKING) -> Task:
    return Task(task_id, "c", TaskStatus(state))


def test_an_agent_with_many_tasks_pushes_out_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registries, "MAX_TASKS_PER_AGENT", 3)
    registry = Registry(Clock())
    registry.update_task(registry.start_task("good"), task("precious", State.COMPLETED))
    for number in range(10):
        state = State.COMPLETED if number in (4, 5) else State.WORKING
        registry.update_task(registry.start_task("evil"), task(f"{number}", state))
    assert registry.task("precious") is not None
    assert [each.remote_id for each in registry.tasks() if each.agent_id == "evil"] == ["9", "8", "7"]


def test_a_task_that_is_new_or_followed_is_never_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registries, "MAX_TASKS", 2)
    kept: list[TaskRecord] = []
    registry = Registry(Clock(), is_followed=lambda record: record in kept)
    kept += [registry.update_task(registry.start_task("a"), task(str(number))) for number in range(2)]
    new = registry.start_task("a")
    assert registry.tasks() == [new, *reversed(kept)]
    registry.set_problem(new, "Request failed: timeout")
    newer = registry.start_task("a")
    assert registry.tasks() == [newer, *reversed(kept)]
    assert registry.task(new.id) is None


async def test_a_message_that_is_not_answered_yet_is_known_however_many_tasks_there_are(
    foreign: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registries, "MAX_TASKS", 2)
    numbers = iter(range(10))

    def working(params: Json) -> Json:
        return {"id": params.get("id") or f"t{next(numbers)}", "status": {"state": "working"}}

    foreign.answers |= {"message/send": working, "tasks/get": working}
    async with McpServer(McpOptions(wait_seconds=0.1)) as mine, Client(mine.server) as client:
        for _ in range(2):
            await call(client, "send_message", agent_id=foreign.url, text="go")
        foreign.hold("message/send")
        begun = await call(client, "send_message", agent_id=foreign.url, text="go")
        assert begun["id"].startswith("local-")
        assert (await call(client, "get_task", task_id=begun["id"]))["status"] == {"state": "working"}
        foreign.let_go("message/send")
