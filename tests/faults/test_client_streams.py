"""A client whose connections are cut again and again hears every word once, in order."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
from support import cutting_proxy as proxy

from dragoman import Agent, Client, Context, Part, State
from dragoman.errors import CannotConnect
from dragoman.testing import served

pytestmark = pytest.mark.fault

CUTS = 20
EACH = 8  # words between two cuts that the agent waits for
WORDS = [f"{number} é€𝄞 " for number in range(CUTS * EACH)]
WIRES = [
    ("jsonrpc", "1.1"),
    ("rest", "1.1"),
    ("jsonrpc", "1.0"),
    ("rest", "1.0"),
    ("jsonrpc", "0.3"),
    ("rest", "0.3"),
    ("jsonrpc", "0.1"),
]
wires = pytest.mark.parametrize(("transport", "protocol"), WIRES)


class Storyteller:
    """An agent that says some words and then waits for the next cut: its task goes on through all of them."""

    def __init__(self, cuts: int = CUTS) -> None:
        self.agent = Agent("teller")
        self.runs = 0
        self.words = WORDS[: cuts * EACH]
        self.cuts: list[Future[None]] = [Future() for _ in range(cuts)]
        self.left_alone: Future[None] = Future()
        self.agent.skill(default=True)(self.story)
        self.agent.skill(self.notes)
        self.agent.skill(self.quiet)

    def on_cut(self, number: int) -> None:
        if number <= len(self.cuts):
            self.cuts[number - 1].set_result(None)

    async def story(self, text: str = "") -> Any:
        self.runs += 1
        for number, word in enumerate(self.words):
            if number % EACH == EACH - 1:
                await asyncio.wrap_future(self.cuts[number // EACH])
            yield word

    async def notes(self, ctx: Context) -> Any:
        """A text beside the answer, before and after it."""
        await ctx.artifact("before ", Part(data=1), name="before")
        words: Any = self.story()
        async for word in words:
            yield word
        await ctx.artifact("after", name="after")

    async def quiet(self) -> Any:
        yield "one "
        await asyncio.wrap_future(self.left_alone)
        yield "two"


@asynccontextmanager
async def through(teller: Storyteller, cuts: list[Any], **options: Any) -> AsyncGenerator[tuple[Client, Any], None]:
    with served(teller.agent) as url:
        async with proxy.CuttingProxy(url, cuts, teller.on_cut) as between, Client(between.url, **options) as client:
            yield client, between


async def events_of(stream: Any) -> list[Any]:
    return [event async for event in stream]


def is_whole(events: list[Any], task: Any, words: list[str]) -> None:
    assert [event.text for event in events if event.text] == words
    assert not any(event.replaces for event in events)
    assert [event.state for event in events if event.state.final] == [State.COMPLETED]
    assert (task.state, task.text) == (State.COMPLETED, "".join(words))
    assert [event.id for event in events] == list(range(1, len(events) + 1))


def random_cuts(seed: int) -> list[Any]:
    """Cuts of every kind. Each lets fewer events through than the agent says until the next."""
    dice = random.Random(seed)
    kinds: list[Callable[[], Any]] = [
        lambda: proxy.after_frames(dice.randint(1, 4), dice.randint(0, 40), dice.choice(["fin", "rst"])),
        lambda: proxy.within("é".encode(), 1, dice.randint(1, 3), dice.choice(["fin", "rst"])),
        lambda: proxy.within("𝄞".encode(), dice.randint(1, 3), dice.randint(1, 3)),
        lambda: proxy.within(b"\ndata: ", 1, dice.randint(1, 3), dice.choice(["fin", "rst"])),
        lambda: proxy.within(b"id: ", dice.randint(1, 5), dice.randint(1, 3)),
        lambda: proxy.ended(dice.randint(1, 3)),
    ]
    made = [dice.choice(kinds)() for _ in range(CUTS)]
    for place in dice.sample(range(1, CUTS), 3):
        made[place] = proxy.before_the_head(dice.choice(["fin", "rst"]))
    return made


@wires
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 12))])
async def test_a_stream_cut_twenty_times_says_every_word_once(transport: str, protocol: str, seed: int) -> None:
    teller = Storyteller()
    async with through(teller, random_cuts(seed), transport=transport, protocol=protocol) as (client, between):
        stream = client.stream("go")
        events = await events_of(stream)
        assert between.made == CUTS
        is_whole(events, stream.task, WORDS)
        assert (await client.get_task(stream.task)).text == "".join(WORDS)
    assert teller.runs == 1


KINDS = {
    "before the head of the next answer": [
        proxy.after_frames(2),
        proxy.before_the_head(),
        proxy.before_the_head("rst"),
    ],
    "right after an event": [proxy.after_frames(3), proxy.after_frames(1, how="rst")],
    "within an event": [proxy.after_frames(3, 25), proxy.after_frames(1, 33, "rst")],
    "within a character": [proxy.within("€".encode(), 2), proxy.within("𝄞".encode(), 1, how="rst")],
    "between the number and the data": [proxy.within(b"\ndata: ", 1), proxy.within(b"\ndata: ", 1, how="rst")],
    "in good order": [proxy.ended(2), proxy.ended(1)],
}


@pytest.mark.parametrize("kind", KINDS)
async def test_it_does_not_matter_where_a_stream_is_cut(kind: str) -> None:
    cuts = KINDS[kind]
    teller = Storyteller(len(cuts))
    async with through(teller, cuts) as (client, between):
        stream = client.stream("go")
        is_whole(await events_of(stream), stream.task, teller.words)
        assert between.made == len(cuts)


@wires
async def test_artifacts_beside_the_answer_are_received_once_too(transport: str, protocol: str) -> None:
    teller = Storyteller(4)
    cuts = [proxy.after_frames(4), proxy.after_frames(1), proxy.before_the_head(), proxy.after_frames(2, 9)]
    async with through(teller, cuts, transport=transport, protocol=protocol) as (client, _):
        stream = client.stream(tool="notes")
        is_whole(await events_of(stream), stream.task, ["before ", *teller.words, "after"])
        assert stream.task.data == 1


async def test_a_subscription_is_taken_up_again_as_well() -> None:
    teller = Storyteller(3)
    cuts = [proxy.after_frames(1), proxy.after_frames(1, 7), proxy.before_the_head()]
    async with through(teller, cuts) as (client, between):
        task = await client.send("go", wait=False)
        stream = client.subscribe(task)
        events = await events_of(stream)
        answer = ""
        for event in events:
            answer = event.text if event.replaces else answer + event.text
        assert answer == stream.task.text == "".join(teller.words)
        assert between.made == 3
        # From the middle: only what comes after.
        middle = events[-5].id
        rest = await events_of(client.subscribe(task, after=middle))
        assert [(event.id, event.text) for event in rest] == [(event.id, event.text) for event in events[-4:]]


@wires
async def test_a_message_that_was_taken_in_unheard_is_not_run_again(transport: str, protocol: str) -> None:
    """The connection breaks before the client knows of a task: it sends the message again, under its id."""
    teller = Storyteller(2)
    first = proxy.before_the_head()
    async with through(teller, [first, first], transport=transport, protocol=protocol) as (client, between):
        stream = client.stream("go")
        answer = ""
        async for event in stream:
            answer = event.text if event.replaces else answer + event.text
        assert answer == stream.task.text == "".join(teller.words)
        assert between.made == 2
    assert teller.runs == 1


@pytest.mark.parametrize(("transport", "protocol"), WIRES[:-1])
async def test_a_message_is_not_sent_again_when_its_answer_breaks_off(transport: str, protocol: str) -> None:
    teller = Storyteller(1)
    async with through(teller, [proxy.after_frames(0, 60)], transport=transport, protocol=protocol) as (client, _):
        with pytest.raises(CannotConnect) as caught:
            await events_of(client.stream("go"))
        assert (caught.value.reason, caught.value.status) == ("CONNECTION_LOST", 200)
        assert len([task async for task in client.list_tasks()] if protocol[0] == "1" else [0]) == 1
    assert teller.runs == 1


async def test_a_task_of_our_naming_is_found_when_the_answer_to_its_message_breaks_off() -> None:
    teller = Storyteller(2)
    cut = proxy.after_frames(0, 60)
    async with through(teller, [cut, cut], transport="jsonrpc", protocol="0.1") as (client, between):
        stream = client.stream("go")
        await events_of(stream)
        assert stream.task.text == "".join(teller.words)
        assert between.made == 2
    assert teller.runs == 1


async def test_closing_the_client_closes_its_stream_and_the_task_goes_on() -> None:
    teller = Storyteller(0)
    async with through(teller, []) as (client, between):
        stream = client.stream(tool="quiet")
        async for event in stream:
            if event.text:
                break
        await client.close()
        await between.until_unused()
        async with Client(between.url) as another:
            assert (await another.get_task(stream.task)).state is State.WORKING
            teller.left_alone.set_result(None)
            assert (await another.wait(stream.task)).text == "one two"


@pytest.mark.parametrize("leaves", ["ends its loop", "is cancelled"])
async def test_a_reader_who_leaves_a_stream_hangs_up_and_the_task_goes_on(leaves: str) -> None:
    teller = Storyteller(0)
    async with through(teller, []) as (client, between):
        stream = client.stream(tool="quiet")
        received = asyncio.Event()

        async def read() -> None:
            async with aclosing(aiter(stream)) as events:
                async for event in events:
                    if event.text:
                        received.set()
                        if leaves == "ends its loop":
                            break

        reader = asyncio.ensure_future(read())
        await received.wait()
        if leaves == "is cancelled":
            reader.cancel()
        await asyncio.wait((reader,))
        assert reader.cancelled() is (leaves == "is cancelled")
        await between.until_unused()
        assert (await client.get_task(stream.task)).state is State.WORKING
        teller.left_alone.set_result(None)
        assert (await client.wait(stream.task)).text == "one two"


async def test_many_streams_of_one_client_are_cut_and_none_loses_a_word() -> None:
    teller = Storyteller(0)
    teller.words = WORDS[:6]
    dice = random.Random(3)
    cuts = [proxy.after_frames(dice.randint(1, 4), dice.randint(0, 40), dice.choice(["fin", "rst"])) for _ in range(60)]
    async with through(teller, cuts) as (client, between):
        streams = [client.stream("go") for _ in range(20)]
        for stream, events in zip(streams, await asyncio.gather(*map(events_of, streams)), strict=True):
            is_whole(events, stream.task, teller.words)
        assert between.made > 20
    assert teller.runs == 20


async def test_a_server_that_does_not_come_back_is_given_up() -> None:
    teller = Storyteller(0)
    with served(teller.agent) as url:
        between = proxy.CuttingProxy(url, [])
        await between.__aenter__()
        async with Client(between.url, reconnect=0.5) as client:
            stream = client.stream(tool="quiet")
            with pytest.raises(CannotConnect, match="nobody answers") as caught:
                async for event in stream:
                    if event.text:
                        await between.__aexit__()
            assert caught.value.reason == "CANNOT_CONNECT"
            assert stream.task.text == "one "
        teller.left_alone.set_result(None)
