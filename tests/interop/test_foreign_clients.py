"""Our server driven by foreign clients, each in an environment of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from interop.agents import authenticate, guarded, received_files
from interop.deviations import CLIENT_FAULTS
from interop.field import DRIVER_SECONDS, PEERS, Driven, Peer, Wire, drive, smoke_wires
from interop.table import ABSENT, FAIL, PASS, PEER, THEIRS, Cell

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
    "push_arrives": "push",
    "extended_card": "extended card",
}

# What a detail of peers/driving.py begins with when nothing was wrong with us, and nothing worked either.
NOT_IN_0_3, UNSUPPORTED, PEER_AT_FAULT = "not in 0.3", "not supported by the peer: ", "peer at fault: "

FILE_ENDS = b"dragoman"

PEERS_AND_WIRES = [
    pytest.param(
        *(peer, wire),
        id=f"{peer}-{wire}",
        marks=[pytest.mark.smoke] if wire in smoke_wires(peer.client_wires) else [],
    )
    for peer in PEERS
    for wire in peer.client_wires
]


def driven(peer: Peer, wire: Wire) -> Driven:
    if peer.missing:
        pytest.skip(peer.missing)
    received_files.clear()
    with served(guarded, auth=authenticate, push_allow=["127.0.0.1"], grpc="127.0.0.1:0") as url:
        return drive(peer, url, wire)


def fault_of(peer: Peer, wire: Wire, case: dict[str, Any]) -> str:
    """Why the peer is to blame for a case that failed; empty when it is not known to be."""
    text, why = CLIENT_FAULTS.get((str(peer), str(wire), case["case"]), ("", ""))
    return why if why and text in case["detail"] else ""


def cell_of(peer: Peer, wire: Wire, case: dict[str, Any]) -> Cell:
    operation = OPERATION_OF[case["case"]]

    def cell(result: str, why: str = "") -> Cell:
        return Cell(THEIRS, str(peer), str(wire), operation, result, why)

    if not case["ok"]:
        fault = fault_of(peer, wire, case)
        return cell(PEER, fault) if fault else cell(FAIL, case["detail"])
    if case["detail"].startswith(NOT_IN_0_3):
        return cell(ABSENT, "Not in 0.3.")
    for start, result in (UNSUPPORTED, ABSENT), (PEER_AT_FAULT, PEER):
        if case["detail"].startswith(start):
            return cell(result, f"{peer.name} {peer.version}: {case['detail'].removeprefix(start)}.")
    return cell(PASS)


def assert_all_ok(peer: Peer, wire: Wire, report: Driven) -> None:
    failing = [case for case in report.cases if not case["ok"]]
    unknown = [f"{case['case']}: {case['detail']}" for case in failing if not fault_of(peer, wire, case)]
    assert not unknown, "\n".join([*unknown, report.rest])
    assert len(report.cases) > 1, report.rest  # the first line is only the card
    assert report.code == (1 if failing else 0), report.rest


def assert_faults_remain(peer: Peer, wire: Wire, report: Driven) -> None:
    passing = {case["case"] for case in report.cases if case["ok"]}
    mended = [
        case for (name, over, case) in CLIENT_FAULTS if (name, over) == (str(peer), str(wire)) and case in passing
    ]
    assert not mended, f"no longer at fault, take it out of CLIENT_FAULTS: {mended}"


def assert_files_are_as_expected(peer: Peer, wire: Wire) -> None:
    """What the agent was given: the client reads back even what it sent wrongly."""
    assert all(file is not None and file.endswith(FILE_ENDS) for file in received_files), received_files
    assert received_files or (str(peer), str(wire), "file_roundtrip") in CLIENT_FAULTS


@pytest.mark.requirement("S2-117")
@pytest.mark.parametrize(("peer", "wire"), PEERS_AND_WIRES)
def test_a_foreign_client_gets_what_it_expects(peer: Peer, wire: Wire, record: Callable[[Cell], None]) -> None:
    report = driven(peer, wire)
    for case in report.cases:
        record(cell_of(peer, wire, case))
    assert_all_ok(peer, wire, report)
    assert_faults_remain(peer, wire, report)
    assert_files_are_as_expected(peer, wire)
