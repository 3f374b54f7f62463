"""A server of programs is killed, or asked to stop: no program is left, and the tasks say what happened."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from faults import odd_programs as odd
from faults import program_crash as crash
from faults import program_server as at

from dragoman import Client, State

pytestmark = [pytest.mark.fault, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]


INTERRUPTED = "interrupted by a restart"


async def test_none_of_fifty_programs_outlives_a_server_that_is_killed(tmp_path: Path) -> None:
    report = await crash.kill(tmp_path, programs=50)
    print(f"all of {report.processes} processes were gone {report.seconds:.2f} s after the kill")
    assert report.ended == {(State.FAILED, INTERRUPTED): 50}


async def test_a_session_task_is_not_known_after_the_kill_but_its_task_is(tmp_path: Path, leash: Any) -> None:
    agents = {"patient": odd.PATIENT}
    with at.served(tmp_path, agents) as server:
        task = server.send(str(leash.path)).json()
        await leash.ready()
        server.kill()
    assert await leash.free() == ""
    with at.served(tmp_path, agents) as server:
        assert server.get(task["id"]).status_code == 404
        async with Client(server.url) as client:
            found = await client.get_task(task["id"])
    assert (found.state, found.error) == (State.FAILED, INTERRUPTED)


async def test_a_question_outlives_the_kill_but_the_program_that_asked_does_not(tmp_path: Path) -> None:
    agents = {"asks": odd.sh('read city; printf "How many days? "; read days; echo "$days"', input="interactive")}
    with at.served(tmp_path, agents) as server:
        async with Client(server.url) as client:
            asks: Any = await client.send("Porto")
        (program,) = map(at.Watched, server.programs)
        server.kill()
    await program.gone()
    with at.served(tmp_path, agents) as server:
        async with Client(server.url) as client:
            assert (await client.get_task(asks)).question == asks.question == "How many days?"
            answered: Any = await client.send("3", task=asks)
    assert (answered.state, answered.error) == (State.FAILED, "the program that asked has ended meanwhile")


async def test_when_the_guard_is_killed_its_programs_end_and_the_next_task_runs(tmp_path: Path, leash: Any) -> None:
    with at.served(tmp_path, {"daemon": odd.DAEMON, "cat": {"command": "cat"}}) as server:
        async with Client(f"{server.url}/agents/daemon") as client:
            task = await client.send(str(leash.path), wait=False)
            await leash.ready(2)
            guard = at.Watched(server.guard)
            guard.kill()
            await guard.gone()
            await leash.free()
            ended = await client.wait(task)
        assert (ended.state, ended.error) == (State.FAILED, "the program was ended by SIGKILL (signal 9)")
        async with Client(f"{server.url}/agents/cat") as client:
            assert (await client.send("hello")).text == "hello"


# -- asked to stop -----------------------------------------------------------------------------------------------------


async def test_a_server_that_stops_without_patience_ends_its_programs(tmp_path: Path, leash: Any) -> None:
    agents = {name: {**table, "limits": {"grace": 0.2}} for name, table in crash.AGENTS.items()}
    with at.served(tmp_path, agents, "--drain", "0") as server:
        tasks = [await crash.begin(server, name, leash) for name in agents]
        await leash.ready(crash.lines_of(agents))
        guard = at.Watched(server.guard)
        assert await asyncio.to_thread(server.end) == 0
        assert await leash.free() == ""
        await guard.gone()
    with at.served(tmp_path, agents) as server:
        ended = [await crash.outcome(server, name, task) for name, task in zip(agents, tasks, strict=True)]
    assert ended == [(State.FAILED, INTERRUPTED)] * len(agents)


async def test_a_server_that_stops_with_patience_lets_a_program_finish_whose_caller_waits(
    tmp_path: Path, leash: Any
) -> None:
    with at.served(tmp_path, {"patient": odd.PATIENT}, "--drain", "20") as server:
        async with Client(server.url) as client:
            sending = asyncio.ensure_future(client.send(str(leash.path)))
            await leash.ready()
            stopping = asyncio.ensure_future(asyncio.to_thread(server.end))
            leash.release()
            task: Any = await sending
        assert (task.state, task.text) == (State.COMPLETED, f"done: {leash.path}")
        assert await stopping == 0
        await leash.free()
