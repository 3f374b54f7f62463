"""A server is asked to stop, or a second one wants its file."""

from __future__ import annotations

import os
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import httpx2
import pytest

pytestmark = pytest.mark.fault

COMPLETED = "TASK_STATE_COMPLETED"


@pytest.fixture
def pipes(tmp_path: Path) -> list[Path]:
    """What runs of the skill `finish` wait for."""
    paths = [tmp_path / name for name in ("one", "two")]
    for path in paths:
        os.mkfifo(path)
    return paths


def working(server: Any) -> int:
    return len(server.rpc("ListTasks", {"status": "TASK_STATE_WORKING"})["result"]["tasks"])


def wait_until_stopping(server: Any) -> None:
    """Ask until the server takes no more messages: then it drains."""
    for _ in range(10_000):
        try:
            if "error" in server.rpc("SendMessage", server.params("echo", "are you there?")):
                return
        except httpx2.HTTPError:
            return
    raise AssertionError("the server does not stop")


def test_stopping_lets_runs_finish_while_their_callers_wait(launch: Any, pipes: list[Path]) -> None:
    server = launch("--drain", "20", "--limits-request-timeout", "0.5")
    with ThreadPoolExecutor(2) as callers:
        sending = callers.submit(server.send, "finish", "one")
        with server.stream("SendStreamingMessage", server.params("finish", "two")) as events:
            seen = list(islice(events, 3))
            assert seen[-1].text == "begun "
            # Both must have begun: one that comes later is refused.
            assert any(working(server) == 2 for _ in range(10_000))
            server.stop()
            wait_until_stopping(server)
            answer = httpx2.get(f"{server.url}/readyz")
            assert (answer.status_code, answer.json()["reason"]) == (503, "the server is stopping")
            assert answer.headers["connection"] == "close"
            with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=10) as slow:
                slow.sendall(b"GET / HTTP/1.1\r\n")
                assert slow.recv(100).startswith(b"HTTP/1.1 408 ")  # time limits hold until the end
            for pipe in pipes:
                pipe.write_text("go on")
            rest = list(events)
        assert rest[-1].state == COMPLETED
        task = sending.result()
    assert task["status"]["state"] == COMPLETED
    assert server.wait() == 0
    after = launch()
    assert after.get(task["id"]) == task


def test_stopping_without_patience_ends_at_once_and_the_next_server_says_what_happened(launch: Any) -> None:
    server = launch("--drain", "0")
    with server.stream("SendStreamingMessage", server.params("hang")) as events:
        seen = list(islice(events, 4))
        server.stop()
        seen += list(events)  # the stream ends properly, and can be resumed
    assert server.wait() == 0
    task_id = seen[0].result["task"]["id"]
    after = launch()
    rest = after.follow(task_id, seen[-1].id)
    assert [event.id for event in (*seen, *rest)] == list(range(1, len(seen) + len(rest) + 1))
    assert rest[-1].result["statusUpdate"]["status"]["message"]["parts"][0]["text"] == "interrupted by a restart"


def test_a_server_that_stopped_properly_leaves_one_whole_file(launch: Any, tmp_path: Path) -> None:
    server = launch()
    task = server.send("echo", "hello")
    assert server.end() == 0
    assert not (tmp_path / "tasks.db-wal").exists()
    assert launch().get(task["id"]) == task


# -- code that does not want to end ------------------------------------------------------------------------------------


def _begin(server: Any, skill: str, text: str = "") -> str:
    """Begin a task, and wait until its code says that it blocks now. Gives its id."""
    with server.stream("SendStreamingMessage", server.params(skill, text)) as events:
        seen = list(islice(events, 3))
    assert seen[-1].result["statusUpdate"]["status"]["message"]["parts"][0]["text"] == "blocking"
    return seen[0].result["task"]["id"]


def _interrupted(server: Any, task_id: str) -> bool:
    status = server.get(task_id)["status"]
    text = status["message"]["parts"][0]["text"]
    return status["state"] == "TASK_STATE_FAILED" and text.startswith("interrupted by a restart")


@pytest.mark.parametrize(
    ("skill", "number"),
    [
        ("block", signal.SIGINT),
        ("block_once", signal.SIGTERM),
        ("block_to_thread", signal.SIGTERM),
        ("block_own_thread", signal.SIGINT),
        ("stubborn", signal.SIGTERM),
        ("stubborn_task", signal.SIGINT),
    ],
)
def test_code_that_goes_on_for_ever_does_not_keep_a_stopped_server_alive(
    launch: Any, monkeypatch: Any, skill: str, number: signal.Signals
) -> None:
    monkeypatch.setenv("FAULT_SHORT_STOP", "1")
    server = launch("--drain", "0")
    task_id = _begin(server, skill)
    assert server.end(number) == (130 if number == signal.SIGINT else 0)
    assert "Traceback" not in "".join(server.output)
    assert _interrupted(launch(), task_id)


# A pattern lets no other code of Python run, which could choose the code.
@pytest.mark.parametrize(
    ("how", "number", "code"),
    [("sleep", signal.SIGTERM, 0), ("sleep", signal.SIGINT, 130), ("pattern", signal.SIGINT, 1)],
)
def test_code_that_blocks_the_event_loop_does_not_keep_a_stopped_server_alive(
    launch: Any, monkeypatch: Any, tmp_path: Path, how: str, number: signal.Signals, code: int
) -> None:
    monkeypatch.setenv("FAULT_SHORT_STOP", "1")
    for name in ("go", "blocked"):
        os.mkfifo(tmp_path / name)
    server = launch("--drain", "0")
    task_id = _begin(server, "block_loop", how)
    (tmp_path / "go").write_text("now")
    assert (tmp_path / "blocked").read_text() == "now"
    assert server.end(number) == code
    assert "Traceback" not in "".join(server.output)
    assert _interrupted(launch(), task_id)


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
def test_while_it_waits_for_tasks_it_says_so_and_a_second_ctrl_c_ends_it_at_once(
    launch: Any, first: signal.Signals
) -> None:
    server = launch("--drain", "3600")
    task_id = _begin(server, "block")
    server.stop(first)
    assert "waiting up to 3600 s for 1 running task of faulty" in server.until("waiting up to ")
    hint = "stopping; press Ctrl-C again to stop at once"
    assert (hint in "".join(server.output)) == (first is signal.SIGINT)
    server.stop(signal.SIGINT)
    assert server.wait() == 130
    assert "Traceback" not in "".join(server.output)
    assert _interrupted(launch(), task_id)


@pytest.mark.parametrize("how", ["task", "thread", "here"])
def test_a_skill_that_wants_to_end_the_program_ends_its_task_only(launch: Any, how: str) -> None:
    server = launch()
    task = server.send("leave", how)
    assert task["status"]["message"]["parts"][0]["text"].startswith("execution failed: Internal error, reference ")
    assert server.send("echo", "still here")["status"]["state"] == COMPLETED
    assert server.end() == 0
