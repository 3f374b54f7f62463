"""Our client on foreign servers that know no way to resume a stream: the stream is cut, and every word arrives once."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from interop.field import PEERS
from interop.peers.script import chunks
from support import cutting_proxy as proxy

from dragoman import Client, State

pytestmark = pytest.mark.interop

CUTS = 20
WORDS = 400  # two seconds
PEER = next(peer for peer in PEERS if peer.folder == "a2a-sdk")
HTTP_WIRES = [wire for wire in PEER.server_wires if wire.transport != "grpc"]
GRPC_SERVERS = [
    pytest.param(peer, wire, id=f"{peer}-{wire}")
    for peer in PEERS
    if peer.folder in ("a2a-sdk", "a2a-sdk-03", "js", "go")
    for wire in peer.server_wires
    if wire.transport == "grpc"
]


def cuts(seed: int) -> list[Any]:
    dice = random.Random(seed)
    made = [
        proxy.after_frames(dice.randint(1, 3), dice.randint(0, 60), dice.choice(["fin", "rst"])) for _ in range(CUTS)
    ]
    for place in dice.sample(range(1, CUTS), 5):
        made[place] = dice.choice([proxy.before_the_head("fin"), proxy.before_the_head("rst"), proxy.ended(1)])
    return made


def connection_cuts(seed: int, begun: asyncio.Event) -> list[Any]:
    """All of a connection is cut, with every call in it, so there are fewer.

    gRPC drops what has arrived and was not read. A client can go on when it knows of the task: when it has `begun`.
    """
    dice = random.Random(seed)
    first = proxy.Cut(lambda answer: len(answer) if begun.is_set() else None, dice.choice(["fin", "rst"]))
    later = [
        proxy.after_messages(dice.randint(2, 4), dice.randint(0, 60), dice.choice(["fin", "rst"])) for _ in range(4)
    ]
    return [first, *later]


def card_at(url: str, proxied: str) -> dict[str, Any]:
    """The server's card, with the proxy's address in place of its own."""
    return json.loads(card_text(url).replace(url, proxied))


def card_text(url: str) -> str:
    return httpx2.get(f"{url}/.well-known/agent-card.json", timeout=30).text


def grpc_address(card: dict[str, Any]) -> str:
    interfaces = [*card.get("supportedInterfaces", ()), *card.get("additionalInterfaces", ())]
    return next(each["url"] for each in interfaces if "GRPC" in each.values())


@pytest.mark.parametrize("wire", HTTP_WIRES, ids=str)
async def test_a_stream_cut_twenty_times_says_every_word_once(wire: Any, server_of: Callable[[Any], str]) -> None:
    url = server_of(PEER)
    async with proxy.CuttingProxy(url, cuts(sum(str(wire).encode()))) as between:
        card = card_at(url, between.url)
        await assert_every_word_arrives_once(card, wire, between)


@pytest.mark.parametrize(("peer", "wire"), GRPC_SERVERS)
async def test_a_stream_over_grpc_whose_connection_is_cut_says_every_word_once(
    peer: Any, wire: Any, server_of: Callable[[Any], str]
) -> None:
    url = server_of(peer)
    address = grpc_address(json.loads(card_text(url)))
    begun = asyncio.Event()
    cuts_to_make = connection_cuts(sum(str(wire).encode()), begun)
    async with proxy.CuttingProxy(f"grpc://{address}", cuts_to_make, marker=b"") as between:
        card = json.loads(card_text(url).replace(address, urlsplit(between.url).netloc))
        await assert_every_word_arrives_once(card, wire, between, begun)


async def assert_every_word_arrives_once(
    card: dict[str, Any], wire: Any, between: Any, begun: asyncio.Event | None = None
) -> None:
    cuts_to_make = between.left
    async with Client(card, transport=wire.transport, protocol=wire.protocol) as client:
        stream = client.stream(f"stream {WORDS}")
        answer = ""
        async for event in stream:
            assert not event.replaces or not answer
            answer += event.text
            if begun is not None:
                begun.set()
        # A server of 0.3 may be looked at instead of subscribed to again: then there is less to cut. Over gRPC it takes
        # a while to connect again, and the stream may have ended.
        assert between.made == cuts_to_make or ((wire.protocol == "0.3" or wire.transport == "grpc") and between.made)
        assert answer == stream.task.text == "".join(chunks(WORDS))
        assert stream.task.state is State.COMPLETED
        assert (await client.get_task(stream.task)).text == answer
