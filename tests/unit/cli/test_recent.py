"""The file with the tasks that a user's commands have sent to last."""

from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path

import pytest

from dragoman.cli.remote.recent import RecentTasks

URL = "http://127.0.0.1:8080"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "state" / "recent.json"


def ids(recent: RecentTasks, url: str = URL) -> list[str]:
    return [each.task_id for each in recent.at(url)]


def test_the_newest_task_of_an_address_is_the_first(path: Path):
    recent = RecentTasks(path)
    for task in ("one", "two", "one", "three"):
        assert recent.add(URL, task, "c")
    assert recent.add("http://other", "elsewhere", "")
    assert ids(RecentTasks(path)) == ["three", "one", "two"]
    assert recent.addresses() == ["http://other", URL]
    assert ids(recent, "http://nobody") == []


def test_the_ids_are_kept_where_only_the_user_reads_them(path: Path):
    assert RecentTasks(path).add("https://me:secret@Agents.example:443/trip/?key=hidden", "task", "context")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    content = json.loads(path.read_text())
    ((address, ((task, context, _),)),) = content["tasks"].items()
    assert (address, task, context) == ("https://agents.example/trip", "task", "context")
    assert ids(RecentTasks(path), "https://agents.example/trip") == ["task"]


def test_an_address_has_several_spellings(path: Path):
    recent = RecentTasks(path)
    recent.add("http://localhost:8080", "task", "")
    assert ids(recent, "http://127.0.0.1:8080/") == ["task"]
    assert ids(recent, "http://127.0.0.1:80801") == []
    recent.add("http://agents.example:80", "task", "")
    assert ids(recent, "http://Agents.example") == ["task"]
    assert recent.addresses() == ["http://agents.example", "http://127.0.0.1:8080"]


def test_the_number_of_recent_tasks_is_bounded(path: Path):
    recent = RecentTasks(path)
    for number in range(40):
        recent.add(URL, f"task-{number}", "")
        recent.add(f"http://agent-{number}", "task", "")
    assert ids(recent)[0] == "task-39"
    assert len(ids(recent)) == 20
    assert len(recent.addresses()) == 30
    assert not recent.add(URL, "x" * 10_000, "")
    assert not recent.add(URL, "", "")


@pytest.mark.parametrize("content", ["", "[]", '{"tasks": 3}', '{"tasks": {"http://h": [["a"]]}}', "\x00", "{"])
def test_a_broken_file_is_empty_and_is_written_anew(path: Path, content: str):
    path.parent.mkdir(parents=True)
    path.write_text(content)
    recent = RecentTasks(path)
    assert recent.at(URL) == []
    assert recent.add(URL, "one", "c")
    assert ids(recent) == ["one"]


def test_a_folder_that_cannot_be_written_is_no_error():
    recent = RecentTasks(Path(os.devnull) / "recent.json")
    assert not recent.add(URL, "one", "c")
    assert recent.at(URL) == []


def test_commands_at_the_same_time_lose_nothing(path: Path):
    def add(number: int) -> None:
        for task in range(5):
            RecentTasks(path).add(f"http://agent-{number}", f"task-{task}", "")

    threads = [threading.Thread(target=add, args=[number]) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(6):
        assert ids(RecentTasks(path), f"http://agent-{number}") == [f"task-{task}" for task in range(4, -1, -1)]
    assert {each.name for each in path.parent.iterdir()} == {"recent.json", "recent.lock"}
