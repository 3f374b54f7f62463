"""A server is killed while its disk takes its time: what it has begun happens once, or is said to be in doubt.

tests/soak kills one a hundred times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from faults import slow_disk

pytestmark = pytest.mark.fault

NUMBER = 5
COMPLETED, FAILED = "TASK_STATE_COMPLETED", "TASK_STATE_FAILED"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Any]:
    made = slow_disk.SlowDisk(tmp_path)
    yield made
    made.close()


def message(skill: str, nonce: str, ms: int = 0) -> dict[str, Any]:
    parts = [{"data": {"nonce": nonce, "ms": ms}}]
    return {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": parts, "metadata": {"skillId": skill}}


def send(disk: Any, message: dict[str, Any], **configuration: Any) -> dict[str, Any]:
    body = {"message": message, "configuration": configuration}
    headers = {"A2A-Version": "1.0"}
    answer = httpx2.post(f"{disk.url}/message:send", json=body, headers=headers, timeout=slow_disk.SECONDS)
    return answer.raise_for_status().json()["task"]


def wait_for(disk: Any, kind: str) -> None:
    while not any(line["kind"] == kind for line in disk.lines()):
        pass


@pytest.mark.parametrize("skill", ["work", "work_in_thread", "talk"])
def test_a_message_killed_before_its_commit_runs_once(disk: Any, skill: str) -> None:
    messages = [message(skill, f"n{number}") for number in range(NUMBER)]
    before = disk.launch()

    def send_in_vain(each: dict[str, Any]) -> None:
        with suppress(httpx2.HTTPError):  # the server is dead
            send(disk, each)

    with ThreadPoolExecutor(NUMBER) as callers:
        with disk.stuck() as caught:
            vain = [callers.submit(send_in_vain, each) for each in messages]
            caught()
            # Whoever would begin before the disk has said yes has begun by now.
            for _ in range(10):
                httpx2.get(f"{disk.url}/healthz").raise_for_status()
            before.kill()
        for each in vain:
            each.result()
    disk.launch()
    ended = [send(disk, each) for each in messages]  # as a client does that tries again
    runs = Counter(line["nonce"] for line in disk.lines() if line["kind"] == "run")
    assert {nonce: number for nonce, number in runs.items() if number > 1} == {}
    for number, task in enumerate(ended):
        assert task["status"]["state"] in (COMPLETED, FAILED)
        assert (task["status"]["state"] == COMPLETED) == (runs[f"n{number}"] == 1)


@pytest.mark.parametrize("skill", ["pay", "again"])
def test_an_effect_that_a_kill_interrupted_is_reported_as_in_doubt(disk: Any, skill: str) -> None:
    before = disk.launch()
    interrupted = message(skill, "n1", ms=2 * slow_disk.SECONDS * 1000)  # it is killed in the middle of the effect
    send(disk, interrupted, returnImmediately=True)
    wait_for(disk, "begin")
    before.kill()
    disk.launch()
    task = send(disk, interrupted)
    assert task["status"]["state"] == FAILED
    assert "`debit` may or may not have happened" in task["status"]["message"]["parts"][0]["text"]
    assert Counter(line["kind"] for line in disk.lines())["begin"] == 1
