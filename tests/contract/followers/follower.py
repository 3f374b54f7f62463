"""Followers of remote tasks, with the same methods: our clients, a server in front, an agent of ADK, an MCP host."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import AsyncExitStack, aclosing
from typing import Any, NamedTuple

from dragoman import Agent, Client, State, Task, sync
from dragoman.client.event import Event


class Followed(NamedTuple):
    """What a follower has of a task in the end: its state and text, or the problem; and how that arrived."""

    state: State | None
    text: str
    problem: str = ""
    pieces: list[str] | None = None
    """The texts as they arrived, where the follower tells them one by one."""
    ends: int = 1
    """How often the end was told."""
    numbers: list[int] | None = None
    """The numbers of the events, where all of a stream's were read from its beginning."""


class Follower(ABC):
    """Follows tasks of one server."""

    # How it says that the agent cannot be reached any more.
    gone = "nobody answers"

    def __init__(self, url: str, stack: AsyncExitStack, **options: Any) -> None:
        self.url = url
        self.stack = stack
        self.options = options
        self.arrived = asyncio.Event()

    @abstractmethod
    async def open(self) -> None:
        """Get ready."""

    @abstractmethod
    async def follow(self, text: str) -> Followed:
        """Send a message, and follow its task to the end. `arrived` is set when a text has arrived."""

    @abstractmethod
    async def cancel(self, following: asyncio.Task[Followed]) -> None:
        """Cancel the task that is followed."""


def followed(events: list[Event], result: object, problem: str = "") -> Followed:
    """What the events of our client tell."""
    pieces = [event.text for event in events if event.text]
    answer = ""
    for event in events:
        answer = event.text if event.replaces else answer + event.text
    ends = [event for event in events if event.kind in ("task", "status") and event.state.final]
    task = result if isinstance(result, Task) else None
    assert problem or (task is not None and answer == task.text)
    return Followed(None if task is None else task.state, answer, problem, pieces, len(ends))


class ClientFollower(Follower):
    """`Client.stream`."""

    async def open(self) -> None:
        self.client = await self.stack.enter_async_context(Client(self.target(), **self.options))

    def target(self) -> Any:
        """What the client calls."""
        return self.url

    async def follow(self, text: str) -> Followed:
        stream = self.stream = self.client.stream(text)
        events: list[Event] = []
        try:
            async for event in stream:
                events.append(event)
                if event.text:
                    self.arrived.set()
        except Exception as error:  # noqa: BLE001 - it is what the test looks at
            return followed(events, None, str(error))
        return followed(events, stream.task)._replace(numbers=[event.id or 0 for event in events])

    async def cancel(self, following: asyncio.Task[Followed]) -> None:
        await self.client.cancel(self.stream.task)


class SubscribingFollower(ClientFollower):
    """`Client.subscribe`, to a task that was begun without waiting."""

    async def follow(self, text: str) -> Followed:
        task = await self.client.send(text, wait=False)
        assert isinstance(task, Task)
        stream = self.stream = self.client.subscribe(task)
        events: list[Event] = []
        try:
            async for event in stream:
                events.append(event)
                if event.text:
                    self.arrived.set()
        except Exception as error:  # noqa: BLE001 - it is what the test looks at
            return followed(events, None, str(error))
        return followed(events, stream.task)


class FrontFollower(ClientFollower):
    """`Agent.from_a2a`: a server in front, which our client calls in this process."""

    gone = "cannot be reached"

    async def open(self) -> None:
        self.front = await asyncio.to_thread(lambda: Agent.from_a2a(self.url, **self.options))
        self.client = await self.stack.enter_async_context(Client(self.front))

    async def follow(self, text: str) -> Followed:
        found = await super().follow(text)
        if found.state is State.FAILED:
            assert isinstance(self.stream.task, Task)
            return found._replace(problem=self.stream.task.error or "")
        return found


class SyncFollower(Follower):
    """`sync.Client.stream`, in a thread."""

    async def open(self) -> None:
        self.client = await asyncio.to_thread(lambda: sync.Client(self.url, **self.options))
        self.stack.push_async_callback(asyncio.to_thread, self.client.close)

    async def follow(self, text: str) -> Followed:
        loop = asyncio.get_running_loop()
        events: list[Event] = []

        def read() -> Followed:
            stream = self.stream = self.client.stream(text)
            try:
                for event in stream:
                    events.append(event)
                    if event.text:
                        loop.call_soon_threadsafe(self.arrived.set)
            except Exception as error:  # noqa: BLE001 - it is what the test looks at
                return followed(events, None, str(error))
            return followed(events, stream.task)

        return await asyncio.to_thread(read)

    async def cancel(self, following: asyncio.Task[Followed]) -> None:
        await asyncio.to_thread(lambda: self.client.cancel(self.stream.task))


