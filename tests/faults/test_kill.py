"""A server is killed, and another one goes on with its file: nothing that anybody has seen is lost."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import httpx2
import pytest
from faults.conftest import text_of

pytestmark = pytest.mark.fault

COMPLETED, FAILED = "TASK_STATE_COMPLETED", "TASK_STATE_FAILED"
WORKING, WAITING = "TASK_STATE_WORKING", "TASK_STATE_INPUT_REQUIRED"


def read_until(events: Any, number: int) -> list[Any]:
    """That many events, and then the server is of no use any more."""
    return list(islice(events, number))


def rest_is_lost(events: Any) -> list[Any]:
    """What had arrived already when the server died."""
    found: list[Any] = []
    with suppress(httpx2.HTTPError):
        found.extend(events)
    return found


# In the middle of a stream


def test_every_event_that_a_reader_saw_is_still_there(launch: Any) -> None:
    before = launch()
    with before.stream("SendStreamingMessage", before.params("pour")) as events:
        seen = read_until(events, 2000)
        before.kill()
        seen += rest_is_lost(events)
    task_id = seen[0].result["task"]["id"]
    after = launch()
    again = after.follow(task_id, 0)
    assert again[: len(seen)] == seen
    assert [event.id for event in again] == list(range(1, len(again) + 1))
    assert again[-1].state == FAILED
    words = "".join(event.text for event in again)
    assert text_of(after.get(task_id)) == words == "".join(f"{number} " for number in range(1, len(again) - 2))


def test_a_skill_that_may_restart_finishes_in_the_next_process(launch: Any) -> None:
    before = launch()
    with before.stream("SendStreamingMessage", before.params("again")) as events:
        seen = []
        for event in events:
            seen.append(event)
            if event.text == "lost":
                break
        before.kill()
    task_id = seen[0].result["task"]["id"]
    after = launch()
    rest = after.follow(task_id, seen[-1].id)
    assert [event.id for event in (*seen, *rest)] == list(range(1, len(seen) + len(rest) + 1))
    assert rest[-1].state == COMPLETED
    task = after.get(task_id)
    assert text_of(task) == "one two three"
    side = [part["data"] for artifact in task["artifacts"] for part in artifact["parts"] if "data" in part]
    assert side == [{"first": False}]


# Tasks at rest


@pytest.mark.parametrize("skill", ["plan", "plan_in_thread"])
def test_a_waiting_task_survives_and_is_answered(launch: Any, skill: str) -> None:
    before = launch()
    task = before.send(skill, "Porto")
    assert task["status"]["state"] == WAITING
    before.kill()
    after = launch()
    assert after.get(task["id"]) == task
    ended = after.send("", "3", taskId=task["id"])
    assert (ended["status"]["state"], text_of(ended)) == (COMPLETED, "Porto: 3 days")
    assert ended["contextId"] == task["contextId"]
    assert len(ended["artifacts"]) == 1
    after.kill()
    assert launch().get(task["id"]) == ended


@pytest.mark.requirement("S0-3")
def test_a_task_is_read_after_the_kill_as_it_was_answered_before(launch: Any) -> None:
    before = launch()
    message = {"role": "user", "parts": [{"type": "text", "text": "hello"}]}
    task = before.rpc("tasks/send", {"message": message}, "/a2a", version="")["result"]
    assert task["status"]["state"] == "completed"
    before.kill()
    after = launch()
    assert after.rpc("tasks/get", {"id": task["id"]}, "/a2a", version="")["result"] == task


def test_tasks_that_had_not_begun_run_in_the_next_process(launch: Any) -> None:
    before = launch()
    with before.stream("SendStreamingMessage", before.params("hang", contextId="c")) as events:
        first = read_until(events, 3)[0].result["task"]["id"]
        waiting = [before.begin("echo", contextId="c")["id"] for _ in range(3)]
        assert [before.get(task)["status"]["state"] for task in waiting] == ["TASK_STATE_SUBMITTED"] * 3
        before.kill()
    after = launch()
    assert after.get(first)["status"]["state"] == FAILED
    for task in waiting:
        states = [event.state for event in after.follow(task, 0) if event.state]
        assert states == ["TASK_STATE_SUBMITTED", WORKING, COMPLETED]


# Again and again


def test_a_file_stays_whole_however_often_its_server_is_killed(launch: Any, tmp_path: Path) -> None:
    known: set[str] = set()
    for _ in range(3):
        server = launch()
        with ThreadPoolExecutor(8) as callers:
            streaming = [callers.submit(_stream_some, server, 40) for _ in range(6)]
            asking = [callers.submit(server.send, "plan") for _ in range(2)]
            known |= {task["id"] for task in (one.result() for one in asking)}
            known |= {one.result() for one in streaming}
            server.kill()
    server = launch()
    states = {task_id: server.get(task_id)["status"]["state"] for task_id in known}
    assert len(states) == 24
    assert sorted(states.values()) == [FAILED] * 18 + [WAITING] * 6
    for task_id, state in states.items():
        if state == FAILED:
            numbers = [event.id for event in server.follow(task_id, 0)]
            assert numbers == list(range(1, len(numbers) + 1))
    assert server.end() == 0
    with closing(sqlite3.connect(tmp_path / "tasks.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"


def _stream_some(server: Any, number: int) -> str:
    """Begin an endless task, read a bit of it and leave. Gives its id."""
    with server.stream("SendStreamingMessage", server.params("pour")) as events:
        return read_until(events, number)[0].result["task"]["id"]
