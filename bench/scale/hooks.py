"""What a webhook costs: the same sends without one and with one, to a receiver in this process."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import NamedTuple, cast

import httptools

from bench.agents.words import echo_text
from bench.http1 import Connection
from bench.proc import cpu_exactly
from bench.scale.gauge import cpu_by_process
from bench.wire import call

CALLERS, SENDS = 8, 400
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
_LAST = b"TASK_STATE_COMPLETED"


class WebhookCost(NamedTuple):
    """CPU seconds per task with a webhook, beside those of the task itself; and how many requests that is."""

    node: float
    database: float
    requests: float


class Receiver(asyncio.Protocol):
    """Takes what is posted to a webhook."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._parser = httptools.HttpRequestParser(self)
        self._body = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way back."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Read."""
        self._parser.feed_data(data)

    def on_body(self, chunk: bytes) -> None:
        """Keep."""
        self._body += chunk

    def on_message_complete(self) -> None:
        """Count, and thank."""
        self._counts.add(self._body)
        self._body = b""
        assert self._transport is not None
        self._transport.write(_ANSWER)


class Counts:
    """Requests that came, and tasks whose end came."""

    def __init__(self) -> None:
        self.requests = 0
        self.ended = asyncio.Semaphore(0)

    def add(self, body: bytes) -> None:
        """Count one request."""
        self.requests += 1
        if _LAST in body:
            self.ended.release()


class Sender(Connection):
    """One caller, who sends the next message when the last was answered."""

    def __init__(self, messages: Messages) -> None:
        super().__init__()
        self._messages = messages
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def opened(self) -> None:
        """Begin."""
        self._next()

    def answered(self, status: int) -> None:
        """Go on."""
        assert status == 200, status
        self._next()

    def _next(self) -> None:
        request = self._messages.next()
        if request is not None:
            self.send(request)
        elif not self.finished.done():
            self.finished.set_result(None)


class Messages:
    """A number of messages, with a webhook or without."""

    def __init__(self, number: int, url: str | None) -> None:
        self._left = number
        self._url = url
        self._numbers = count(1)

    def next(self) -> bytes | None:
        """The next one; None when all were sent."""
        if not self._left:
            return None
        self._left -= 1
        text = echo_text(next(self._numbers))
        message = {"messageId": f"m-{id(self)}-{self._left}", "role": "ROLE_USER", "parts": [{"text": text}]}
        params: dict[str, object] = {"message": message}
        if self._url is not None:
            params["configuration"] = {"taskPushNotificationConfig": {"url": self._url}}
        return call("SendMessage", params)


def webhook_cost(port: int, node: int, database: int) -> WebhookCost:
    """Measure it at a node; `node` and `database` are processes."""
    return asyncio.run(measure_webhooks(port, node, database))


async def measure_webhooks(port: int, node: int, database: int) -> WebhookCost:
    counts = Counts()
    server = await asyncio.get_running_loop().create_server(lambda: Receiver(counts), "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
    spent: list[tuple[float, float]] = []
    for number, hook in ((SENDS // 4, None), (SENDS // 4, url), (SENDS, None), (SENDS, url)):
        counts.requests = 0
        before = cpu_exactly(node), sum(cpu_by_process(database).values())
        await _send(port, Messages(number, hook))
        async with asyncio.timeout(60):
            for _ in range(number if hook else 0):
                await counts.ended.acquire()
        after = cpu_exactly(node), sum(cpu_by_process(database).values())
        spent.append((after[0] - before[0], after[1] - before[1]))
    server.close()
    without, with_hook = spent[2:]
    node_cpu, database_cpu = (max(0.0, more - less) / SENDS for more, less in zip(with_hook, without, strict=True))
    return WebhookCost(node_cpu, database_cpu, counts.requests / SENDS)


async def _send(port: int, messages: Messages) -> None:
    loop = asyncio.get_running_loop()
    senders = [(await loop.create_connection(lambda: Sender(messages), "127.0.0.1", port))[1] for _ in range(CALLERS)]
    await asyncio.gather(*(sender.finished for sender in senders))
    for sender in senders:
        sender.close()
