"""Disks that cannot be written, and files that were damaged while nobody served them."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import httpx2
import pytest
from faults.read_only_disk import ReadOnlyDisk
from support.small_disk import mounts, small_disk

pytestmark = pytest.mark.fault

COMPLETED, FAILED = "TASK_STATE_COMPLETED", "TASK_STATE_FAILED"
SECONDS = 30
PAGE = 4096


def refusal(server: Any) -> str:
    """What a server says that does not start. It teaches, and shows no traceback."""
    assert server.wait() == 2
    output = "".join(server.output)
    assert "Traceback" not in output
    assert output.startswith("dragoman: ")
    return output


# A disk that can only be read


@pytest.mark.skipif(sys.platform != "linux", reason="needs tmpfs")
def test_a_store_on_a_read_only_disk_is_refused_and_opened_once_it_can_be_written(launch: Any, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "4m") as small:
        disk = small.folder
        where = ("--store", f"sqlite:///{disk / 'tasks.db'}")
        server = launch(*where)
        task = server.send("echo", "hello")
        assert server.end() == 0
        assert mounts("-o", "remount,ro", str(disk))
        text = refusal(launch(*where, ready=False))
        assert f"the store {disk / 'tasks.db'} cannot be opened: Read-only file system" in text
        assert "use another --store" in text
        # A store that is not there yet cannot be made either.
        text = refusal(launch("--store", f"sqlite:///{disk / 'new' / 'tasks.db'}", ready=False))
        assert "cannot be opened: Read-only file system" in text
        assert mounts("-o", "remount,rw", str(disk))
        assert launch(*where).get(task["id"]) == task


# A file that lost its end


@pytest.mark.parametrize("missing", [PAGE, 100, 5 * PAGE + 1])
def test_a_file_that_lost_its_end_is_refused_with_what_to_do(launch: Any, tmp_path: Path, missing: int) -> None:
    server = launch()
    for number in range(5):
        server.send("echo", str(number) * 5000)
    assert server.end() == 0
    file = tmp_path / "tasks.db"
    with file.open("r+b") as opened:
        opened.truncate(file.stat().st_size - missing)
    text = refusal(launch(ready=False))
    assert f"the store {file} is damaged" in text
    assert "dragoman doctor" in text
    assert "backup" in text


def test_a_file_that_lost_all_but_its_beginning_is_refused(launch: Any, tmp_path: Path) -> None:
    server = launch()
    server.send("echo", "hello")
    assert server.end() == 0
    for size in (PAGE, 1000, 50):
        with (tmp_path / "tasks.db").open("r+b") as opened:
            opened.truncate(size)
        text = refusal(launch(ready=False))
        assert "is damaged" in text or "is not a store of Dragoman" in text


def test_damage_in_the_middle_ends_what_meets_it_with_an_error_and_nothing_else(launch: Any, tmp_path: Path) -> None:
    server = launch()
    tasks = [server.send("echo", f"{number:05}" * 4000) for number in range(5)]
    assert server.end() == 0
    file = tmp_path / "tasks.db"
    # Long texts lie on pages of their own: four bytes that name the next one, and text.
    content = file.read_bytes()
    place = next(at for at in range(0, len(content), PAGE) if set(content[at + 4 : at + PAGE]) == set(b"03"))
    with file.open("r+b") as opened:
        opened.seek(place)
        opened.write(b"\xff" * PAGE)
    server = launch()
    for number in (0, 1, 2, 4):
        assert server.get(tasks[number]["id"]) == tasks[number]
    # Its last state or its journal, whichever lay there.
    headers = {"A2A-Version": "1.0", "Last-Event-ID": "0"}
    answers = [server.post(method, {"id": tasks[3]["id"]}, **headers) for method in ("GetTask", "SubscribeToTask")]
    (damaged,) = [answer.json()["error"] for answer in answers if b'"error"' in answer.content]
    assert (damaged["code"], damaged["message"]) == (-32000, "the store cannot be read now: the log says why")
    assert server.send("echo", "hello")["status"]["state"] == COMPLETED
    output = "".join(server.output)
    assert "database disk image is malformed" in output
    assert "Traceback" not in output


# A log that lost its end


def killed(launch: Any, tmp_path: Path) -> tuple[list[Any], list[dict[str, Any]], Path]:
    """A stream, some tasks, and the log of a server that was killed after them."""
    server = launch()
    with server.stream("SendStreamingMessage", server.params("hang")) as events:
        seen = list(islice(events, 7))
    tasks = [server.send("echo", f"number {number}") for number in range(10)]
    server.kill()
    log = tmp_path / "tasks.db-wal"
    assert log.stat().st_size > 10 * PAGE
    return seen, tasks, log


@pytest.mark.parametrize("garbage", [b"\xff" * 3000, b"\0" * 20_000, b"half a frame"])
def test_garbage_after_the_end_of_the_log_costs_nothing(launch: Any, tmp_path: Path, garbage: bytes) -> None:
    seen, tasks, log = killed(launch, tmp_path)
    with log.open("ab") as opened:
        opened.write(garbage)
    after = launch()
    assert [after.get(task["id"]) for task in tasks] == tasks
    again = after.follow(seen[0].result["task"]["id"], 0)
    assert again[:7] == seen
    assert again[-1].state == FAILED
    assert after.send("echo", "hello")["status"]["state"] == COMPLETED


@pytest.mark.parametrize("harm", ["cut", "overwritten"])
def test_a_log_without_its_last_bytes_loses_the_last_commit_and_is_whole(
    launch: Any, tmp_path: Path, harm: str
) -> None:
    """What a disk lost after it said that it had it, nobody can give back. The rest stays, and fits together."""
    seen, tasks, log = killed(launch, tmp_path)
    with log.open("r+b") as opened:
        if harm == "cut":
            opened.truncate(log.stat().st_size - 100)
        else:
            opened.seek(-100, 2)
            opened.write(b"\xff" * 100)
    after = launch()
    assert [after.get(task["id"]) for task in tasks[:-1]] == tasks[:-1]
    last = after.rpc("GetTask", {"id": tasks[-1]["id"]})
    if "result" in last:  # its end alone was the last commit: it has run again, or failed
        states = [event.state for event in after.follow(tasks[-1]["id"], 0) if event.state]
        assert states[-1] in (COMPLETED, FAILED)
    else:
        assert last["error"]["code"] == -32001
    assert after.follow(seen[0].result["task"]["id"], 0)[:7] == seen
    assert after.send("echo", "hello")["status"]["state"] == COMPLETED
    assert after.end() == 0
    with closing(sqlite3.connect(tmp_path / "tasks.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"


def test_a_log_that_is_lost_as_a_whole_leaves_what_the_file_has(launch: Any, tmp_path: Path) -> None:
    first = launch()
    task = first.send("echo", "kept")
    assert first.end() == 0
    _, _, log = killed(launch, tmp_path)
    log.write_bytes(b"\xff" * log.stat().st_size)
    after = launch()
    assert after.get(task["id"]) == task
    assert after.send("echo", "hello")["status"]["state"] == COMPLETED


# A disk that fails while a server writes to it


def test_a_disk_that_becomes_read_only_is_reported_and_loses_nothing_acknowledged(
    launch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "failing"
    folder.mkdir()
    disk = ReadOnlyDisk(folder, tmp_path)
    where = ("--store", f"sqlite:///{folder / 'tasks.db'}")
    with monkeypatch.context() as patch:
        patch.setenv("DRAGOMAN_COLD_START", "1")  # a program that is forked loads no library
        for name, value in disk.environment.items():
            patch.setenv(name, value)
        server = launch(*where)
    tasks = [server.send("echo", f"number {number}") for number in range(3)]
    disk.refuse()
    for _ in range(20):
        error = server.rpc("SendMessage", server.params("echo", "lost"))["error"]
        assert (error["code"], error["message"]) == (-32000, "the store cannot take writes now: try again later")
    answer = httpx2.get(f"{server.url}/readyz", timeout=SECONDS)
    assert (answer.status_code, answer.json()["status"]) == (503, "unavailable")
    assert [server.get(task["id"]) for task in tasks] == tasks
    disk.allow()
    tasks.append(server.send("echo", "again"))
    assert httpx2.get(f"{server.url}/readyz", timeout=SECONDS).status_code == 200
    server.kill()
    output = "".join(server.output)
    assert "Traceback" not in output
    assert len([line for line in server.output if "ERROR" in line or "WARN" in line]) < 10, output
    after = launch(*where)
    assert [after.get(task["id"]) for task in tasks] == tasks
