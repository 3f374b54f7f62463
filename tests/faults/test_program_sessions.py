"""Sessions of real programs: the routes of session tasks, and two hundred at once."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from faults import odd_programs as odd
from faults import program_crowd as crowd
from faults import program_server as at

from dragoman import Client

pytestmark = [pytest.mark.fault, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]


AGENTS: dict[str, Any] = {
    "idle": {"command": "cat", "default_project_id": ""},
    "hello": odd.sh('echo "Hi there"'),
    "parting": odd.PATIENT,
    "slow": {**odd.STUBBORN, "limits": {"grace": 0.2}},
    "breaks": odd.sh("echo half of it; echo 'no more paper' >&2; exit 7"),
    "says-error": odd.sh("""echo '{"error": "out of paper"}'; exec sleep 1000""", output="jsonl"),
    "killed": odd.sh("kill -KILL $$"),
    "asks": odd.sh('printf "Which? "; read a; read b', input="interactive"),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("sessions")
    broken = folder / "broken"
    broken.touch(0o755)
    with at.served(folder, {**AGENTS, "broken": {"command": [str(broken)]}}) as server:
        broken.unlink()
        yield server
        server.until_idle()


async def ended(server: Any, task: Any, agent: str) -> Any:
    """A session task, once it has ended."""
    async with Client(f"{server.url}/agents/{agent}") as client:
        await client.wait(task["id"])
    return server.get(task["id"]).json()


def words(task: Any) -> list[str]:
    return [message["parts"][0]["text"] for message in task["messages"] if message["role"] == "agent"]


# -- session tasks -----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S3-2", "S3-4", "S3-6", "S3-20", "S3-24", "S3-42", "S3-43", "S3-44", "S3-60")
async def test_a_task_works_until_its_program_has_ended_and_has_its_answer(server: Any, leash: Any) -> None:
    task = server.send("Hello").json()  # the first agent has no project
    assert words(await ended(server, task, "hello")) == ["Hi there"]
    task = server.send(str(leash.path), "parting").json()
    assert list(task) == ["id", "state", "messages", "sessionId", "createdAt", "updatedAt"]
    assert str(UUID(task["id"])) == task["id"]
    assert task["messages"] == [{"role": "user", "parts": [{"type": "text", "text": str(leash.path)}]}]
    await leash.ready()
    assert (task["state"], server.get(task["id"]).json()["state"]) == ("working", "working")
    leash.release()
    done = await ended(server, task, "parting")
    assert (done["state"], words(done)) == ("completed", [f"done: {leash.path}"])
    assert done["sessionId"] == task["sessionId"]
    assert done["updatedAt"] >= done["createdAt"] == task["createdAt"]
    await leash.free()


@pytest.mark.requirement("S3-28", "S3-30", "S3-45")
async def test_a_program_that_works_for_too_long_fails_in_time_and_is_gone(server: Any, leash: Any) -> None:
    early = server.send("Hello", "hello", timeoutMs=1000).json()
    task = server.send(str(leash.path), "slow", timeoutMs=1000).json()
    assert task["state"] == "working"
    await leash.ready()
    failed = await ended(server, task, "slow")
    assert (failed["state"], words(failed)) == ("failed", ["Task timed out"])
    await leash.free()
    # The one that had ended before its time was up is as it was.
    early = server.get(early["id"]).json()
    assert (early["state"], words(early)) == ("completed", ["Hi there"])


@pytest.mark.requirement("S3-22", "S3-56")
@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        ("breaks", ["half of it", "the program ended with exit code 7: no more paper"]),
        ("says-error", ["out of paper"]),
        ("killed", ["the program was ended by SIGKILL (signal 9)"]),
        ("asks", ["the program asks, and cannot be answered here: Which?"]),
    ],
)
async def test_a_program_that_does_not_work_out_fails(server: Any, agent: str, expected: list[str]) -> None:
    task = await ended(server, server.send("go", agent, timeoutMs=60_000).json(), agent)
    assert task["state"] == "failed"
    assert sorted(words(task)) == sorted(expected)


@pytest.mark.requirement("S3-22")
async def test_a_program_that_cannot_be_started_has_failed_soon(server: Any) -> None:
    task = await ended(server, server.send("go", "broken").json(), "broken")
    assert task["state"] == "failed"
    assert words(task)[0].startswith("the program cannot be started: there is no `")


@pytest.mark.requirement("S3-50")
def test_impossible_session_tasks_are_refused_and_unknown_ones_not_found(tmp_path: Path, server: Any) -> None:
    assert (server.get("none").status_code, server.get("none").json()) == (404, {"error": "Task not found"})
    assert server.send("Hello", "hello", timeoutMs=999).status_code == 400
    with at.served(tmp_path, {"idle": AGENTS["idle"]}) as lonely:
        answer = lonely.send("Hello")
        assert lonely.process.poll() is None
    assert answer.status_code == 404
    assert answer.json() == {"error": "Agent with default project not found", "code": "NOT_FOUND"}


# -- many at once ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("crowd_of", "answer"), [(crowd.gather, "done: {0}"), (crowd.ask, "{0} is {0}")])
async def test_two_hundred_sessions_at_once_cost_little_are_all_answered_and_leave_nothing(
    tmp_path: Path, crowd_of: Callable[..., Awaitable[crowd.Report]], answer: str
) -> None:
    report = await crowd_of(tmp_path, sessions=200)
    print(report)
    assert report.answers == {answer.format(number): 1 for number in range(200)}
    assert report.at_once == 200
    assert (report.left, report.descriptors_left) == (0, 0)
    assert report.per_session < 200_000
