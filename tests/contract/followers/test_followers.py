"""Every follower of a remote task keeps the same contract: it has the whole task, once, whatever happens on the way.

The agents are served on real ports, behind a proxy that cuts connections. `follower.py` says what a follower has to do.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, NamedTuple, get_args

import pytest
from contract.followers.follower import Behavior, Follower, Kind, Outcome, Place
from contract.followers.servers import Door, ForeignServer
from contract.followers.storyteller import QUESTION, Storyteller, until
from contract.followers.table import KINDS, ROWS, row
from support.cutting_proxy import Cut, CuttingProxy, after_frames, before_the_head, ended, within

from dragoman import State, sync
from dragoman.testing import served

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of google-adk

# An error that is final is reported at once; what is retried goes on for a minute.
AT_ONCE = 8


class Line(NamedTuple):
    """A follower, and the proxy through which it calls the agent."""

    follower: Follower
    proxy: CuttingProxy


def port_of(url: str, *, is_grpc: bool) -> int:
    """The port at which a server can be called."""
    if not is_grpc:
        return int(url.rpartition(":")[2])
    with sync.Client(url) as client:
        addresses = [each.url for each in client.card().supported_interfaces if each.protocol_binding == "GRPC"]
    return int(addresses[0].rpartition(":")[2])


@contextmanager
def serving(kind: Kind, app: object, **settings: Any) -> Generator[int]:
    """Serve an agent or an app, and yield the port at which a follower calls it."""
    more = {"grpc": 0} if kind.is_grpc else {}
    with served(app, **more, **settings) as url:  # pyright: ignore[reportArgumentType] - an agent or an ASGI app
        yield port_of(url, is_grpc=kind.is_grpc)


@asynccontextmanager
async def line(
    kind: Kind,
    storyteller: Storyteller,
    cuts: Sequence[Cut] = (),
    *,
    app: object = None,
    reconnect: float = 60,
    finishes_after_cuts: bool = True,
    **settings: Any,
) -> AsyncGenerator[Line]:
    """A follower of a storyteller, through a proxy that makes these cuts.

    The storyteller begins a chapter with every stream of which something is relayed, and says all that is left after
    the last cut if it `finishes_after_cuts`.
    """

    def on_cut(number: int) -> None:
        if number == len(cuts) and finishes_after_cuts:
            storyteller.finish()

    has_stream = asyncio.Event()

    def on_stream(_number: int) -> None:
        has_stream.set()
        storyteller.go_on()

    marker = {"marker": b""} if kind.is_grpc else {}
    with serving(kind, app or storyteller.agent, **settings) as port:
        proxy = CuttingProxy(f"//127.0.0.1:{port}", cuts, on_cut, on_stream=on_stream, **marker)
        try:
            async with proxy, AsyncExitStack() as stack:
                url = f"grpc://127.0.0.1:{proxy.port}" if kind.is_grpc else proxy.url
                follower = kind.make(Place(url, storyteller, stack, reconnect, has_stream))
                await follower.open()
                yield Line(follower, proxy)
        finally:
            storyteller.finish()


def assert_whole(outcome: Outcome, text: str) -> None:
    """The task has completed; its text and its end have arrived once."""
    assert (outcome.problem, outcome.state) == ("", State.COMPLETED)
    assert outcome.text == text
    assert outcome.ends == 1
    if outcome.pieces is not None:
        assert "".join(outcome.pieces) == text


def assert_numbered(outcome: Outcome) -> None:
    """Where events have numbers, each of them has arrived once, in order.

    The last events of a stream that was cut are read from the task, without numbers, when that has ended.
    """
    if outcome.numbers is not None:
        numbered = [number for number in outcome.numbers if number]
        assert numbered == list(range(1, len(numbered) + 1)) == outcome.numbers[: len(numbered)]


def chapters_for(cuts: Sequence[Cut]) -> int:
    return len(cuts) + 1


def test_a_gap_names_a_row_of_the_contract_and_its_reason() -> None:
    behaviors = set(get_args(Behavior))
    assert behaviors == ROWS
    assert len({kind.name for kind in KINDS}) == len(KINDS)
    for kind in KINDS:
        assert set(kind.lacks) <= behaviors
        assert all(kind.lacks.values())


# -- connections that break --------------------------------------------------------------------------------------------


@row("first event lost")
async def test_a_stream_that_breaks_before_its_first_event_is_opened_again_and_its_message_runs_once(
    kind: Kind,
) -> None:
    storyteller = Storyteller()
    cuts = [before_the_head(), before_the_head("rst")]
    async with line(kind, storyteller, cuts, finishes_after_cuts=False) as (follower, proxy):
        assert_whole(await follower.follow("chapters"), storyteller.text)
        assert proxy.made == len(cuts)
    assert storyteller.runs == 1


@row("acceptance lost")
async def test_a_message_whose_acceptance_breaks_off_is_reported_and_not_sent_again(kind: Kind) -> None:
    storyteller = Storyteller()
    async with line(kind, storyteller, [after_frames(0, 60)]) as (follower, proxy):
        outcome = await follower.follow("chapters")
        assert outcome.problem
        assert proxy.streams == 1
    assert storyteller.runs == 1


CUTS = [
    *(after_frames(2), before_the_head(), before_the_head("rst")),
    *(after_frames(3), after_frames(1, how="rst")),
    *(after_frames(2, 25), after_frames(1, 33, "rst")),
    *(within("€".encode(), 2), within("𝄞".encode(), 1, how="rst")),
    *(within(b"\ndata: ", 1), within(b"\ndata: ", 1, how="rst")),
    *(ended(2), ended(1)),
]


@row("cut anywhere")
async def test_wherever_a_stream_is_cut_every_byte_arrives_once(kind: Kind) -> None:
    cuts = [] if kind.is_grpc else CUTS
    storyteller = Storyteller(chapters_for(CUTS))
    async with line(kind, storyteller, cuts) as (follower, proxy):
        following = asyncio.create_task(follower.follow("chapters"))
        if kind.is_grpc:
            await cut_all_connections(follower, proxy, storyteller)
        outcome = await following
        assert_whole(outcome, storyteller.text)
        assert_numbered(outcome)
        assert proxy.made == len(cuts)
    assert storyteller.runs == 1


async def cut_all_connections(follower: Follower, proxy: CuttingProxy, storyteller: Storyteller) -> None:
    """Cut the one connection that gRPC has for all calls, three times, whenever a text has arrived."""
    cut = 0
    for _ in range(3):
        await follower.has_text.wait()
        follower.has_text.clear()
        cut += proxy.cut()
        storyteller.go_on()
        storyteller.go_on()
    assert cut
    storyteller.finish()


def random_cuts(seed: int, count: int = 20) -> list[Cut]:
    """Cuts of every kind. Each lets fewer events through than the storyteller says until the next."""
    dice = random.Random(seed)
    kinds: list[Callable[[], Cut]] = [
        lambda: after_frames(dice.randint(1, 4), dice.randint(0, 40), dice.choice(["fin", "rst"])),
        lambda: within("é".encode(), 1, dice.randint(1, 3), dice.choice(["fin", "rst"])),
        lambda: within("𝄞".encode(), dice.randint(1, 3), dice.randint(1, 3)),
        lambda: within(b"\ndata: ", 1, dice.randint(1, 3), dice.choice(["fin", "rst"])),
        lambda: ended(dice.randint(1, 3)),
    ]
    cuts = [dice.choice(kinds)() for _ in range(count)]
    for place in dice.sample(range(1, count), 3):
        cuts[place] = before_the_head(dice.choice(["fin", "rst"]))
    return cuts


@pytest.mark.soak
@pytest.mark.timeout(60)
@pytest.mark.parametrize("seed", range(1, 11))
@row("cut at random")
async def test_a_stream_that_is_cut_twenty_times_loses_and_repeats_nothing(kind: Kind, seed: int) -> None:
    cuts = random_cuts(seed)
    storyteller = Storyteller(chapters_for(cuts))
    async with line(kind, storyteller, cuts) as (follower, proxy):
        outcome = await follower.follow("chapters")
        assert_whole(outcome, storyteller.text)
        assert_numbered(outcome)
        assert proxy.made == len(cuts)
    assert storyteller.runs == 1


# -- servers that are away ---------------------------------------------------------------------------------------------


@row("outage")
async def test_a_server_that_is_away_for_a_while_is_waited_for_and_its_task_goes_on(kind: Kind) -> None:
    storyteller = Storyteller()
    async with line(kind, storyteller) as (follower, proxy):
        following = asyncio.create_task(follower.follow("pause"))
        await follower.until_paused()
        proxy.leave()
        await proxy.until_refused(2)
        proxy.come_back()
        storyteller.finish()
        assert_whole(await following, "one two")
    assert storyteller.runs == 1


@row("end while away")
async def test_a_task_that_ends_while_nobody_listens_is_whole_with_its_end(kind: Kind) -> None:
    storyteller = Storyteller()
    async with line(kind, storyteller) as (follower, proxy):
        following = asyncio.create_task(follower.follow("pause"))
        await follower.until_paused()
        proxy.leave()
        storyteller.finish()
        await until(storyteller.ended)
        await proxy.until_refused(1)
        proxy.come_back()
        assert_whole(await following, "one two")
    assert storyteller.runs == 1


@row("unreachable")
async def test_a_server_that_stays_away_is_given_up_after_the_time_given_with_the_reason(kind: Kind) -> None:
    storyteller = Storyteller()
    async with line(kind, storyteller, reconnect=0.5) as (follower, proxy):
        following = asyncio.create_task(follower.follow("pause"))
        await follower.until_paused()
        proxy.close_port()
        async with asyncio.timeout(AT_ONCE):
            outcome = await following
        assert outcome.state is None
        assert kind.problems["unreachable"] in outcome.problem
        # What had arrived is kept.
        assert outcome.text in ("one ", "")
        assert outcome.pieces in (["one "], None)


# -- pauses, cancels, leaving ------------------------------------------------------------------------------------------


@row("question")
async def test_a_task_that_asks_is_reported_and_followed_to_its_end_after_the_answer(kind: Kind) -> None:
    storyteller = Storyteller()
    cuts = [] if kind.is_grpc else [after_frames(1), after_frames(1), after_frames(1, 9)]
    async with line(kind, storyteller, cuts) as (follower, _):
        asked = await follower.follow("ask")
        assert (asked.state, asked.problem) == (State.INPUT_REQUIRED, "")
        assert QUESTION in asked.question
        outcome = await follower.answer("3")
        assert (outcome.state, outcome.ends, outcome.problem) == (State.COMPLETED, 1, "")
        # Some repeat what stands before the question; nobody repeats what follows it.
        assert outcome.text in ("Well. 3 days", "3 days")


@row("cancel")
async def test_a_task_that_is_canceled_is_canceled_there_and_its_end_is_reported_once(kind: Kind) -> None:
    storyteller = Storyteller()
    async with line(kind, storyteller) as (follower, _):
        following = asyncio.create_task(follower.follow("pause"))
        await follower.until_paused()
        outcome = await follower.cancel(following)
        await until(storyteller.canceled)
        if outcome is not None:
            assert (outcome.state, outcome.text, outcome.ends) == (State.CANCELED, "one ", 1)
    assert storyteller.runs == 1


@row("leave")
async def test_a_reader_that_leaves_hangs_up_and_the_task_goes_on(kind: Kind) -> None:
    storyteller = Storyteller()
    async with line(kind, storyteller) as (follower, proxy):
        following = asyncio.create_task(follower.follow("pause"))
        await follower.until_paused()
        following.cancel()
        with pytest.raises(asyncio.CancelledError):
            await following
        await proxy.until_unused()
        assert not storyteller.canceled.is_set()
        storyteller.finish()
        await until(storyteller.ended)


# -- servers that are not like ours ------------------------------------------------------------------------------------


@row("no numbers")
async def test_a_server_whose_events_have_no_numbers_is_followed_without_repeating_any(kind: Kind) -> None:
    storyteller = Storyteller(2)
    app = ForeignServer(storyteller.agent)
    async with line(kind, storyteller, [after_frames(3, 25)], app=app) as (follower, proxy):
        assert_whole(await follower.follow("chapters"), storyteller.text)
        assert proxy.made == 1
    assert storyteller.runs == 1


@row("no subscriptions")
async def test_a_server_that_cannot_resume_a_stream_is_polled_until_the_end(kind: Kind) -> None:
    storyteller = Storyteller()
    app = ForeignServer(storyteller.agent, subscriptions=False)
    async with line(kind, storyteller, app=app) as (follower, proxy):
        following = asyncio.create_task(follower.follow("pause"))
        await follower.until_paused(in_stream=False)
        proxy.cut()
        storyteller.finish()
        assert_whole(await following, "one two")
    assert storyteller.runs == 1


@row("no streams")
async def test_a_server_that_has_no_streams_is_polled_until_the_end(kind: Kind) -> None:
    storyteller = Storyteller()
    app = ForeignServer(storyteller.agent, subscriptions=False, streams=False)
    async with line(kind, storyteller, app=app) as (follower, proxy):
        following = asyncio.create_task(follower.follow("pause"))
        await until(storyteller.paused)
        await until(app.is_polled)  # before the end of the task: of an ended one, a refusal says that nothing is left
        storyteller.finish()
        assert_whole(await following, "one two")
        assert proxy.streams == 0
    assert storyteller.runs == 1


# -- errors that are final ---------------------------------------------------------------------------------------------


@row("task lost")
async def test_a_server_that_has_lost_the_task_is_not_asked_again_and_again(kind: Kind) -> None:
    storyteller = Storyteller()
    async with line(kind, storyteller) as (follower, proxy):
        with serving(kind, Storyteller().agent) as emptied:
            following = asyncio.create_task(follower.follow("pause"))
            await follower.until_paused()
            proxy.come_back(emptied)
            proxy.cut()
            async with asyncio.timeout(AT_ONCE):
                outcome = await following
        assert outcome.state is None
        assert kind.problems["task lost"] in outcome.problem
    assert storyteller.runs == 1


@row("refusal")
async def test_a_message_that_is_refused_is_reported_at_once_and_sent_once(kind: Kind) -> None:
    storyteller, door = Storyteller(), Door()
    async with line(kind, storyteller, auth=door) as (follower, _):
        async with asyncio.timeout(AT_ONCE):
            outcome = await follower.follow("pause")
        assert outcome.state is None
        assert kind.problems["refusal"] in outcome.problem
    # Over gRPC the card is asked for in the same way: for its interfaces, and for whether the agent streams.
    assert (storyteller.runs, door.knocks) == (0, 3 if kind.is_grpc else 1)
