"""Streams of long tasks: in virtual time, and one in real time over a socket."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from dragoman import Agent
from dragoman.dialects.cards.card import parse_card
from dragoman.server.build import build
from dragoman.server.cards.cache import build_card
from dragoman.server.config.settings import Settings
from dragoman.testing import Clock, served

BODY = b'{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]}}'


class Reader:
    """A caller of an ASGI app that notes when each piece of the answer came."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started = clock.now()
        self._asked = False
        self.seen: list[tuple[int, bytes]] = []

    async def receive(self) -> dict[str, Any]:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": BODY, "more_body": False}
        return await asyncio.get_running_loop().create_future()

    async def send(self, message: Any) -> None:
        if message.get("body"):
            self.seen.append(((self._clock.now() - self._started) // 1000, message["body"]))


@pytest.mark.requirement("S2-112")
async def test_a_stream_carries_a_task_of_minutes_and_holds_nothing_back() -> None:
    clock = Clock()
    agent = Agent("slow", description="A word every ten seconds")

    @agent.skill
    async def speak(text: str):
        """Speak slowly."""
        for word in ("one ", "two ", "three ", "four "):
            due = asyncio.get_running_loop().create_future()
            clock.call_later(10, lambda due=due: due.set_result(None))
            await due
            yield word

    app = build((agent,), Settings(store="memory:", heartbeat=7), clock=clock)
    reader = Reader(clock)
    headers = [(b"content-type", b"application/json"), (b"host", b"localhost")]
    scope = {"type": "http", "method": "POST", "path": "/message:stream", "headers": headers, "query_string": b""}
    reading = asyncio.create_task(app(scope, reader.receive, reader.send))
    await clock.advance(41)
    await reading
    await app.stop()

    times = {
        word: at
        for at, body in reader.seen
        for word in ("one", "two", "three", "four")
        if b'"%b "' % word.encode() in body
    }
    assert times == {"one": 10, "two": 20, "three": 30, "four": 40}
    assert [at for at, body in reader.seen if body.startswith(b":")] == [7, 17, 27, 37]
    assert b"TASK_STATE_COMPLETED" in reader.seen[-1][1]


@pytest.mark.timeout(90)
@pytest.mark.requirement("S2-112")
def test_a_stream_of_half_a_minute_crosses_a_socket_word_by_word(wire: Any) -> None:
    agent = Agent("slow", description="A word every five seconds, once the last one has arrived")
    words, arrived = [f"{number} " for number in range(7)], threading.Semaphore()

    @agent.skill
    async def speak(text: str) -> AsyncIterator[str]:
        """Speak slowly."""
        loop = asyncio.get_running_loop()
        for word in words:
            # What is held back anywhere on the way is never followed by another word.
            assert await asyncio.to_thread(arrived.acquire, timeout=60)
            yield word
            due = loop.create_future()
            loop.call_later(5, due.set_result, None)
            await due

    seen, beats, started = [], 0, time.monotonic()
    with served(agent, store="memory:", heartbeat=2, drain=0) as url, httpx2.Client(timeout=30) as http:
        message = {"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "hi"}]}
        body = {"jsonrpc": "2.0", "id": 1, "method": "message/stream", "params": {"message": message}}
        with http.stream("POST", url, json=body) as answer:
            for line in answer.iter_lines():
                beats += line.startswith(":")
                if not line.startswith("data: "):
                    continue
                event = json.loads(line.removeprefix("data: "))["result"]
                if event["kind"] == "artifact-update":
                    seen.append(event["artifact"]["parts"][0]["text"])
                    arrived.release()
    assert seen[: len(words)] == words
    assert (event["kind"], event["status"]["state"], event["final"]) == ("status-update", "completed", True)
    assert time.monotonic() - started >= 30
    assert beats >= 2 * (len(words) - 1)  # two in every pause


@pytest.mark.requirement("S2-28")
def test_a_card_is_built_served_and_read_back_unchanged() -> None:
    import urllib.request

    agent = Agent("cards", description="Has a card", version="2.3.4", extensions=["https://example.com/one"])

    @agent.skill(tags=["t"], examples=["hello"])
    async def echo(text: str) -> str:
        """Echo."""
        return text

    with served(agent) as url, urllib.request.urlopen(f"{url}/.well-known/agent-card.json", timeout=20) as response:
        read = parse_card(response.read())
        assert read == build_card(agent, url, push=True, linked=True)
