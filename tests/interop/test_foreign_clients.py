"""Our server driven by foreign clients, each in an environment of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from interop_agents import agent
from interop_field import DRIVER_SECONDS, PEERS, Driven, Peer, Wire, drive
from interop_table import ABSENT, FAIL, PASS, PEER, REFUSED, THEIRS, Cell

from dragoman.testing import served

pytestmark = [pytest.mark.interop, pytest.mark.timeout(DRIVER_SECONDS + 10)]

# Which operation of the table a driver's case tries.
OPERATION_OF = {
    "card": "card",
    "send": "send",
    "return_immediately": "send",
    "send_reply": "message",
    "stream_reply": "message",
    "stream": "stream",
    "get_task": "get",
    "get_unknown": "get",
    "list_tasks": "list",
    "cancel": "cancel",
    "cancel_finished": "cancel",
    "subscribe": "subscribe",
    "subscribe_terminal": "subscribe",
    "multi_turn": "ask",
    "wrong_context": "ask",
    "terminal_message": "ask",
    "failed": "failed",
    "rejected": "failed",
    "data_roundtrip": "data",
    "file_roundtrip": "file",
    "push_config": "push",
    "push_list_delete": "push",
    "extended_card": "extended card",
}

# What a detail begins with when nothing was wrong with us, and nothing worked either.
NOTHING_TRIED = {"not in 0.3": ABSENT, "not supported by the peer: ": ABSENT, "peer at fault: ": PEER}

NOT_OFFERED = {
    "push": "Dragoman's server delivers no push notifications yet.",
    "extended card": "Dragoman's server has no extended card yet.",
}

PEERS_AND_WIRES = [pytest.param(peer, wire, id=f"{peer}-{wire}") for peer in PEERS for wire in peer.client_wires]


def driven(peer: Peer, wire: Wire, only: str | None = None) -> Driven:
    if peer.missing:
        pytest.skip(peer.missing)
    with served(agent) as url:
        return drive(peer, url, wire, only)


def cell_of(peer: Peer, wire: Wire, case: dict[str, Any]) -> Cell:
    operation = OPERATION_OF[case["case"]]
    result, why = (PASS, "") if case["ok"] else (FAIL, case["detail"])
    if case["ok"]:
        for start, meaning in NOTHING_TRIED.items():
            if case["detail"].startswith(start):
                why = f"{peer.name} {peer.version}: {case['detail'].removeprefix(start)}."
                result, why = meaning, "Not in 0.3." if start == "not in 0.3" else why
        if result == PASS and operation in NOT_OFFERED:
            result, why = REFUSED, NOT_OFFERED[operation]
    return Cell(THEIRS, str(peer), str(wire), operation, result, why)


def assert_all_ok(report: Driven) -> None:
    failing = [f"{case['case']}: {case['detail']}" for case in report.cases if not case["ok"]]
    assert not failing, "\n".join([*failing, report.rest])
    assert len(report.cases) > 1, report.rest  # the first line is only the card
    assert report.code == 0, report.rest


@pytest.mark.parametrize(("peer", "wire"), PEERS_AND_WIRES)
def test_a_foreign_client_gets_what_it_expects(peer: Peer, wire: Wire, record: Callable[[Cell], None]) -> None:
    report = driven(peer, wire)
    for case in report.cases:
        record(cell_of(peer, wire, case))
    assert_all_ok(report)


@pytest.mark.smoke
@pytest.mark.parametrize("peer", PEERS, ids=str)
def test_a_foreign_client_sends_a_message(peer: Peer) -> None:
    assert_all_ok(driven(peer, peer.client_wires[0], only="send"))
