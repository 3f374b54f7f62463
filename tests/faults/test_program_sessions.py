"""Sessions of real programs: the routes of session tasks, folders, and two hundred at once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from faults import odd_programs as odd
from faults import program_crowd as crowd
from faults import program_server as at

from dragoman import Agent, Client, File, State, User
from dragoman.model.error import Unauthenticated
from dragoman.testing import served

pytestmark = [pytest.mark.fault, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]


FILES = """
mkdir -p sub/deeper .secret
case "$1" in
first)
    echo one >kept; echo one >changed; echo nested >sub/deeper/nested
    echo hidden >.hidden; echo hidden >.secret/file
    ln -s /etc/passwd passwd; ln -s kept link; ln -s /etc etc; mkfifo pipe;;
second)
    echo two, longer >changed; echo new >"a new one";;
esac
echo "$1"
"""
AGENTS: dict[str, Any] = {
    "idle": {"command": "cat", "default_project_id": ""},
    "hello": odd.sh('echo "Hi there"'),
    "parting": odd.PATIENT,
    "slow": {**odd.STUBBORN, "limits": {"grace": 0.2}},
    "breaks": odd.sh("echo half of it; echo 'no more paper' >&2; exit 7"),
    "says-error": odd.sh("""echo '{"error": "out of paper"}'; exec sleep 1000""", output="jsonl"),
    "killed": odd.sh("kill -KILL $$"),
    "asks": odd.sh('printf "Which? "; read a; read b', input="interactive"),
    "files": odd.sh(FILES, "{prompt}"),
    "looks": odd.sh('cat >/dev/null; echo "$DRAGOMAN_FILES"; cat -- inbox/*.txt; ls -A; ls -A inbox'),
    "notes": odd.sh("cat >>notes; cat notes; pwd >&2; basename $PWD"),
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


@pytest.fixture
def leash(tmp_path: Path) -> Iterator[Any]:
    leash = at.Leash(tmp_path)
    yield leash
    leash.close()


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
def test_what_nobody_can_do_is_refused_and_what_nobody_knows_is_not_found(tmp_path: Path, server: Any) -> None:
    assert (server.get("none").status_code, server.get("none").json()) == (404, {"error": "Task not found"})
    assert server.send("Hello", "hello", timeoutMs=999).status_code == 400
    with at.served(tmp_path, {"idle": AGENTS["idle"]}) as lonely:
        answer = lonely.send("Hello")
        assert lonely.process.poll() is None
    assert answer.status_code == 404
    assert answer.json() == {"error": "Agent with default project not found", "code": "NOT_FOUND"}


# -- folders -----------------------------------------------------------------------------------------------------------


def texts(task: Any) -> dict[str | None, str]:
    """The files of a task, by their names."""
    return {part.filename: part.raw.decode() for one in task.artifacts for part in one.parts if part.raw is not None}


async def test_files_that_are_new_or_changed_are_artifacts_and_nothing_else_is(server: Any) -> None:
    async with Client(f"{server.url}/agents/files") as client:
        first = await client.send("first")
        assert (first.state, first.artifacts[0].text) == (State.COMPLETED, "first")
        assert texts(first) == {"changed": "one\n", "kept": "one\n", "sub/deeper/nested": "nested\n"}
        second = await client.send("second", context=first)
        assert texts(second) == {"changed": "two, longer\n", "a new one": "new\n"}
        third = await client.send("third", context=first)
        assert (third.state, texts(third)) == (State.COMPLETED, {})


async def test_the_files_of_a_message_lie_in_the_inbox_under_harmless_names(server: Any) -> None:
    async with Client(f"{server.url}/agents/looks") as client:
        files = [File(b"one\n", name="../../a.txt"), File("zwei ü\n".encode(), name="b.txt")]
        task = await client.send("look", files=files)
    assert task.artifacts[0].text.split("\n") == [
        *("inbox/a.txt", "inbox/b.txt", "one", "zwei ü"),
        *("inbox", "a.txt", "b.txt"),
    ]
    # They are what it was given, and not what it has made.
    assert texts(task) == {}


async def whoever(request: Any) -> User:
    name = request.headers.get("authorization", "").removeprefix("Bearer ")
    if not name:
        raise Unauthenticated("say who you are")
    return User(name)


async def test_messages_of_a_conversation_share_a_folder_and_callers_never_do(tmp_path: Path) -> None:
    agent = Agent.from_command(AGENTS["notes"]["command"])

    async def notes(url: str, user: str, text: str, context: str) -> tuple[str, str]:
        async with Client(url, auth=user) as client:
            lines = (await client.send(text, context=context)).artifacts[0].text.splitlines()
        return " ".join(lines[:-1]), lines[-1]

    with served(agent, auth=whoever, store=f"sqlite:///{tmp_path}/tasks.db") as url:
        first = await notes(url, "ada", "one\n", "c")
        second = await notes(url, "ada", "two\n", "c")
        other = await notes(url, "ada", "three\n", "d")
        foreign = await notes(url, "bob", "four\n", "c")
    assert [text for text, _ in (first, second, other, foreign)] == ["one", "one two", "three", "four"]
    assert first[1] == second[1]
    assert len({first[1], other[1], foreign[1]}) == 3


# -- many at once ------------------------------------------------------------------------------------------------------


async def test_two_hundred_sessions_at_once_are_all_answered_and_leave_nothing(tmp_path: Path) -> None:
    report = await crowd.gather(tmp_path, sessions=200)
    print(report)
    assert report.answers == {f"done: {number}": 1 for number in range(200)}
    assert report.at_once == 200
    assert report.left == 0
    assert report.descriptors_left == 0
    assert report.per_session < 200_000


async def test_two_hundred_programs_that_wait_for_an_answer_cost_little_and_all_get_it(tmp_path: Path) -> None:
    report = await crowd.ask(tmp_path, sessions=200)
    print(report)
    assert report.answers == {f"{number} is {number}": 1 for number in range(200)}
    assert report.at_once == 200
    assert (report.left, report.descriptors_left) == (0, 0)
    assert report.per_session < 200_000
