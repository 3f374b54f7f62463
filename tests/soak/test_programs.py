"""Programs behind a server, in large numbers and for long."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from faults import odd_programs as odd
from faults import program_crash as crash
from faults import program_crowd as crowd
from faults import program_server as at

from dragoman import Client, State

pytestmark = pytest.mark.soak
KB, MB = 1000, 1_000_000


@pytest.mark.parametrize("kind", ["gather", "ask"])
async def test_a_thousand_sessions_at_once_are_all_answered_and_leave_nothing(tmp_path: Path, kind: str) -> None:
    report = await getattr(crowd, kind)(tmp_path, sessions=1000)
    print(f"\n{kind}: {report}")
    assert (len(report.answers), set(report.answers.values())) == (1000, {1})
    assert report.at_once == 1000
    assert (report.left, report.descriptors_left) == (0, 0)
    assert report.per_session < 200 * KB


@pytest.mark.timeout(300)
async def test_ten_thousand_programs_one_after_another_leave_nothing(tmp_path: Path) -> None:
    report = await crowd.pass_through(tmp_path, sessions=10_000)
    print(
        f"\n{report.per_session / KB:.1f} KB are left of each in the server, {report.guard_per_session:.0f} bytes "
        "in the guard"
    )
    assert report.answers == Counter(f"{each} is {each}" for each in range(10_000)), report.log
    assert (report.left, report.descriptors_left) == (0, 0)
    assert report.guard_per_session < 100
    assert report.per_session < 10 * KB


@pytest.mark.timeout(300)
async def test_no_program_outlives_any_of_ten_kills(tmp_path: Path) -> None:
    for turn in range(10):
        folder = tmp_path / str(turn)
        folder.mkdir()
        report = await crash.kill(folder, programs=200)
        print(f"\nall of {report.processes} processes were gone {report.seconds:.2f} s after the kill")
        assert report.ended == {(State.FAILED, "interrupted by a restart"): 200}


@pytest.mark.timeout(300)
async def test_a_slow_reader_of_an_unlimited_output_gets_all_of_it(tmp_path: Path) -> None:
    agents = {"unlimited": {**odd.WRITES, "limits": {"output": 0}}}
    leash, received = at.Leash(tmp_path), list[str]()
    with at.served(tmp_path, agents) as server:
        before = at.forget_peak(server.pid)
        async with Client(server.url, limit=128 << 20) as client:
            async for event in client.stream(f"{leash.path} 60"):
                if not received:
                    assert await leash.ready() == ["written"]
                    grown = at.memory(server.pid, "VmHWM") - before
                    print(f"\nthe server held {grown / MB:.0f} MB of 63 MB that nobody had read")
                    # The text of a task that runs is kept in memory once; beside it only so much is.
                    assert grown < 2 * (60 << 20)
                received.append(event.text)
    assert "".join(received) == "x" * (60 << 20)
    leash.close()
