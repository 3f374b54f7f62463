"""The disk is full, and later it is not: what was acknowledged stays, and the server goes on by itself."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import httpx2
import pytest
from support.polling import until
from support.small_disk import mounts, small_disk

pytestmark = [
    pytest.mark.fault,
    pytest.mark.skipif(sys.platform != "linux", reason="needs tmpfs mounts or prlimit, which Linux has"),
]

COMPLETED, FAILED = "TASK_STATE_COMPLETED", "TASK_STATE_FAILED"
SERVER_ERROR = -32000
SECONDS = 30
REASON = "the store could not take writes"


class Disk(NamedTuple):
    """Where a store is that has no room; `limit` takes the room of a process, `free` gives some."""

    folder: Path
    limit: Callable[[int], None]
    free: Callable[[int], None]


@pytest.fixture
def disk(tmp_path: Path) -> Generator[Disk]:
    """A disk of 4 MB, with a ballast on it; where mounting is not permitted, a limit to the size of files."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if not mounts("-t", "tmpfs", "-o", "size=4m", "none", str(folder)):
        yield _limited(folder)
        return
    ballast = folder / "ballast"
    ballast.write_bytes(b"\0" * 2_000_000)
    yield Disk(folder, limit=lambda pid: None, free=lambda pid: ballast.unlink())
    subprocess.run(["umount", "--lazy", str(folder)], timeout=SECONDS, check=True)


def _limited(folder: Path) -> Disk:
    def limit(pid: int, size: int = 2_000_000) -> None:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    return Disk(folder, limit, free=lambda pid: limit(pid, 100_000_000))


def starting(launch: Any, disk: Disk) -> Any:
    server = launch("--store", f"sqlite:///{disk.folder / 'tasks.db'}")
    disk.limit(server.pid)
    return server


def fill(server: Any) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Send messages until they are refused, then smaller ones. Gives the tasks by messageId, and the last answer."""
    kept: dict[str, dict[str, Any]] = {}
    answer: dict[str, Any] = {}
    for size in (10_000, 1000, 1):
        for _ in range(2000):
            message_id = str(uuid4())
            answer = server.rpc("SendMessage", server.params("echo", "x" * size, message_id=message_id))
            if "error" in answer:
                break
            kept[message_id] = answer["result"]["task"]
        assert "error" in answer, "the disk does not get full"
    return kept, answer


def is_ready(server: Any) -> bool:
    answer = httpx2.get(f"{server.url}/readyz", timeout=SECONDS)
    assert answer.status_code in (200, 503)
    assert (answer.json()["status"] == "ready") == (answer.status_code == 200)
    return answer.status_code == 200


def test_a_full_disk_is_reported_and_loses_nothing_acknowledged(launch: Any, disk: Disk) -> None:
    server = starting(launch, disk)
    with server.stream("SendStreamingMessage", server.params("hang")) as events:
        seen = list(islice(events, 7))
    hanging = seen[0].result["task"]["id"]
    kept, refusal = fill(server)
    assert len(kept) > 10
    assert refusal["error"]["code"] == SERVER_ERROR
    assert refusal["error"]["message"] == "the store cannot take writes now: try again later"
    until(lambda: not is_ready(server))

    # Over REST and as a stream, it is an ordinary answer too.
    message = server.params("echo", "x" * 1000)
    headers = {"A2A-Version": "1.0"}
    answer = httpx2.post(f"{server.url}/message:send", json=message, headers=headers, timeout=SECONDS)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, 503)
    streamed = server.post("SendStreamingMessage", message, **headers)
    assert streamed.json()["error"]["code"] == SERVER_ERROR

    # The server lives, and everything it said it has is there.
    assert httpx2.get(f"{server.url}/healthz", timeout=SECONDS).status_code == 200
    for task in kept.values():
        assert server.get(task["id"]) == task
    assert server.rpc("ListTasks", {"pageSize": 1})["result"]["totalSize"] >= len(kept)
    with server.stream("SubscribeToTask", {"id": hanging}, 0) as events:
        assert list(islice(events, 7)) == seen

    # There is room again: it goes on, without a restart.
    disk.free(server.pid)
    until(lambda: is_ready(server))
    task = server.send("echo", "y" * 20_000)
    assert task["status"]["state"] == COMPLETED
    message_id, first = next(iter(kept.items()))
    again = server.rpc("SendMessage", server.params("echo", "x" * 10_000, message_id=message_id))
    assert again["result"]["task"] == first

    # And nothing of it depends on this process.
    server.kill()
    after = launch("--store", f"sqlite:///{disk.folder / 'tasks.db'}")
    for one in (task, *kept.values()):
        assert after.get(one["id"]) == one
    assert after.get(hanging)["status"]["state"] == FAILED
    assert "Traceback" not in "".join((*server.output, *after.output))


def test_a_full_disk_is_not_ready_even_while_the_log_has_room(launch: Any, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "24m") as small:
        server = launch("--store", f"sqlite:///{small.folder / 'tasks.db'}")
        for _ in range(10):  # until the log has been taken into the file, and is written again from its beginning
            server.send("echo", "x" * 200_000)
        assert is_ready(server)
        small.fill()
        answer = httpx2.get(f"{server.url}/readyz", timeout=SECONDS)
        assert (answer.status_code, answer.json()["reason"]) == (503, "the disk of the store is full: make room")
        small.free()
        assert is_ready(server)


def test_tasks_that_were_running_are_failed_once_there_is_room(launch: Any, disk: Disk) -> None:
    server = starting(launch, disk)
    with server.stream("SendStreamingMessage", server.params("pour")) as events:
        seen: list[Any] = []
        for event in events:  # until the disk is full
            if "result" not in event.data[:40]:
                break
            seen.append(event)
    assert '"code":-32000' in event.data
    assert "the store cannot take writes now" in event.data
    task_id = seen[0].result["task"]["id"]
    assert server.get(task_id)["status"]["state"] in ("TASK_STATE_WORKING", FAILED)

    disk.free(server.pid)
    task = until(lambda: (found := server.get(task_id))["status"]["state"] == FAILED and found)
    assert task["status"]["message"]["parts"][0]["text"] == REASON
    again = server.follow(task_id, 0)
    assert again[: len(seen)] == seen
    assert [event.id for event in again] == list(range(1, len(again) + 1))
    assert again[-1].state == FAILED
    listed = server.rpc("ListTasks", {"status": "TASK_STATE_WORKING"})["result"]
    assert listed["totalSize"] == 0
    assert server.send("echo", "hello")["status"]["state"] == COMPLETED
    assert "Traceback" not in "".join(server.output)


def test_a_server_that_finds_no_room_to_begin_with_says_so(launch: Any, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "4m") as small:
        small.fill()
        server = launch("--store", f"sqlite:///{small.folder / 'tasks.db'}", ready=False)
        assert server.wait() == 2
    output = "".join(server.output)
    assert "tasks.db cannot be opened: " in output
    assert "full" in output or "No space left on device" in output
    assert "Traceback" not in output
    assert server.process.returncode != -signal.SIGBUS
