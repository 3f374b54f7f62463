"""A stream that is cut anywhere and taken up again with Last-Event-ID gives every event once."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.fault

COMPLETED, FAILED = "TASK_STATE_COMPLETED", "TASK_STATE_FAILED"
# The task, its status, 28 words, the end.
EVENTS = 31
HALF = 16


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """What the runs of the skill `halves` wait for in the middle."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def numbers(events: list[Any]) -> list[int]:
    return [event.id for event in events]


def test_a_stream_cut_anywhere_goes_on_after_a_kill_and_a_restart(launch: Any, pipe: Path) -> None:
    before = launch()
    seen: dict[int, list[Any]] = {}
    for cut in range(1, HALF + 1):
        with before.stream("SendStreamingMessage", before.params("halves", pipe.name)) as events:
            seen[cut] = list(islice(events, cut))
    with before.stream("SendStreamingMessage", before.params("chatter", parts=[{"data": {"words": 28}}])) as events:
        ended = list(events)
    before.kill()
    after = launch()
    for cut, first in seen.items():
        rest = after.follow(first[0].result["task"]["id"], cut)
        whole = first + rest
        assert numbers(whole) == list(range(1, len(whole) + 1)), f"cut after {cut} events"
        assert whole[-1].state == FAILED
        assert [event.text for event in whole[2:-1]] == [f"{number} " for number in range(len(whole) - 3)]
    for cut in range(EVENTS):
        assert after.follow(ended[0].result["task"]["id"], cut) == ended[cut:]


def test_a_reader_who_resumes_after_the_restart_of_an_ended_task_reads_its_end_again(launch: Any) -> None:
    """The last event was sent but did not arrive: it is given once more."""
    before = launch()
    with before.stream("SendStreamingMessage", before.params("chatter", parts=[{"data": {"words": 28}}])) as events:
        seen = list(islice(events, EVENTS - 1))
        before.kill()
    after = launch()
    rest = after.follow(seen[0].result["task"]["id"], EVENTS - 1)
    assert numbers(rest) == [EVENTS]
    assert rest[0].state in (COMPLETED, FAILED)
