"""The callback for the end of a stream is called once, when nobody reads it any more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from dragoman import Agent
from dragoman.engine.call import CallContext
from dragoman.engine.settings import EngineSettings
from dragoman.model.error import Overloaded
from dragoman.model.operation import SubscribeToTaskRequest
from dragoman.outputs import Reply

from .conftest import turns

ME = CallContext()


class Ends:
    """The reported ends of streams: the kind of exception, and whether the last batch was reached."""

    def __init__(self) -> None:
        self.reports: list[tuple[type[BaseException] | None, bool]] = []

    def __call__(self, error: BaseException | None, is_complete: bool) -> None:
        self.reports.append((None if error is None else type(error), is_complete))


async def speak(_: object) -> AsyncIterator[str]:
    yield "hello"


class Silent:
    """An agent that says a word and waits."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()

    async def run(self, _: object) -> AsyncIterator[str]:
        yield "hello"
        await self.may_end.wait()


async def open_stream(engine: Any, ends: Ends, caller: str = "") -> Any:
    return (await engine.service.stream(ME, engine.request(), caller, None, ends)).batches


async def test_a_stream_that_is_read_to_its_end_ends_without_an_error(start: Any) -> None:
    ends = Ends()
    async for _ in await open_stream(await start(speak), ends):
        assert not ends.reports
    assert ends.reports == [(None, True)]


async def test_a_reader_who_leaves_with_the_last_batch_has_everything(start: Any) -> None:
    ends = Ends()
    async with aclosing(await open_stream(await start(speak), ends)) as batches:
        async for batch in batches:
            if batch.ended:
                break
    assert ends.reports == [(GeneratorExit, True)]


async def test_a_reader_who_leaves_before_has_not(start: Any) -> None:
    ends = Ends()
    async with aclosing(await open_stream(await start(Silent().run), ends)) as batches:
        await anext(batches)
    assert ends.reports == [(GeneratorExit, False)]


async def test_a_reader_who_is_canceled_while_it_waits_ends_the_stream(start: Any) -> None:
    ends = Ends()
    batches = await open_stream(await start(Silent().run), ends)

    async def read() -> None:
        async for _ in batches:
            pass

    reader = asyncio.ensure_future(read())
    await turns()
    assert not ends.reports
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert ends.reports == [(asyncio.CancelledError, False)]


async def test_a_server_that_stops_ends_a_stream_before_its_last_batch(start: Any) -> None:
    ends = Ends()
    engine = await start(Silent().run)
    batches = await open_stream(engine, ends)
    reader = asyncio.ensure_future(anext(batches))
    await reader
    closing = asyncio.ensure_future(engine.connection.close())
    async for _ in batches:
        pass
    await closing
    assert ends.reports == [(None, False)]


async def test_a_stream_that_gets_no_slot_any_more_ends_with_that(start: Any) -> None:
    agent, first, second = Silent(), Ends(), Ends()
    engine = await start(agent.run, settings=EngineSettings(drain=0, max_streams=1))
    batches, refused = await open_stream(engine, first), await open_stream(engine, second)
    await anext(batches)
    with pytest.raises(Overloaded):
        await anext(refused)
    assert (first.reports, second.reports) == ([], [(Overloaded, False)])
    agent.may_end.set()
    async for _ in batches:
        pass
    assert first.reports == [(None, True)]


async def test_a_stream_that_nobody_reads_does_not_end(start: Any) -> None:
    ends = Ends()
    await (await open_stream(await start(speak), ends)).aclose()
    assert not ends.reports


async def test_the_stream_of_a_mere_reply_ends_too(start: Any) -> None:
    async def run(_: object) -> AsyncIterator[Reply]:
        yield Reply("yes")

    ends, left = Ends(), Ends()
    engine = await start(Agent("test", run=run, replies=True))
    async for _ in await open_stream(engine, ends):
        pass
    async with aclosing(await open_stream(engine, left)) as batches:
        await anext(batches)
    assert (ends.reports, left.reports) == ([(None, True)], [(GeneratorExit, True)])


@pytest.mark.parametrize("after", [None, 1])
async def test_a_subscription_ends_too_from_a_snapshot_and_from_a_position(start: Any, after: int | None) -> None:
    agent, ends = Silent(), Ends()
    engine = await start(agent.run)
    task = await engine.send(wait=False)
    await turns()
    stream = await engine.service.subscribe(ME, SubscribeToTaskRequest(task.id), after, "", ends)
    await anext(stream.batches)
    agent.may_end.set()
    async for _ in stream.batches:
        assert not ends.reports
    assert ends.reports == [(None, True)]
