"""Dragoman's client, calling the tool through the bridge."""

from __future__ import annotations

from bench.callers.dragoman_client import DragomanCaller
from dragoman import State


class BridgeCaller(DragomanCaller):
    """See `Caller`."""

    async def echo(self, text: str) -> str:
        """See `Caller.echo`."""
        answer = await self._client.send(tool="echo", arguments={"text": text})
        if answer.state is not State.COMPLETED:
            raise ValueError(f"the task is {answer.state}: {answer.error}")
        return answer.text


def caller(url: str) -> BridgeCaller:
    """A caller of the agent at a URL."""
    return BridgeCaller(url)
