"""Real programs behind a real server: what they answer, how they fail, how they are ended, and what they may use."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from faults import odd_programs as odd
from faults import program_server as at

from dragoman import Client, State

pytestmark = [pytest.mark.fault, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]


sh, python = odd.sh, odd.python

BRIEF = {"grace": 0.2}
MB = 1_000_000
AGENTS: dict[str, Any] = {
    "cat": {"command": "cat"},
    # That asks.
    "interpreter": {"command": [sys.executable, "-i", "-q"], "input": "interactive", "limits": {"quiet": 0.1}},
    # That fail.
    "exits": sh("cat >/dev/null; seq 1 5000 >&2; echo 'the last word' >&2; exit 3"),
    "deaf": sh("exec 0<&-; echo fine"),
    # That are hard to end.
    "stubborn": {**odd.STUBBORN, "limits": BRIEF},
    "family": {**odd.FAMILY, "limits": BRIEF},
    "daemon": {**odd.DAEMON, "limits": BRIEF},
    "leaves": odd.LEAVES,
    "leaves-daemon": odd.LEAVES_DAEMON,
    # That write a lot.
    "unlimited": {**odd.WRITES, "limits": {"output": 0}},
    # That use a lot.
    "computes": sh("while :; do :; done", limits={"cpu": 1}),
    "remembers": python("x = bytearray(400_000_000)", limits={"memory": 200 * MB}),
    "opens": python("import os\nfiles = [os.dup(0) for _ in range(100)]", limits={"files": 20}),
    "fills": sh("exec head -c 200000 /dev/zero > large", limits={"file_size": 100_000}),
    "babbles": sh("while :; do echo word; done", limits={"output": 1000}),
    "lasts": {**odd.STUBBORN, "limits": {**BRIEF, "time": 0.3}},
    "broods": {**odd.STUBBORN, "limits": {**BRIEF, "inactivity": 0.3}},
}
# Programs that cannot be started, by what lies in their place.
BROKEN = ("vanished", "forbidden", "shapeless")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("programs")
    for name in BROKEN:
        (folder / name).write_bytes(b"\0no program\n")
        (folder / name).chmod(0o755)
    broken = {name: {"command": [str(folder / name)]} for name in BROKEN}
    with at.served(folder, {**AGENTS, **broken}) as server:
        (folder / "vanished").unlink()
        (folder / "forbidden").chmod(0o644)
        yield server
        server.until_idle()


async def run(server: Any, agent: str, text: str = "go", **options: Any) -> Any:
    async with Client(f"{server.url}/agents/{agent}") as client:
        return await client.send(text, **options)


# -- that answer -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["hello", "añ漢😀 " * 400_000 + "end", "{prompt} $HOME `id`\n\n  two\tlines"])
async def test_cat_gives_back_what_it_is_sent(server: Any, text: str) -> None:
    task = await run(server, "cat", text)
    assert task.state is State.COMPLETED
    assert task.text == text


async def test_an_interpreter_keeps_its_state_until_it_is_left(server: Any) -> None:
    task = await run(server, "interpreter", "x = 6")
    assert (task.state, ">>>" in task.question) == (State.INPUT_REQUIRED, True)
    task = await run(server, "interpreter", "x * 7", task=task)
    assert (task.state, task.text) == (State.INPUT_REQUIRED, "42")
    # A new task of the conversation talks to the same program, one of another conversation does not.
    other = await run(server, "interpreter", "x + 1", context=task)
    assert other.text == "7"
    stranger = await run(server, "interpreter", "'x' in dir()")
    assert stranger.text == "False"
    for each in (other, stranger):
        ended = await run(server, "interpreter", "exit()", task=each)
        assert ended.state is State.COMPLETED


async def test_a_program_that_does_not_read_its_prompt_is_not_harmed_by_it(server: Any) -> None:
    task = await run(server, "deaf", "x" * 5 * MB)
    assert (task.state, task.text) == (State.COMPLETED, "fine")


# -- that fail ---------------------------------------------------------------------------------------------------------


async def test_a_program_that_exits_with_a_code_fails_with_it_and_its_last_words(server: Any) -> None:
    task = await run(server, "exits")
    assert task.state is State.FAILED
    assert task.error.startswith("the program ended with exit code 3: ")
    assert task.error.endswith("4999\n5000\nthe last word")
    assert len(task.error) < 2100


@pytest.mark.parametrize(
    ("agent", "why"),
    [
        ("vanished", "there is no `{}`"),
        ("forbidden", "`{}` may not be run"),
        ("shapeless", "`{}` is no program that this system can run"),
    ],
)
async def test_a_program_that_cannot_be_started_fails_with_the_reason(server: Any, agent: str, why: str) -> None:
    task = await run(server, agent)
    path = Path(server.folder, agent)
    assert (task.state, task.error) == (State.FAILED, "the program cannot be started: " + why.format(path))


def test_a_server_does_not_start_without_its_program(tmp_path: Path) -> None:
    server = at.ProgramServer(tmp_path, {"nobody": {"command": "/nobody --here"}})
    assert server.wait() == 2
    assert "the program cannot be started: there is no `/nobody`" in "".join(server.output)


# -- that are ended ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("agent", "lines"), [("stubborn", 1), ("family", 1), ("daemon", 2)])
async def test_of_a_canceled_program_nothing_is_left(server: Any, leash: Any, agent: str, lines: int) -> None:
    async with Client(f"{server.url}/agents/{agent}") as client:
        task = await client.send(str(leash.path), wait=False)
        await leash.ready(lines)
        assert (await client.cancel_task(task)).state is State.CANCELED
        await leash.free()


@pytest.mark.parametrize(("agent", "lines"), [("leaves", 1), ("leaves-daemon", 2)])
async def test_of_what_a_program_leaves_behind_nothing_is_left(server: Any, leash: Any, agent: str, lines: int) -> None:
    task = await run(server, agent, str(leash.path))
    assert (task.state, task.text) == (State.COMPLETED, "done")
    await leash.ready(lines)
    await leash.free()


# -- that write a lot --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("output", ["text", "jsonl"])
async def test_of_a_gigabyte_the_server_takes_its_limit_and_no_more(tmp_path: Path, leash: Any, output: str) -> None:
    # In a server of its own, which has not had memory for anything else.
    with at.served(tmp_path, {"gigabyte": {**odd.WRITES, "output": output}, "cat": AGENTS["cat"]}) as server:
        assert (await run(server, "cat", "hello")).text == "hello"
        before = at.forget_peak(server.pid)
        async with Client(f"{server.url}/agents/gigabyte") as client:
            task = await client.wait(await client.send(f"{leash.path} 1000", wait=False))
        grown = at.memory(server.pid, "VmHWM") - before
        assert await leash.free() == ""
    print(f"a gigabyte of {output}: the server grew by {grown / MB:.0f} MB")
    assert (task.state, task.error) == (State.FAILED, "the program wrote more than 10 MB to its standard output")
    # The 10 MB that are kept are there several times while the task ends; whatever else was written never is.
    assert grown < 200 * MB


async def test_a_reader_who_takes_its_time_gets_all_of_an_unlimited_output(server: Any, leash: Any) -> None:
    async with Client(f"{server.url}/agents/unlimited") as client:
        received: list[str] = []
        async for event in client.stream(f"{leash.path} 20"):
            if not received:
                # It has been written before more of it is read.
                assert await leash.ready() == ["written"]
            received.append(event.text)
    assert "".join(received) == "x" * (20 << 20)


# -- that use a lot ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("agent", "begins", "ends"),
    [
        ("computes", "the program used more than 1 s of CPU time", ""),
        ("remembers", "the program ended with exit code 1: Traceback", "MemoryError"),
        ("opens", "the program ended with exit code 1: Traceback", "Too many open files"),
        ("fills", "the program wrote a file of more than 100 KB", ""),
        ("babbles", "the program wrote more than 1 KB to its standard output", ""),
    ],
)
async def test_a_program_that_uses_too_much_fails(server: Any, agent: str, begins: str, ends: str) -> None:
    task = await run(server, agent)
    assert task.state is State.FAILED
    assert task.error.startswith(begins)
    assert task.error.endswith(ends)


@pytest.mark.parametrize(
    ("agent", "why"),
    [("lasts", "the program ran longer than 0.3 s"), ("broods", "the program said nothing for 0.3 s")],
)
async def test_a_program_that_takes_too_long_fails_and_is_gone(server: Any, leash: Any, agent: str, why: str) -> None:
    task = await run(server, agent, str(leash.path))
    assert (task.state, task.error) == (State.FAILED, why)
    await leash.free()
