"""`dragoman mcp`: a host that sends a message with a tool and follows its task with others."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from contract.followers.follower import Behavior, Follower, Kind, Outcome, Place
from mcp import Client as Host

from dragoman import State
from dragoman.mcp.serve import McpOptions
from dragoman.mcp.server import McpServer

STATES = {
    "completed": State.COMPLETED,
    "failed": State.FAILED,
    "canceled": State.CANCELED,
    "input_required": State.INPUT_REQUIRED,
}


class ToolFailed(Exception):
    """A tool has returned an error."""


class McpFollower(Follower):
    """A host, which sends with `send_message` or `send_streaming_message`, and reads with `subscribe_to_task`."""

    def __init__(self, place: Place, *, streams: bool) -> None:
        super().__init__(place)
        self.streams = streams
        self.task_id = ""

    async def open(self) -> None:
        options = McpOptions(reconnect=self.place.reconnect)
        server = await self.place.stack.enter_async_context(McpServer(options))
        self.host = await self.place.stack.enter_async_context(Host(server.server))
        self.agent_id = (await self._call("resolve_agent_card", base_url=self.place.url))["agent_id"]

    async def follow(self, order: str) -> Outcome:
        return await self._send(text=order)

    async def answer(self, text: str) -> Outcome:
        return await self._send(text=text, task_id=self.task_id)

    async def cancel(self, following: asyncio.Task[Outcome]) -> Outcome | None:
        await self._call("cancel_task", task_id=self.task_id)
        return await following

    async def _send(self, **message: str) -> Outcome:
        try:
            if self.streams:
                sent = await self._call("send_streaming_message", agent_id=self.agent_id, **message)
                self.task_id = sent["task_id"]
            else:
                sent = await self._call("send_message", agent_id=self.agent_id, wait_seconds=0.05, **message)
                self.task_id = sent["id"]
            return await self._read()
        except ToolFailed as error:
            return Outcome(None, "", str(error))

    async def _read(self) -> Outcome:
        while True:
            shown = await self._call("subscribe_to_task", task_id=self.task_id, wait_seconds=0.2)
            text: str = shown.get("text", "")
            if text:
                self.has_text.set()
            if "when it was last seen" in shown.get("next_step", ""):
                return Outcome(None, text, shown["next_step"])
            state = STATES.get(shown["current_state"])
            if state is not None:
                return Outcome(state, text, question=shown.get("question", ""))

    async def _call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        result = await self.host.call_tool(tool, arguments)
        if result.is_error and result.structured_content is None:
            raise ToolFailed(str(result.content))
        return result.structured_content or {}


def mcp_host(name: str, *, streams: bool, lacks: dict[Behavior, str]) -> Kind:
    return Kind(
        name=name,
        make=partial(McpFollower, streams=streams),
        problems={"unreachable": "Request failed", "task lost": "TaskNotFound", "refusal": "other credentials"},
        lacks={"leave": "the task is followed when no tool call waits for it", **lacks},
    )


KINDS = [
    mcp_host("mcp message", streams=False, lacks={"acceptance lost": "it sends the message without a stream"}),
    mcp_host("mcp stream", streams=True, lacks={}),
]
