"""A task of a real engine, over streams that are cut anywhere: every word arrives once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from support.clocks import EagerClock

from dragoman import Agent, State, Task
from dragoman.client.event import Event, NumberedEvent
from dragoman.client.follow import ResumableStream
from dragoman.client.message import build_message, build_send_request
from dragoman.client.options import MessageOptions
from dragoman.errors import CannotConnect
from dragoman.model.operation import Operation
from dragoman.server.agent.in_process import connect

CUT = CannotConnect("cut", reason="CONNECTION_LOST")


class Cutting:
    """A connection to a real engine that drops its streams at given places, and can be as sloppy as others are."""

    def __init__(
        self, engine: Any, drops: list[tuple[int, bool]], *, numbers: bool, snapshot: bool = True, twice: int = 0
    ) -> None:
        self.clock = EagerClock()
        self._engine = engine
        self.cached_card = engine.cached_card
        self.reached = self.can_resubscribe = True
        self.reconnect = 60.0
        self._drops = drops
        self._numbers = numbers
        self._snapshot = snapshot
        self._twice = twice
        self._log: list[NumberedEvent] = []

    async def perform(self, operation: Operation, request: Any, backoff: Any = None) -> Any:
        found = await self._engine.perform(operation, request)
        return found if self._numbers else replace(found, generation=None)

    async def open_stream(
        self, operation: Operation, request: Any, after: int | None, budget: Any = None
    ) -> AsyncGenerator[Any, None]:
        left, clean = self._drops.pop(0) if self._drops else (1_000_000, False)
        if left == 0:
            raise CUT
        stream = self._engine.open_stream(operation, request, after if self._numbers else None)
        async with aclosing(stream) as batches:
            async for batch in batches:
                for arrived in self._shown(operation, batch):
                    yield [arrived]
                    left -= 1
                    if left == 0:
                        if clean:
                            return
                        raise CUT

    def _shown(self, operation: Operation, batch: Any) -> list[NumberedEvent]:
        if self._numbers:
            return [NumberedEvent(each.generation, each.event) for each in batch]
        shown: list[NumberedEvent] = []
        for each in batch:
            first = operation is Operation.SUBSCRIBE and isinstance(each.event, Task)
            if not first or self._snapshot:
                shown.append(NumberedEvent(0, each.event))
            if first:
                # Events that are in the snapshot already.
                shown += [NumberedEvent(0, old.event) for old in self._log[-self._twice :] if self._twice]
            if not self._log or each.generation > self._log[-1].generation:
                self._log.append(NumberedEvent(each.generation, each.event))
        return shown


WORDS = st.lists(st.sampled_from(["a ", "a ", "b ", "éß𝄞 "]), min_size=1, max_size=15)
DROPS = st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=20)


async def _read_through(
    words: list[str], drops: list[tuple[int, bool]], **options: Any
) -> tuple[list[Event], Any, int]:
    agent, runs = Agent("test"), 0

    @agent.skill
    async def story(text: str = "") -> Any:
        nonlocal runs
        runs += 1
        for place, word in enumerate(words):
            for _ in range(place % 4):
                await asyncio.sleep(0)
            yield word

    engine = connect(agent)
    await engine.open()
    try:
        wire: Any = Cutting(engine, drops, **options)
        following = ResumableStream(wire, len(drops))
        events = [
            event async for event in following.send(build_send_request(build_message(MessageOptions("go")), wait=True))
        ]
        return events, following.result, runs
    finally:
        await engine.close()


@given(WORDS, DROPS)
@settings(max_examples=60, deadline=None)
def test_cut_anywhere_numbered_events_arrive_once_and_in_order(words: list[str], drops: list[tuple[int, bool]]) -> None:
    events, result, runs = asyncio.run(_read_through(words, drops, numbers=True))
    assert "".join(event.text for event in events) == "".join(words) == result.text
    assert not any(event.replaces for event in events if event.kind != "task")
    numbers = [event.id for event in events]
    assert numbers == sorted(numbers)
    assert [event.state for event in events].count(State.COMPLETED) == 1
    assert runs == 1


@given(WORDS, DROPS, st.booleans(), st.integers(0, 4))
@settings(max_examples=60, deadline=None)
def test_cut_anywhere_events_without_numbers_arrive_once(
    words: list[str], drops: list[tuple[int, bool]], snapshot: bool, twice: int
) -> None:
    run = _read_through(words, drops, numbers=False, snapshot=snapshot, twice=twice)
    events, result, runs = asyncio.run(run)
    assert "".join(event.text for event in events) == "".join(words) == result.text
    assert not any(event.replaces for event in events if event.kind != "task")
    assert [event.state for event in events].count(State.COMPLETED) == 1
    assert runs == 1
