"""Two nodes on one PostgreSQL: either serves the tasks of the other, and takes them over when it dies or stops."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster.processes.caller import Caller, events_after_work_began, last_state
from cluster.processes.nodes import Node, two_nodes
from cluster.processes.records import CANCELED, COMPLETED, FAILED, WAITING, state_of, text_of

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def nodes(tmp_path: Path, postgres_url: str) -> Iterator[list[Node]]:
    with two_nodes(tmp_path, postgres_url, "--lease", "2", "--drain", "1") as nodes:
        yield nodes


async def test_either_node_serves_the_tasks_of_the_other_and_takes_them_over(nodes: list[Node]) -> None:
    first, second = (Caller(node.url) for node in nodes)
    await asyncio.gather(
        words_for_a_working_task_reach_it_and_its_stream_is_read(first, second),
        a_question_is_answered(first, second),
        a_task_is_canceled(first, second),
        a_conversation_goes_on(first, second),
    )
    await a_dead_node_loses_nothing(nodes[0], first, second)
    await asyncio.to_thread(nodes[0].launch)
    await a_node_that_stops_is_a_front_and_hands_over(nodes[1], first, second)


async def words_for_a_working_task_reach_it_and_its_stream_is_read(first: Caller, second: Caller) -> None:
    task = await first.send("listen", wait=False)
    numbers, results = [], []
    async for event in second.follow(task["id"]):
        numbers.append(event.id)
        results.append(event.result)
        if state_of(event.result) == "TASK_STATE_WORKING" and len(results) < 3:
            await second.follow_up("one", task["id"], wait=False)
            await second.follow_up("over", task["id"], wait=False)
    assert state_of(results[-1]) == COMPLETED
    assert numbers == list(range(1, len(numbers) + 1))
    assert text_of(await first.call("GetTask", task["id"])) == "n: one over"


async def a_question_is_answered(first: Caller, second: Caller) -> None:
    task = await first.send("plan")
    assert task["status"]["state"] == WAITING
    task = await second.follow_up("yes", task["id"])
    assert (task["status"]["state"], text_of(task)) == (COMPLETED, "n: yes")


async def a_task_is_canceled(first: Caller, second: Caller) -> None:
    task = await first.send("wait", ms=60_000, wait=False)
    assert (await second.call("CancelTask", task["id"]))["status"]["state"] == CANCELED
    assert (await first.call("GetTask", task["id"]))["status"]["state"] == CANCELED


async def a_conversation_goes_on(first: Caller, second: Caller) -> None:
    before = await first.send("converse")
    after = await second.send("converse", contextId=before["contextId"])
    assert (text_of(before), text_of(after)) == ("n", "n n")


async def a_dead_node_loses_nothing(node: Node, first: Caller, second: Caller) -> None:
    begun, again = await asyncio.gather(
        first.send("wait", ms=60_000, wait=False), first.send("again", ms=1000, wait=False)
    )
    followers = [asyncio.ensure_future(events_after_work_began(second, task["id"])) for task in (begun, again)]
    begins = [await asyncio.wait_for(follower, 10) for follower in followers]
    await asyncio.to_thread(node.process.kill)
    failed, completed = await asyncio.gather(*(last_state(events) for events in begins))
    assert (failed, completed) == (FAILED, COMPLETED)
    task = await second.call("GetTask", again["id"])
    assert text_of(task) == "".join(f"n.{number} " for number in range(12))


async def a_node_that_stops_is_a_front_and_hands_over(node: Node, first: Caller, second: Caller) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", node.port, timeout=10)
    assert readiness(connection)[0] == 200
    task = await second.send("again", ms=1500, wait=False)
    events = await events_after_work_began(second, task["id"])
    node.process.stop()
    status, reason, ends = await asyncio.to_thread(until_not_ready, connection)
    assert (status, reason, ends) == (503, "the server is stopping", "close")
    assert (await second.send("quick"))["status"]["state"] == COMPLETED
    *_, last = [event async for event in events]
    assert await asyncio.to_thread(node.process.wait) == 0
    assert state_of(last.result) is None
    rest = [event async for event in first.follow(task["id"], last.id)]
    assert [event.id for event in rest] == list(range(last.id + 1, last.id + 1 + len(rest)))
    assert state_of(rest[-1].result) == COMPLETED
    assert text_of(await first.call("GetTask", task["id"])) == "".join(f"n.{number} " for number in range(12))


def readiness(connection: http.client.HTTPConnection) -> tuple[int, str, str | None]:
    """What a node says about itself, and about the connection."""
    connection.request("GET", "/readyz")
    response = connection.getresponse()
    return response.status, json.loads(response.read()).get("reason", ""), response.getheader("connection")


def until_not_ready(connection: http.client.HTTPConnection) -> tuple[int, str, str | None]:
    """Ask on one connection, which stays open for as long as the node is ready."""
    while (answer := readiness(connection))[0] == 200:
        pass
    return answer
