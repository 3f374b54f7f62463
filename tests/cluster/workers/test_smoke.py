"""Two workers on one port: both serve, a dead one is replaced and loses nothing, and they end with their supervisor."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cluster.processes.caller import Caller, events_after_work_began, last_state
from cluster.processes.http import Lost, Refused
from cluster.processes.nodes import effects_of
from cluster.processes.records import COMPLETED, FINAL, text_of
from cluster.processes.tables import Tables
from cluster.workers.supervised import Supervised
from support.processes import until_ended

from dragoman.server.listen.port import SharedPort

pytestmark = pytest.mark.timeout(60)
# So long that a test would not end: what is taken over here is taken over because the process has ended.
LEASE = "300"


@pytest.fixture
async def server(tmp_path: Path, postgres_url: str) -> AsyncIterator[Supervised]:
    server = Supervised(tmp_path, postgres_url, ["--lease", LEASE])
    await asyncio.to_thread(server.launch)
    yield server
    await asyncio.to_thread(server.close)
    print(*server.process.output)


@pytest.fixture
async def tables(postgres_url: str) -> AsyncIterator[Tables]:
    async with Tables(postgres_url) as tables:
        yield tables


def caller_of(server: Supervised) -> Caller:
    """Somebody who sends a message once more if its connection is cut."""
    return Caller(server.url, repeats=1)


async def ended(server: Supervised, task_id: str) -> dict[str, Any]:
    """Follow a task to its end, over as many connections as it takes."""
    caller = caller_of(server)
    while True:
        try:
            await last_state(caller.follow(task_id))
            task = await caller.call("GetTask", task_id)
        except Lost:
            continue
        except Refused:  # of an ended task, there is nothing to subscribe to
            task = await caller.call("GetTask", task_id)
        if task["status"]["state"] in FINAL:
            return task


async def begun(server: Supervised, skill: str, nonce: str, *, ms: int) -> tuple[str, int]:
    """Begin something, and wait until it is at work. Gives the task, and the process that works on it."""
    task = await caller_of(server).send(skill, nonce, ms=ms, wait=False)
    await events_after_work_began(caller_of(server), task["id"])
    return task["id"], next(line["pid"] for line in effects_of(server.folder) if line["nonce"] == nonce)


async def test_workers_share_a_port_are_replaced_and_end_with_their_supervisor(
    server: Supervised, tables: Tables
) -> None:
    await both_serve_and_one_of_them_has_introduced_all(server)
    cookie = all_take_the_token_of_the_console(server, None)
    await a_killed_worker_is_started_again_and_its_tasks_go_on(server, tables)
    await a_hangup_restarts_them_one_after_the_other(server, tables)
    all_take_the_token_of_the_console(server, cookie)
    await a_killed_supervisor_leaves_no_process_and_no_port_behind(server)


async def both_serve_and_one_of_them_has_introduced_all(server: Supervised) -> None:
    lines = server.process.output
    assert sum(line.startswith("serving ") for line in lines) == 1
    assert any(line.split() == f"workers 2, the nodes {server.names[0]} to {server.names[1]}".split() for line in lines)
    await asyncio.gather(*(caller_of(server).send("quick", f"q{number}") for number in range(20)))
    assert {line["pid"] for line in effects_of(server.folder)} == set(server.worker_pids())


def all_take_the_token_of_the_console(server: Supervised, cookie: str | None) -> str:
    """Open the console, or go on with the cookie of an open page, at whichever worker; gives the cookie."""
    url = next(line.split()[1] for line in server.process.output if line.split()[:1] == ["console"])
    if cookie is None:
        page = httpx2.get(url, headers={"Accept": "text/html"}, follow_redirects=False, trust_env=False, verify=False)
        cookie = page.headers["set-cookie"].partition(";")[0]
    for _ in range(20):  # each with a connection of its own
        answer = httpx2.get(
            f"{server.url}/console/api/session", headers={"Cookie": cookie}, trust_env=False, verify=False
        )
        assert answer.json()["token"]
    return cookie


async def a_killed_worker_is_started_again_and_its_tasks_go_on(server: Supervised, tables: Tables) -> None:
    before, pids = await server.until_workers(tables), server.worker_pids()
    task_id, pid = await begun(server, "again", "a", ms=1000)
    os.kill(pid, signal.SIGKILL)
    assert (await caller_of(server).send("quick", "meanwhile"))["status"]["state"] == COMPLETED
    task = await ended(server, task_id)
    assert (task["status"]["state"], text_of(task)) == (COMPLETED, "".join(f"a.{number} " for number in range(12)))
    number = pids.index(pid) + 1
    output = "".join(server.process.output)
    assert output.count("was killed by SIGKILL and is started again") == 1
    assert f"worker {number} was killed" in output
    assert f"the node {server.name}/{number} has ended: its tasks are taken over" in output
    survivor = server.names[2 - number]
    assert (await tables.live_nodes())[survivor] == before[survivor]


async def a_hangup_restarts_them_one_after_the_other(server: Supervised, tables: Tables) -> None:
    before = await server.until_workers(tables)
    os.kill(server.supervisor, signal.SIGHUP)
    restarted = asyncio.ensure_future(server.until_workers(tables, before.values()))
    number = 0
    while not restarted.done():
        task = await caller_of(server).send("quick", f"h{number}")
        assert task["status"]["state"] == COMPLETED
        number += 1
    await restarted
    assert number > 1


async def a_killed_supervisor_leaves_no_process_and_no_port_behind(server: Supervised) -> None:
    workers = server.worker_pids()
    assert len(workers) == 2
    task_id, pid = await begun(server, "talk", "t", ms=500)
    assert pid in workers
    os.kill(server.supervisor, signal.SIGKILL)
    await asyncio.to_thread(lambda: SharedPort("127.0.0.1", server.port).close())
    for worker in workers:
        await asyncio.to_thread(until_ended, worker)
    ends = [line for line in effects_of(server.folder) if line["nonce"] == "t" and line["kind"] == "end"]
    assert [line["task"] for line in ends] == [task_id]
    assert not server.process.tracebacks
