"""Every follower of a remote task has the whole of it, once, whatever happens to its connections."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest
from contract.followers.conftest import Open
from contract.followers.deviations import LACKS
from contract.followers.follower import Followed
from contract.followers.servers import Foreign
from contract.followers.teller import EACH, Teller
from support.cutting_proxy import Cut, after_frames, before_the_head, ended, within

from dragoman import State

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of google-adk
]
CUTS: dict[str, list[Cut]] = {
    "before the head of the next answer": [after_frames(2), before_the_head(), before_the_head("rst")],
    "right after an event": [after_frames(3), after_frames(1, how="rst")],
    "within an event": [after_frames(3, 25), after_frames(1, 33, "rst")],
    "within a character": [within("€".encode(), 2), within("𝄞".encode(), 1, how="rst")],
    "between the number and the data": [within(b"\ndata: ", 1), within(b"\ndata: ", 1, how="rst")],
    "in good order": [ended(2), ended(1)],
}


def lacks(kind: str, need: str) -> None:
    """Skip what a follower cannot do, with the reason."""
    if kind in LACKS[need].followers:
        pytest.skip(LACKS[need].reason)


def is_whole(found: Followed, words: list[str], *, numbered: bool = True) -> None:
    """The text is there, once, and the end was told once; events that have numbers have each of them once."""
    assert (found.problem, found.state) == ("", State.COMPLETED)
    assert found.text == "".join(words)
    assert found.ends == 1
    if found.pieces is not None:
        assert "".join(found.pieces) == "".join(words)
    if numbered and found.numbers is not None:
        assert found.numbers == list(range(1, len(found.numbers) + 1))


# -- connections that break --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", CUTS)
async def test_it_does_not_matter_where_a_stream_is_cut(kind: str, through: Open, where: str) -> None:
    cuts = CUTS[where]
    teller = Teller(len(cuts))
    async with through(teller, cuts) as (follower, proxy):
        is_whole(await follower.follow("go"), teller.words)
        assert proxy.made == len(cuts)
    assert teller.runs == 1


def random_cuts(seed: int, count: int) -> list[Cut]:
    """Cuts of every kind. Each lets fewer events through than the agent tells until the next."""
    dice = random.Random(seed)
    kinds: list[Callable[[], Cut]] = [
        lambda: after_frames(dice.randint(1, 4), dice.randint(0, 40), dice.choice(["fin", "rst"])),
        lambda: within("é".encode(), 1, dice.randint(1, 3), dice.choice(["fin", "rst"])),
        lambda: within("𝄞".encode(), dice.randint(1, 3), dice.randint(1, 3)),
        lambda: within(b"\ndata: ", 1, dice.randint(1, 3), dice.choice(["fin", "rst"])),
        lambda: within(b"id: ", dice.randint(1, 5), dice.randint(1, 3)),
        lambda: ended(dice.randint(1, 3)),
    ]
    made = [dice.choice(kinds)() for _ in range(count)]
    for place in dice.sample(range(1, count), count // 6):
        made[place] = before_the_head(dice.choice(["fin", "rst"]))
    return made


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 12))])
async def test_a_stream_that_is_cut_again_and_again_is_whole(kind: str, through: Open, seed: int) -> None:
    teller = Teller(12)
    async with through(teller, random_cuts(seed, 12)) as (follower, proxy):
        is_whole(await follower.follow("go"), teller.words)
        assert proxy.made == 12
    assert teller.runs == 1


async def test_a_message_whose_answer_was_lost_is_run_once(kind: str, through: Open) -> None:
    lacks(kind, "streamed message")
    teller = Teller(2)
    async with through(teller, [before_the_head(), before_the_head()]) as (follower, proxy):
        is_whole(await follower.follow("go"), teller.words)
        assert proxy.made == 2
    assert teller.runs == 1


async def test_a_server_that_is_away_for_a_while_is_waited_for(kind: str, through: Open) -> None:
    teller = Teller(1)
    # Nobody answers the first five times; then the story goes on from where it was.
    cuts = [after_frames(3), *[before_the_head(how) for how in ("fin", "rst", "fin", "rst", "fin")]]
    async with through(teller, cuts) as (follower, proxy):
        is_whole(await follower.follow("go"), teller.words)
        assert proxy.made == len(cuts)
    assert teller.runs == 1


async def test_a_server_that_does_not_come_back_is_given_up_with_the_reason(kind: str, through: Open) -> None:
    teller = Teller()
    async with through(teller, reconnect=0.5) as (follower, proxy):
        following = asyncio.create_task(follower.follow("pause"))
        await follower.arrived.wait()
        await proxy.__aexit__()
        found = await following
        assert follower.gone in found.problem
        assert found.text == "one "
        # The proxy is left a second time, and listens no more.
        await proxy.__aenter__()


# -- servers that are not like ours ------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", CUTS)
async def test_a_server_whose_events_have_no_numbers_is_followed_to_the_end(
    kind: str, through: Open, where: str
) -> None:
    lacks(kind, "json-rpc")
    if where == "between the number and the data":
        pytest.skip("there is no number")
    cuts = CUTS[where]
    teller = Teller(len(cuts))
    async with through(teller, cuts, app=Foreign(teller.agent, numbers=False)) as (follower, proxy):
        is_whole(await follower.follow("go"), teller.words, numbered=False)
        # A server of 0.3 is not subscribed to again, but read: then there is less to cut.
        assert proxy.made == len(cuts) or (kind in LACKS["a second subscription"].followers and proxy.made)
    assert teller.runs == 1


async def test_a_server_without_subscriptions_is_looked_at_until_the_end(kind: str, through: Open) -> None:
    lacks(kind, "json-rpc")
    teller = Teller(1)
    foreign = Foreign(teller.agent, numbers=False, subscriptions=False)
    async with through(teller, [after_frames(3)], app=foreign) as (follower, _):
        is_whole(await follower.follow("go"), teller.words, numbered=False)
    assert teller.runs == 1


async def test_a_server_without_streams_is_asked_until_the_end(kind: str, through: Open) -> None:
    lacks(kind, "json-rpc")
    teller = Teller(words=["one ", "two"])
    foreign = Foreign(teller.agent, numbers=False, subscriptions=False, streams=False)
    async with through(teller, app=foreign) as (follower, _):
        is_whole(await follower.follow("go"), teller.words, numbered=False)
    assert teller.runs == 1


async def test_a_slow_server_is_waited_for(kind: str, through: Open) -> None:
    teller = Teller(words=[f"{number} " for number in range(EACH)])
    async with through(teller, app=Foreign(teller.agent, pause=0.02)) as (follower, _):
        is_whole(await follower.follow("go"), teller.words)
    assert teller.runs == 1


# -- leaving -----------------------------------------------------------------------------------------------------------


async def test_a_task_that_is_canceled_ends_once_here_and_there(kind: str, through: Open) -> None:
    teller = Teller()
    async with through(teller) as (follower, _):
        following = asyncio.create_task(follower.follow("pause"))
        await follower.arrived.wait()
        await follower.cancel(following)
        try:
            found = await following
        except asyncio.CancelledError:
            lacks(kind, "end of a canceled task")
            assert await asyncio.to_thread(teller.canceled.wait, 10)
            return
        assert (found.state, found.text, found.ends) == (State.CANCELED, "one ", 1)
        assert await asyncio.to_thread(teller.canceled.wait, 10)
    assert teller.runs == 1


async def test_a_follower_that_leaves_hangs_up_and_the_task_goes_on(kind: str, through: Open) -> None:
    lacks(kind, "leaving")
    teller = Teller()
    async with through(teller) as (follower, proxy):
        following = asyncio.create_task(follower.follow("pause"))
        await follower.arrived.wait()
        following.cancel()
        with pytest.raises(asyncio.CancelledError):
            await following
        await proxy.until_nobody_is_connected()
        assert not teller.canceled.is_set()
