"""One file, one server, by whatever name; and a file that goes away while it is served."""

from __future__ import annotations

import shutil
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.command import dragoman, inherited_environment

from dragoman.stores.sqlite.file import FileLock

pytestmark = [
    pytest.mark.fault,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux has locks that hold under every name of a file"),
]

COMPLETED, FAILED = "TASK_STATE_COMPLETED", "TASK_STATE_FAILED"
SERVER_ERROR = -32000
SECONDS = 30


def readiness(server: Any) -> tuple[int, str]:
    answer = httpx2.get(f"{server.url}/readyz", timeout=SECONDS)
    return answer.status_code, answer.json().get("reason", "")


def refusal(server: Any) -> str:
    """What a caller learns whose message is not accepted."""
    error = server.rpc("SendMessage", server.params("echo", "hello"))["error"]
    assert error["code"] == SERVER_ERROR
    return error["message"]


def is_whole(path: Path) -> bool:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"


# Two servers


def symlink(folder: Path) -> Path:
    (folder / "link.db").symlink_to("tasks.db")
    return folder / "link.db"


def hard_link(folder: Path) -> Path:
    (folder / "link.db").hardlink_to(folder / "tasks.db")
    return folder / "link.db"


def linked_folder(folder: Path) -> Path:
    (folder / "linked").symlink_to(folder)
    return folder / "linked" / "tasks.db"


def without_its_lock(folder: Path) -> Path:
    (folder / "tasks.db.lock").unlink()
    return folder / "tasks.db"


@pytest.mark.parametrize("name", [symlink, hard_link, linked_folder, without_its_lock])
def test_a_second_server_is_refused_by_every_name_of_the_file(
    launch: Any, tmp_path: Path, name: Callable[[Path], Path]
) -> None:
    first = launch()
    tasks = [first.send("echo", "before")]
    second = launch("--store", f"sqlite:///{name(tmp_path)}", ready=False)
    assert second.wait() == 2
    assert f"is in use by pid {first.pid}: use another --store" in "".join(second.output)
    tasks.append(first.send("echo", "after"))
    assert readiness(first)[0] == 200
    first.kill()
    after = launch()
    assert [after.get(task["id"]) for task in tasks] == tasks


def test_a_lock_file_that_was_removed_is_there_again_after_the_next_write(launch: Any, tmp_path: Path) -> None:
    server = launch()
    (tmp_path / "tasks.db.lock").unlink()
    assert server.send("echo", "hello")["status"]["state"] == COMPLETED
    assert (tmp_path / "tasks.db.lock").read_text() == str(server.pid)
    server.kill()
    assert "tasks.db.lock was removed while the server was running" in "".join(server.output)


def test_a_server_whose_lock_another_one_took_writes_nothing_more(launch: Any, tmp_path: Path) -> None:
    server = launch()
    task = server.send("echo", "before")
    (tmp_path / "tasks.db.lock").unlink()
    other = FileLock(tmp_path / "tasks.db.lock")
    other.acquire("tasks.db")  # as a server of an older version does, which knows no other lock
    for _ in range(2):
        assert "the lock of the store, tasks.db.lock, was removed and another server may have it" in refusal(server)
        other.release()  # it may have written meanwhile
    assert readiness(server)[0] == 503
    assert server.get(task["id"]) == task


def test_writes_of_a_killed_server_are_found_by_the_other_name_of_its_file(launch: Any, tmp_path: Path) -> None:
    before = launch()
    tasks = [before.send("echo", str(number)) for number in range(5)]
    before.kill()
    assert (tmp_path / "tasks.db-wal").stat().st_size  # what is in there belongs to that name
    after = launch("--store", f"sqlite:///{hard_link(tmp_path)}")
    assert [after.get(task["id"]) for task in tasks] == tasks
    tasks.append(after.send("echo", "more"))
    after.kill()
    again = launch()
    assert [again.get(task["id"]) for task in tasks] == tasks
    assert again.end() == 0
    assert is_whole(tmp_path / "tasks.db")


