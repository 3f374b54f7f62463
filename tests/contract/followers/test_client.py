"""What only the client promises of a stream that is cut: artifacts beside the answer, places in the middle, leaving."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import NamedTuple

import pytest
from contract.followers.follower import FOLLOWERS
from contract.followers.teller import Teller
from support.cutting_proxy import Cut, CuttingProxy, after_frames, before_the_head

from dragoman import Client, State
from dragoman.client.event import Event
from dragoman.errors import CannotConnect
from dragoman.testing import served

CLIENTS = [name for name in FOLLOWERS if name.startswith("client")]
wires = pytest.mark.parametrize("wire", CLIENTS)


class Through(NamedTuple):
    """A client, and the proxy that it calls a teller through."""

    client: Client
    proxy: CuttingProxy


@asynccontextmanager
async def through(teller: Teller, cuts: Sequence[Cut] = (), wire: str = "client 1.0 rpc") -> AsyncGenerator[Through]:
    with served(teller.agent) as url:
        async with (
            CuttingProxy(url, cuts, teller.on_cut) as proxy,
            Client(proxy.url, **FOLLOWERS[wire].options) as client,
        ):
            yield Through(client, proxy)


def joined(events: Sequence[Event]) -> str:
    answer = ""
    for event in events:
        answer = event.text if event.replaces else answer + event.text
    return answer


@wires
async def test_what_is_beside_the_answer_arrives_once_too(wire: str) -> None:
    teller = Teller(4)
    cuts = [after_frames(4), after_frames(1), before_the_head(), after_frames(2, 9)]
    async with through(teller, cuts, wire) as (client, _):
        stream = client.stream(tool="notes")
        events = [event async for event in stream]
        assert [event.text for event in events if event.text] == ["before ", *teller.words, "after"]
        assert [event.id for event in events] == list(range(1, len(events) + 1))
        assert (stream.task.state, stream.task.data) == (State.COMPLETED, 1)


async def test_a_subscription_from_the_middle_has_what_follows() -> None:
    teller = Teller(3)
    cuts = [after_frames(1), after_frames(1, 7), before_the_head()]
    async with through(teller, cuts) as (client, proxy):
        task = await client.send("go", wait=False)
        events = [event async for event in client.subscribe(task)]
        assert joined(events) == "".join(teller.words)
        assert proxy.made == 3
        rest = [event async for event in client.subscribe(task, after=events[-5].id)]
        assert [(event.id, event.text) for event in rest] == [(event.id, event.text) for event in events[-4:]]


@pytest.mark.parametrize("wire", [name for name in CLIENTS if "0.1" not in name])
async def test_a_message_is_not_sent_again_when_its_answer_breaks_off(wire: str) -> None:
    teller = Teller(1)
    async with through(teller, [after_frames(0, 60)], wire) as (client, _):
        with pytest.raises(CannotConnect) as caught:
            async for _ in client.stream("go"):
                pass
        assert (caught.value.reason, caught.value.status) == ("CONNECTION_LOST", 200)
    assert teller.runs == 1


async def test_a_task_of_our_naming_is_found_when_the_answer_to_its_message_breaks_off() -> None:
    teller, cut = Teller(2), after_frames(0, 60)
    async with through(teller, [cut, cut], "client 0.1 rpc") as (client, proxy):
        stream = client.stream("go")
        assert joined([event async for event in stream]) == stream.task.text == "".join(teller.words)
        assert proxy.made == 2
    assert teller.runs == 1


@pytest.mark.parametrize("how", ["the client is closed", "the stream is left"])
async def test_who_stops_reading_hangs_up_and_the_task_goes_on(how: str) -> None:
    teller = Teller()
    async with through(teller) as (client, proxy):
        stream = client.stream(tool="pause")
        async with aclosing(aiter(stream)) as events:
            async for event in events:
                if event.text:
                    break
        if how == "the client is closed":
            await client.close()
        await proxy.until_nobody_is_connected()
        async with Client(proxy.url) as another:
            assert (await another.get_task(stream.task)).state is State.WORKING
            teller.release()
            assert (await another.wait(stream.task)).text == "one two"


async def test_many_streams_of_one_client_are_cut_and_none_loses_a_word() -> None:
    teller = Teller(words=[f"{number} é€𝄞 " for number in range(6)])
    dice = random.Random(3)
    cuts = [after_frames(dice.randint(1, 4), dice.randint(0, 40), dice.choice(["fin", "rst"])) for _ in range(60)]
    async with through(teller, cuts) as (client, proxy):

        async def read() -> list[Event]:
            return [event async for event in client.stream("go")]

        for events in await asyncio.gather(*(read() for _ in range(20))):
            assert joined(events) == "".join(teller.words)
            assert [event.id for event in events] == list(range(1, len(events) + 1))
        assert proxy.made > 20
    assert teller.runs == 20
