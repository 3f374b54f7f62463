"""The client of the official a2a-sdk, as its documentation uses it. Runs in .peers/a2a-sdk-bench."""

from __future__ import annotations

from typing import Any

import httpx
from a2a.client import Client, ClientConfig, create_client
from a2a.helpers import new_data_message, new_text_message
from a2a.types import Role, SendMessageRequest, TaskState

# Left to itself it gives up after five seconds of silence.
TIMEOUT = 60.0


class A2aSdkCaller:
    """See `Caller`. It needs a client for each way of sending: which one it is, is said when it is made."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._http = httpx.AsyncClient(timeout=TIMEOUT)
        self._sends: Client | None = None
        self._streams: Client | None = None

    async def echo(self, text: str) -> str:
        """See `Caller.echo`."""
        if self._sends is None:
            self._sends = await create_client(self._url, ClientConfig(httpx_client=self._http, streaming=False))
        request = SendMessageRequest(message=new_text_message(text, role=Role.ROLE_USER))
        async for response in self._sends.send_message(request):
            task = response.task
            if task.status.state == TaskState.TASK_STATE_COMPLETED:
                return "".join([part.text for artifact in task.artifacts for part in artifact.parts])
        raise ValueError("the task is not completed")

    async def count(self, chunks: int) -> tuple[str, int]:
        """See `Caller.count`."""
        if self._streams is None:
            self._streams = await create_client(self._url, ClientConfig(httpx_client=self._http))
        data = {"tool": "count", "arguments": {"n": chunks}}
        request = SendMessageRequest(message=new_data_message(data, role=Role.ROLE_USER))
        texts: list[str] = []
        events = 0
        state: Any = None
        async for response in self._streams.send_message(request):
            events += 1
            if response.HasField("artifact_update"):
                update = response.artifact_update
                if not update.append:
                    texts.clear()
                texts.append(update.artifact.parts[0].text)
            elif response.HasField("status_update"):
                state = response.status_update.status.state
        if state != TaskState.TASK_STATE_COMPLETED:
            raise ValueError("the stream ended before its task")
        return "".join(texts), events

    async def close(self) -> None:
        """See `Caller.close`."""
        await self._http.aclose()


def caller(url: str) -> A2aSdkCaller:
    """A caller of the agent at a URL."""
    return A2aSdkCaller(url)