@pytest.mark.parametrize("name", [symlink, hard_link])
def test_other_programs_write_beside_the_server_by_every_name(
    launch: Any, tmp_path: Path, name: Callable[[Path], Path]
) -> None:
    server = launch()
    task = server.send("echo", "before")
    store = f"sqlite:///{name(tmp_path)}"
    for command in (["users", "add", "ada", "--no-password", "--store", store], ["push", "retry", "--store", store]):
        done = dragoman(tmp_path, *command, environment=inherited_environment())
        assert done.returncode == 0, done.stderr
    assert not [file.name for file in tmp_path.glob("link.db?*")]  # neither a lock nor a log of its own
    later = server.send("echo", "after")
    server.kill()
    after = launch()
    assert [after.get(one["id"]) for one in (task, later)] == [task, later]
    assert after.end() == 0
    assert is_whole(tmp_path / "tasks.db")
    with closing(sqlite3.connect(tmp_path / "tasks.db")) as connection:
        assert connection.execute("SELECT name FROM users").fetchall() == [("ada",)]


# The file goes away


def delete(path: Path) -> None:
    path.unlink()


def move(path: Path) -> None:
    path.rename(path.with_name("moved.db"))


def replace(path: Path) -> None:
    shutil.copy(path, path.with_name("copy.db"))
    path.with_name("copy.db").replace(path)


def move_its_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("moved"))


@pytest.mark.parametrize("harm", [delete, move, replace, move_its_folder])
def test_nothing_is_acknowledged_into_a_file_that_is_not_there(
    launch: Any, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    (tmp_path / "data").mkdir()
    path = tmp_path / "data" / "tasks.db"
    server = launch("--store", f"sqlite:///{path}")
    task = server.send("echo", "before")
    harm(path)
    reason = "the file of the store, tasks.db, was moved, deleted or replaced: put it back"
    assert refusal(server).startswith(reason)
    message = {**server.params("echo", "hello"), "configuration": {"returnImmediately": True}}
    answer = httpx2.post(f"{server.url}/message:send", json=message, headers={"A2A-Version": "1.0"}, timeout=SECONDS)
    assert (answer.status_code, reason in answer.text) == (503, True)
    streamed = server.post("SendStreamingMessage", server.params("echo", "hello"), **{"A2A-Version": "1.0"})
    assert reason in streamed.text
    status, says = readiness(server)
    assert (status, says.startswith(reason)) == (503, True)
    # What was acknowledged can be read for as long as this process lives, and the log says what has happened.
    assert server.get(task["id"]) == task
    server.stop()
    server.wait()
    output = "".join(server.output)
    assert f"nothing is written into {path} any more" in output
    assert "Traceback" not in output


def test_readiness_tells_of_a_file_that_is_not_there_before_anybody_writes(launch: Any, tmp_path: Path) -> None:
    server = launch()
    (tmp_path / "tasks.db").unlink()
    assert readiness(server)[0] == 503


def test_a_file_that_is_put_back_is_written_again(launch: Any, tmp_path: Path) -> None:
    server = launch()
    task = server.send("echo", "before")
    begun = server.begin("hang")
    move(tmp_path / "tasks.db")
    refusal(server)
    (tmp_path / "moved.db").rename(tmp_path / "tasks.db")
    later = server.send("echo", "after")
    assert readiness(server)[0] == 200
    server.kill()
    after = launch()
    assert [after.get(one["id"]) for one in (task, later)] == [task, later]
    assert after.get(begun["id"])["status"]["state"] == FAILED


def test_a_file_that_was_moved_has_everything_that_was_acknowledged(launch: Any, tmp_path: Path) -> None:
    server = launch()
    tasks = [server.send("echo", str(number)) for number in range(5)]
    move(tmp_path / "tasks.db")  # and not its log
    refusal(server)
    server.kill()
    after = launch("--store", f"sqlite:///{tmp_path / 'moved.db'}")
    assert [after.get(task["id"]) for task in tasks] == tasks


@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
def test_writes_of_a_deleted_log_are_in_the_file_and_no_more_are_acknowledged(
    launch: Any, tmp_path: Path, suffix: str
) -> None:
    server = launch()
    tasks = [server.send("echo", str(number)) for number in range(5)]
    (tmp_path / f"tasks.db{suffix}").unlink()
    assert refusal(server) == f"the log of the store, tasks.db{suffix}, was deleted or replaced: restart the server"
    assert readiness(server)[0] == 503
    server.kill()
    after = launch()
    assert [after.get(task["id"]) for task in tasks] == tasks
    assert after.send("echo", "hello")["status"]["state"] == COMPLETED
