"""Dragoman's client, as its documentation uses it."""

from __future__ import annotations

from dragoman import Client, State


class DragomanCaller:
    """See `Caller`."""

    def __init__(self, url: str) -> None:
        self._client = Client(url)

    async def echo(self, text: str) -> str:
        """See `Caller.echo`."""
        answer = await self._client.send(text)
        if answer.state is not State.COMPLETED:
            raise ValueError("the task is not completed")
        return answer.text

    async def count(self, chunks: int) -> tuple[str, int]:
        """See `Caller.count`."""
        texts: list[str] = []
        events = 0
        stream = self._client.stream(tool="count", arguments={"n": chunks})
        async for event in stream:
            events += 1
            if event.replaces:
                texts.clear()
            texts.append(event.text)
        if stream.task.state is not State.COMPLETED:
            raise ValueError("the stream ended before its task")
        return "".join(texts), events

    async def close(self) -> None:
        """See `Caller.close`."""
        await self._client.close()


def caller(url: str) -> DragomanCaller:
    """A caller of the agent at a URL."""
    return DragomanCaller(url)
