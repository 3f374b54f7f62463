"""A node that is suspended for longer than its lease, and goes on as if no time had passed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster.processes.caller import Caller, events_after_work_began
from cluster.processes.http import Lost
from cluster.processes.nodes import Node, effects_of, two_nodes
from cluster.processes.records import COMPLETED, FAILED, state_of, text_of
from cluster.processes.tables import Tables

pytestmark = pytest.mark.timeout(90)


@pytest.fixture
def nodes(tmp_path: Path, postgres_url: str) -> Iterator[list[Node]]:
    with two_nodes(tmp_path, postgres_url, "--lease", "2") as nodes:
        yield nodes


async def test_a_suspended_node_writes_nothing_more_and_goes_on_under_another_identity(
    nodes: list[Node], tmp_path: Path, postgres_url: str
) -> None:
    stopped, first, second = nodes[0].process, *(Caller(node.url) for node in nodes)
    async with Tables(postgres_url) as tables:
        before = (await tables.live_nodes())["node1"]
        talk, again = await asyncio.gather(
            first.send("talk", ms=3000, wait=False), first.send("again", ms=3000, wait=False)
        )
        streams = [await events_after_work_began(first, task["id"]) for task in (talk, again)]
        stopped.pause()
        try:
            # The other declares it dead, and ends or repeats what it ran.
            await tables.until_dead(before)
            await tables.until_settled()
            ended = [await second.call("GetTask", task["id"]) for task in (talk, again)]
        finally:
            stopped.resume()
        assert [task["status"]["state"] for task in ended] == [FAILED, COMPLETED]
        assert text_of(ended[1]) == "".join(f"n.{number} " for number in range(12))

        # Its streams end as the journal does, and its own runs have left no trace there.
        for events, state in zip(streams, (FAILED, COMPLETED), strict=True):
            *_, last = [event async for event in events]
            assert state_of(last.result) == state

        async def joined() -> bool:
            return (await tables.live_nodes()).get("node1", before) != before

        async def takes_messages() -> bool:
            try:
                return (await first.send("quick"))["status"]["state"] == COMPLETED
            except Lost:  # its lease is not certain yet: "try again"
                return False

        await tables.until("the node has another identity", joined)
        await tables.until("the node takes messages", takes_messages)
        for caller in (first, second):
            assert [await caller.call("GetTask", task["id"]) for task in (talk, again)] == ended
        assert not await tables.owned_by(before)
    effects = effects_of(tmp_path)
    assert [effect["pid"] for effect in effects if effect["key"] == "debit"] == [nodes[1].process.pid] * 2
    assert not [effect for effect in effects if effect["kind"] == "end" and effect["task"] == talk["id"]]
    assert not any(node.process.tracebacks for node in nodes)
