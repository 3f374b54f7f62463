"""A thousand readers of one task: each event is spelled once and reaches everybody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from dragoman import Agent, Context
from dragoman.dialects.v03 import dialect as v03
from dragoman.model import record

READERS, CHUNKS = 1000, 50
SECONDS = 30


class Parade:
    """An agent that streams the words of a queue."""

    def __init__(self) -> None:
        self.words: asyncio.Queue[str] = asyncio.Queue()
        self.agent = Agent("parade", description="Streams the words of a queue")
        self.agent.skill(self.parade)

    async def parade(self, ctx: Context) -> AsyncIterator[str]:
        """Say it."""
        await ctx.progress("ready")
        while word := await self.words.get():
            yield word

    def say(self, *words: str) -> None:
        for word in words:
            self.words.put_nowait(word)


@pytest.fixture
def parade() -> Parade:
    return Parade()


class Encodings:
    """Counts how often a function encodes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: Any) -> None:
        self.count = 0
        encode: Callable[[Any], bytes] = module.encode

        def counted(value: Any) -> bytes:
            self.count += 1
            return encode(value)

        monkeypatch.setattr(module, "encode", counted)


async def caught_up(readers: list[Any], until: Any, count: int) -> None:
    await until(lambda: all(reader.count >= count for reader in readers))


@pytest.mark.parametrize("pace", ["one at a time", "all at once"])
async def test_a_thousand_readers_get_every_event_once_in_order_and_it_is_encoded_once(
    host: Any, until: Any, parade: Parade, monkeypatch: pytest.MonkeyPatch, pace: str
) -> None:
    server = await host(parade.agent)
    task_id = await server.begin()
    readers = [server.subscriber(task_id) for _ in range(READERS)]
    readings = [reader.asking() for reader in readers]
    await caught_up(readers, until, 1)
    encodings = Encodings(monkeypatch, record)
    words = [f"{number} " for number in range(CHUNKS)]
    if pace == "all at once":
        parade.say(*words)
    else:
        for number, word in enumerate(words):
            parade.say(word)
            await caught_up(readers, until, number + 2)
    parade.say("")
    async with asyncio.timeout(SECONDS):
        await asyncio.gather(*readings)
    first = list(readers[0].events)
    begin = first[0][0]
    # The snapshot, the chunks, an empty one when the last was sent before the agent ended, and the end.
    events = CHUNKS + (3 if pace == "one at a time" else 2)
    assert [number for number, _ in first] == list(range(begin, begin + events))
    assert encodings.count == events - 1
    assert all(list(reader.events) == first for reader in readers)


async def test_readers_of_an_older_dialect_share_its_spelling(
    host: Any, until: Any, parade: Parade, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await host(parade.agent)
    task_id = await server.begin()
    readers = [server.rpc("tasks/resubscribe", {"id": task_id}, id=number) for number in range(100)]
    readings = [reader.asking() for reader in readers]
    await caught_up(readers, until, 1)
    encodings = Encodings(monkeypatch, v03)
    for number in range(CHUNKS):
        parade.say(f"{number} ")
        await caught_up(readers, until, number + 2)
    parade.say("")
    async with asyncio.timeout(SECONDS):
        await asyncio.gather(*readings)
    assert encodings.count == CHUNKS + 2
    for number, reader in enumerate(readers):
        events = list(reader.events)
        assert len(events) == CHUNKS + 3
        assert all(data.startswith(b'{"jsonrpc":"2.0","id":%d,"result":{' % number) for _, data in events)


async def test_a_reader_who_fell_behind_gets_many_events_in_one_write(host: Any, until: Any, parade: Parade) -> None:
    server = await host(parade.agent)
    task_id = await server.begin()
    quick, slow = server.subscriber(task_id), server.subscriber(task_id)
    readings = [quick.asking(), slow.asking()]
    await caught_up([quick, slow], until, 1)
    slow.gate.clear()
    for number in range(CHUNKS):
        parade.say(f"{number} ")
        await caught_up([quick], until, number + 2)
    assert slow.count == 1
    slow.gate.set()
    await caught_up([slow], until, 3)
    parade.say("")
    async with asyncio.timeout(SECONDS):
        await asyncio.gather(*readings)
    assert list(slow.events) == list(quick.events)
    # The snapshot, the chunk that was on its way, all others at once, the end.
    assert [write.count(b"\n\n") for write in slow.writes[:3]] == [1, 1, CHUNKS - 1]
    assert len(slow.writes) < 6
