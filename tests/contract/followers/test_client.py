"""What only a client promises of a stream that breaks: artifacts beside the answer, subscriptions, many streams."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import NamedTuple

import pytest
from contract.followers.storyteller import Storyteller
from support.cutting_proxy import Cut, CuttingProxy, after_frames, before_the_head

from dragoman import Client, State
from dragoman.client.event import Event
from dragoman.errors import CannotConnect
from dragoman.testing import served

VERSIONS = pytest.mark.parametrize(
    ("transport", "protocol"),
    [("jsonrpc", "1.1"), ("rest", "1.1"), ("jsonrpc", "1.0"), ("jsonrpc", "0.3"), ("rest", "0.3"), ("jsonrpc", "0.1")],
)


class Line(NamedTuple):
    """A client, and the proxy through which it calls the agent."""

    client: Client
    proxy: CuttingProxy


@asynccontextmanager
async def line(
    storyteller: Storyteller, cuts: Sequence[Cut] = (), transport: str = "jsonrpc", protocol: str = "1.0"
) -> AsyncGenerator[Line]:
    def on_cut(number: int) -> None:
        if number == len(cuts):
            storyteller.finish()

    with served(storyteller.agent) as url:
        try:
            async with (
                CuttingProxy(url, cuts, on_cut, on_stream=storyteller.go_on) as proxy,
                Client(proxy.url, transport=transport, protocol=protocol) as client,
            ):
                yield Line(client, proxy)
        finally:
            storyteller.finish()


def joined(events: Sequence[Event]) -> str:
    text = ""
    for event in events:
        text = event.text if event.replaces else text + event.text
    return text


@VERSIONS
async def test_each_event_of_every_artifact_arrives_once_as_it_was_written(transport: str, protocol: str) -> None:
    cuts = [after_frames(4), after_frames(1), before_the_head(), after_frames(2, 9)]
    storyteller = Storyteller(len(cuts) + 1)
    async with line(storyteller, cuts, transport, protocol) as (client, _):
        stream = client.stream("notes")
        events = [event async for event in stream]
        assert [event.text for event in events if event.text] == ["before ", *storyteller.words, "after"]
        assert [event.id for event in events] == list(range(1, len(events) + 1))
        assert (stream.task.state, stream.task.data) == (State.COMPLETED, 1)


async def test_a_subscription_from_the_middle_has_the_events_that_follow() -> None:
    storyteller = Storyteller()
    async with line(storyteller) as (client, _):
        events = [event async for event in client.stream("chapters")]
        task = events[-1].task
        assert task is not None
        rest = [event async for event in client.subscribe(task, after=events[-5].id)]
        assert [(event.id, event.text) for event in rest] == [(event.id, event.text) for event in events[-4:]]


async def test_a_message_whose_acceptance_breaks_off_is_an_error_that_says_so() -> None:
    async with line(Storyteller(), [after_frames(0, 60)]) as (client, _):
        with pytest.raises(CannotConnect) as caught:
            async for _event in client.stream("chapters"):
                pass
        assert (caught.value.reason, caught.value.status) == ("CONNECTION_LOST", 200)
        assert len([task async for task in client.list_tasks()]) == 1


async def test_a_task_that_the_client_named_is_found_when_its_acceptance_breaks_off() -> None:
    storyteller, cut = Storyteller(3), after_frames(0, 60)
    async with line(storyteller, [cut, cut], protocol="0.1") as (client, proxy):
        stream = client.stream("chapters")
        events = [event async for event in stream]
        assert joined(events) == stream.task.text == storyteller.text
        assert proxy.made == 2
    assert storyteller.runs == 1


@pytest.mark.parametrize("how", ["the client is closed", "the stream is left"])
async def test_a_client_that_stops_reading_hangs_up_and_the_task_goes_on(how: str) -> None:
    storyteller = Storyteller()
    async with line(storyteller) as (client, proxy):
        stream = client.stream("pause")
        async with aclosing(aiter(stream)) as events:
            async for event in events:
                if event.text:
                    break
            if how == "the client is closed":
                await client.close()
            else:
                await events.aclose()
            await proxy.until_unused()
        async with Client(proxy.url) as another:
            assert (await another.get_task(stream.task)).state is State.WORKING
            storyteller.finish()
            assert (await another.wait(stream.task)).text == "one two"


async def test_many_streams_of_one_client_are_cut_and_none_loses_a_word() -> None:
    storyteller = Storyteller()
    storyteller.finish()
    dice = random.Random(3)
    cuts = [after_frames(dice.randint(1, 4), dice.randint(0, 40), dice.choice(["fin", "rst"])) for _ in range(60)]
    async with line(storyteller, cuts) as (client, proxy):

        async def read() -> list[Event]:
            return [event async for event in client.stream("chapters")]

        for events in await asyncio.gather(*(read() for _ in range(20))):
            assert joined(events) == storyteller.text
            assert [event.id for event in events] == list(range(1, len(events) + 1))
        assert proxy.made > 20
    assert storyteller.runs == 20
