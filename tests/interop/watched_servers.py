"""Servers in processes of their own, whose metrics are watched, and the load under which they are."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path

from support.command import DRAGOMAN, inherited_environment
from support.server_process import ServerProcess
from support.webhook_receiver import WebhookReceiver

from dragoman import Client
from dragoman.errors import DragomanError, TaskNotFound

SOURCE = Path(__file__).parents[2] / "src"
AGENTS = Path(__file__).with_name("watched_agents.py")
SECONDS = 30
SECRET = "the-same-on-all-nodes-and-long-enough"


class WatchedServer(ServerProcess):
    """`dragoman serve` with metrics."""

    def __init__(self, folder: Path, name: str, store: str, *flags: str) -> None:
        words = ("serve", f"{AGENTS}:server", "--port", "0", "--metrics", "0", "--store", store, *flags)
        super().__init__(
            [*DRAGOMAN, *words],
            folder,
            environment=inherited_environment(DRAGOMAN_SECRET=SECRET),
            address=r"card\s+(http://\S+?)/(?:agents/\w+/)?\.well-known",
            merged=True,
        )
        printed = re.search(r"metrics\s+(http://\S+)", self.ready().text)
        assert printed is not None
        self.metrics_url = printed[1]

    @property
    def target(self) -> str:
        """Host and port of its metrics."""
        return self.metrics_url.removeprefix("http://").removesuffix("/metrics")

    def agent(self, name: str) -> str:
        """The URL of one of its agents."""
        return f"{self.url}/agents/{name}"


def receiver() -> WebhookReceiver:
    """A receiver of webhooks, which takes what is sent to `/good`, is in trouble at `/bad`, and gone at `/gone`."""
    return WebhookReceiver(lambda delivery: {"/good": 200, "/gone": 410}.get(delivery.path, 503), path="")


@asynccontextmanager
async def load(server: WatchedServer) -> AsyncIterator[None]:
    """Callers of one server, as long as the block lasts: good ones, of two versions, and some who are mistaken."""
    working = [asyncio.ensure_future(each) for each in (_send(server, "1.0"), _send(server, "0.3"), _stream(server))]
    try:
        yield
        for each in working:
            if each.done():
                each.result()
    finally:
        for each in working:
            each.cancel()
        await asyncio.gather(*working, return_exceptions=True)


async def _send(server: WatchedServer, version: str) -> None:
    async with Client(server.agent("watched"), protocol=version) as client:
        while True:
            # A store without room refuses.
            with suppress(DragomanError):
                task = await client.send("one two")
                await client.get_task(task)
                await client.send(tool="fail")
                if version != "0.3":
                    async with aclosing(client.list_tasks(page_size=10)) as tasks:
                        await anext(tasks)
            with suppress(TaskNotFound):
                await client.get_task("nothing")


async def _stream(server: WatchedServer) -> None:
    async with Client(server.agent("watched")) as client:
        while True:
            with suppress(DragomanError):
                async for _ in client.stream("one two three four five"):
                    pass
