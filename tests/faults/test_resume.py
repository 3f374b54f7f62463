"""A stream that is cut anywhere and taken up again with Last-Event-ID gives every event once."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.fault

COMPLETED, FAILED = "TASK_STATE_COMPLETED", "TASK_STATE_FAILED"
# The task, its status, 28 words, the end.
EVENTS = 31
HALF = 16


def numbers(events: list[Any]) -> list[int]:
    return [event.id for event in events]


def text_of(events: list[Any]) -> str:
    """The words of a stream."""
    return "".join(event.text for event in events)


def subscribe(server: Any, task_id: str, after: int) -> Any:
    return server.stream("SubscribeToTask", {"id": task_id}, after)


def is_whole(events: list[Any]) -> bool:
    words = "".join(f"{number} " for number in range(28))
    return numbers(events) == list(range(1, EVENTS + 1)) and text_of(events) == words and events[-1].state == COMPLETED


def test_a_stream_cut_anywhere_goes_on_while_its_task_runs(launch: Any, pipe: Path) -> None:
    server = launch()
    params = server.params("halves", pipe.name)
    for cut in range(1, EVENTS):
        with server.stream("SendStreamingMessage", params) as events:
            seen = list(islice(events, min(cut, HALF)))
            if cut > HALF:
                pipe.write_text("go on")
                seen += islice(events, cut - HALF)
        task_id = seen[0].result["task"]["id"]
        with subscribe(server, task_id, cut) as events:
            if cut <= HALF:  # the task certainly runs: it waits
                assert server.get(task_id)["status"]["state"] == "TASK_STATE_WORKING"
                seen += islice(events, HALF - cut)
                pipe.write_text("go on")
            seen += events
        assert is_whole(seen), f"cut after {cut} events: {numbers(seen)}"


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
