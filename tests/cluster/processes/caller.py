"""A caller of one node, for tests that say step by step what happens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any
from uuid import uuid4

from cluster.processes.http import Lost, ask, stream
from cluster.processes.records import state_of


class Caller:
    """Calls one node, or whichever is behind an address.

    A message whose connection was cut is sent again, `repeats` times at most, with the same message id.
    """

    def __init__(self, url: str, repeats: int = 0) -> None:
        self.url = url
        self._repeats = repeats

    async def send(
        self, skill: str, nonce: str = "n", *, ms: int = 0, wait: bool = True, **more: Any
    ) -> dict[str, Any]:
        """Let the agent use a skill.

        Raises:
            Lost: the connection was cut too often.
        """
        message = {"parts": [{"data": {"nonce": nonce, "ms": ms}}], "metadata": {"skillId": skill}, **more}
        return await self._send(message, wait=wait)

    async def follow_up(self, text: str, task_id: str, *, wait: bool = True) -> dict[str, Any]:
        """Send one more message to a task."""
        return await self._send({"parts": [{"text": text}], "taskId": task_id}, wait=wait)

    async def _send(self, message: dict[str, Any], *, wait: bool) -> dict[str, Any]:
        message = {"messageId": str(uuid4()), "role": "ROLE_USER", **message}
        request = {"message": message, "configuration": {"returnImmediately": not wait}}
        for _ in range(self._repeats):
            with suppress(Lost):
                return (await ask(self.url, "SendMessage", request)).result["task"]
        return (await ask(self.url, "SendMessage", request)).result["task"]

    async def call(self, method: str, task_id: str) -> dict[str, Any]:
        """Call a method that wants a task."""
        return (await ask(self.url, method, {"id": task_id})).result

    def follow(self, task_id: str, after: int = 0) -> AsyncIterator[Any]:
        """The events of a task."""
        return stream(self.url, "SubscribeToTask", {"id": task_id}, after)


async def events_after_work_began(caller: Caller, task_id: str) -> AsyncIterator[Any]:
    """Wait until a task has brought something of its own, and give the rest of its stream."""
    events = caller.follow(task_id)
    async for event in events:
        if event.id >= 3:
            return events
    raise AssertionError(f"task {task_id} ended at once")


async def last_state(events: AsyncIterator[Any]) -> str | None:
    """The state in which a stream leaves its task."""
    state = None
    async for event in events:
        state = state_of(event.result) or state
    return state