class AdkFollower(Follower):
    """`dragoman.adk.RemoteAgent` in a runner of ADK, which streams."""

    gone = "cannot be reached"

    async def open(self) -> None:
        from google.adk.runners import InMemoryRunner

        from dragoman.adk import RemoteAgent

        self.agent = RemoteAgent(name="far", url=self.url, **self.options)
        self.stack.push_async_callback(self.agent.close)
        self.runner = InMemoryRunner(app_name="contract", agent=self.agent)
        session = await self.runner.session_service.create_session(app_name="contract", user_id="someone")
        self.session_id = session.id

    async def follow(self, text: str) -> Followed:
        from google.adk.agents.run_config import RunConfig, StreamingMode
        from google.genai import types

        pieces: list[str] = []
        whole: list[str] = []
        ends, problem = 0, ""
        turn = self.runner.run_async(
            user_id="someone",
            session_id=self.session_id,
            new_message=types.Content(role="user", parts=[types.Part(text=text)]),
            run_config=RunConfig(streaming_mode=StreamingMode.SSE),
        )
        async with aclosing(turn) as events:
            async for event in events:
                parts = (event.content.parts if event.content is not None else None) or []
                written = "".join(part.text or "" for part in parts if not part.thought)
                if written:
                    (pieces if event.partial else whole).append(written)
                    self.arrived.set()
                ends += bool(event.turn_complete)
                problem = event.error_message or problem
        state = None if problem else State.COMPLETED
        return Followed(state, "".join(whole), problem, pieces, ends)

    async def cancel(self, following: asyncio.Task[Followed]) -> None:
        following.cancel()


class McpFollower(Follower):
    """A host of `dragoman mcp`, which sends a message and waits for its result."""

    async def open(self) -> None:
        from mcp import Client as Host

        from dragoman.mcp.serve import McpOptions
        from dragoman.mcp.server import McpServer

        options = McpOptions(**{name: value for name, value in self.options.items() if name == "reconnect"})
        server = await self.stack.enter_async_context(McpServer(options))
        self.host = await self.stack.enter_async_context(Host(server.server))
        card = await self._call("resolve_agent_card", base_url=self.url)
        self.agent_id = card["agent_id"]
        self.task_id = ""

    async def _call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        result = await self.host.call_tool(tool, arguments)
        if result.is_error:
            raise AssertionError(result.content[0].text)
        return result.structured_content

    async def follow(self, text: str) -> Followed:
        sent = await self._call("send_message", agent_id=self.agent_id, text=text, wait_seconds=0.05)
        self.task_id, state, answer = sent["id"], sent["status"]["state"], sent.get("text", "")
        while state not in _STATES:
            if answer:
                self.arrived.set()
            try:
                shown = await self._call("subscribe_to_task", task_id=self.task_id, wait_seconds=1)
            except AssertionError as error:
                return Followed(None, answer, str(error))
            state, answer = shown["current_state"], shown.get("text", "")
        task = await self._call("get_task", task_id=self.task_id)
        assert (task["status"]["state"], task.get("text", "")) == (state, answer)
        return Followed(_STATES[state], answer)

    async def cancel(self, following: asyncio.Task[Followed]) -> None:
        await self._call("cancel_task", task_id=self.task_id)


_STATES = {"completed": State.COMPLETED, "failed": State.FAILED, "canceled": State.CANCELED}


class Kind(NamedTuple):
    """A follower, and the options it is made with."""

    make: type[Follower]
    options: dict[str, Any]


FOLLOWERS: dict[str, Kind] = {
    "client 1.1 rpc": Kind(ClientFollower, {"transport": "jsonrpc", "protocol": "1.1"}),
    "client 1.0 rpc": Kind(ClientFollower, {"transport": "jsonrpc", "protocol": "1.0"}),
    "client 1.0 rest": Kind(ClientFollower, {"transport": "rest", "protocol": "1.0"}),
    "client 0.3 rpc": Kind(ClientFollower, {"transport": "jsonrpc", "protocol": "0.3"}),
    "client 0.3 rest": Kind(ClientFollower, {"transport": "rest", "protocol": "0.3"}),
    "client 0.1 rpc": Kind(ClientFollower, {"transport": "jsonrpc", "protocol": "0.1"}),
    "subscription": Kind(SubscribingFollower, {}),
    "blocking client": Kind(SyncFollower, {}),
    "front": Kind(FrontFollower, {}),
    "front 1.1": Kind(FrontFollower, {"protocol": "1.1"}),
    "front 0.3": Kind(FrontFollower, {"protocol": "0.3"}),
    "adk": Kind(AdkFollower, {}),
    "mcp": Kind(McpFollower, {}),
}
