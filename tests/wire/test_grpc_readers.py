"""Readers of gRPC streams who are slow, and who leave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from wire.grpc_reader import GrpcReader, grpc_reader

from dragoman import Agent
from dragoman.server.build import build
from dragoman.server.config.settings import Settings
from dragoman.server.config.values import ListenAddress

# Much more than HTTP/2 lets a server send ahead, which is 64 KiB.
CHUNKS, SIZE = 400, 1000


class Speech:
    """An agent that speaks, and says when it has begun and when it is done."""

    def __init__(self) -> None:
        self.agent = Agent("speech", description="Speaks at length")
        self.done = asyncio.Event()
        self.agent.skill(self.speak)
        self.agent.skill(self.echo)

    async def speak(self, n: int) -> AsyncIterator[str]:
        """Speak n chunks."""
        for number in range(n):
            yield f"{number:>{SIZE}}"
        self.done.set()

    async def echo(self, text: str) -> str:
        """Say it again."""
        return text


@asynccontextmanager
async def _speaking(speech: Speech, folder: Path) -> AsyncIterator[GrpcReader]:
    settings = Settings(store=f"sqlite:///{folder}/tasks.db", grpc=ListenAddress("127.0.0.1", 0))
    app = build((speech.agent,), settings)
    await app.start()
    try:
        async with grpc_reader(app.grpc_address) as reader:
            yield reader
    finally:
        await app.stop()


@pytest.mark.timeout(30)
async def test_a_reader_that_stops_reading_delays_no_other_and_misses_nothing(tmp_path: Path) -> None:
    speech = Speech()
    async with _speaking(speech, tmp_path) as caller:
        stream = caller.stream("speak", n=CHUNKS)
        assert "task" in (await stream.read() or {})
        # It reads no more: neither the agent nor another caller waits for it, on the same connection.
        await speech.done.wait()
        task = await caller.send("echo", text="hello")
        assert task["artifacts"][0]["parts"][0]["text"] == "hello"
        texts = [text.strip() async for text in stream.texts()]
        assert texts[:CHUNKS] == [f"{number}" for number in range(CHUNKS)]


@pytest.mark.timeout(30)
async def test_readers_who_leave_in_the_middle_leave_nothing_behind(tmp_path: Path) -> None:
    speech = Speech()
    async with _speaking(speech, tmp_path) as caller:
        before = len(asyncio.all_tasks())
        for _ in range(10):
            stream = caller.stream("speak", n=CHUNKS)
            await stream.read()
            stream.leave()
        # Whoever comes after them is served; by then what they had is gone.
        while len(asyncio.all_tasks()) > before + 1:
            await caller.send("echo", text="hello")
