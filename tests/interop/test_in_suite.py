"""One word with two foreign SDKs, in each direction, in every run of the suite. `make interop` has the rest."""

from __future__ import annotations

import pytest
from interop.agents import agent
from interop.field import DRIVER_SECONDS, PEERS, Peer, Wire, drive, serving, smoke_wires

from dragoman import Client
from dragoman.testing import served

pytestmark = pytest.mark.timeout(DRIVER_SECONDS + 10)

# The others are only installed by `make interop`.
HERE = [peer for peer in PEERS if peer.folder in ("a2a-sdk", "go")]


def skip_if_missing(peer: Peer) -> None:
    if peer.missing:
        pytest.skip(peer.missing)


@pytest.mark.requirement("S2-111", "S2-117")
@pytest.mark.parametrize("peer", HERE, ids=str)
async def test_our_client_calls_the_agent_of_another_sdk(peer: Peer) -> None:
    skip_if_missing(peer)
    with serving(peer) as url:
        for wire in smoke_wires(peer.server_wires):
            async with Client(url, transport=wire.transport, protocol=wire.protocol) as client:
                assert (await client.send("echo hello")).text == "hello"


@pytest.mark.requirement("S2-117")
@pytest.mark.parametrize(
    ("peer", "wire"),
    [pytest.param(peer, wire, id=f"{peer}-{wire}") for peer in HERE for wire in smoke_wires(peer.client_wires)],
)
def test_the_client_of_another_sdk_calls_our_agent(peer: Peer, wire: Wire) -> None:
    skip_if_missing(peer)
    with served(agent, grpc="127.0.0.1:0") as url:
        report = drive(peer, url, wire, only="send")
    assert report.code == 0, report.rest
    assert [case["ok"] for case in report.cases if case["case"] == "send"] == [True], report.cases
