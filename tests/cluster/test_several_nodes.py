"""What several nodes do together, scene by scene, in virtual time. The end of each scene checks all promises."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import pytest
from cluster.link import Weather
from cluster.machine import Cluster
from cluster.world import START

from dragoman.model.state import State
from dragoman.stores.postgres.lease import NodeLease


@contextmanager
def scene(nodes: int = 3, seed: int = 1) -> Iterator[Cluster]:
    """A cluster without faults of its own, which is checked at the end."""
    cluster = Cluster(seed, nodes=nodes, storm=0)
    try:
        yield cluster
        cluster.finish()
    finally:
        cluster.close()


def state(cluster: Cluster, task_id: str | None) -> State | None:
    """The state of a task in the database."""
    return cluster._state(task_id or "")


@pytest.mark.parametrize("script", ["once ask chunk", "reply turn", "once ask ask", "once wait"])
def test_the_same_message_to_two_nodes_at_once_is_accepted_once(script: str) -> None:
    for seed in range(5):
        with scene(2, seed) as cluster:
            one, two = cluster.living
            for link in (*one.links, *two.links):
                link.weather = Weather(delay=0.1)
            for name in (None, str(uuid4())):
                sent = cluster.tell(one, script, new_task_id=name)
                cluster.run(0.05 * (seed % 5))
                cluster.repeat_at(sent, two)
            cluster.run(3)


def test_of_two_answers_at_two_nodes_one_answers_and_the_other_is_words_for_the_run() -> None:
    with scene(2) as cluster:
        one, two = cluster.living
        task = cluster.tell(one, "once ask slow")
        cluster.run(1)
        assert state(cluster, task.task_id) is State.INPUT_REQUIRED
        answers = [cluster.tell(node, "yes", task.task_id) for node in (one, two)]
        cluster.run(5)
        assert [answer.task_id for answer in answers] == [task.task_id] * 2
        assert state(cluster, task.task_id) is State.COMPLETED


def test_words_that_arrive_while_a_task_is_canceled_are_in_its_history_once() -> None:
    for seed in range(8):
        with scene(3, seed) as cluster:
            one, two, three = cluster.living
            task = cluster.tell(one, "once long", stream=True)
            cluster.run(1)
            for link in two.links:
                link.weather = Weather(delay=0.2)
            cluster.cancel_at(two, task.task_id or "")
            cluster.tell(three, "words", task.task_id)
            cluster.tell(two, "words", task.task_id)
            cluster.run(2)
            assert state(cluster, task.task_id) is State.CANCELED


def test_an_answer_at_another_node_continues_a_pinned_conversation_at_home() -> None:
    with scene(2) as cluster:
        one, two = cluster.living
        task = cluster.tell(one, "once ask ask chunk", agent="pinned")
        cluster.run(1)
        for node in (two, one, two, two):
            cluster.tell(node, "yes", task.task_id, agent="pinned")
            cluster.run(3)
        assert state(cluster, task.task_id) is State.COMPLETED


def test_a_stream_goes_on_at_a_node_that_was_stopped_while_another_took_the_task() -> None:
    with scene(2) as cluster:
        one = cluster.living[0]
        cluster.tell(one, "again chunk slow chunk long chunk", stream=True)
        cluster.run(1)
        (reader,) = cluster.readers
        one.freeze(stopped=True)
        cluster.run(25)
        assert state(cluster, reader.task_id) is State.COMPLETED
        one.freeze(stopped=False)
        cluster.run(2)
        assert reader.finished
        assert reader.node is one


def stop_while_a_run_begins() -> None:
    """Stop a node at many moments after it got a message, for longer than its lease, but not for so long that it gives
    up the statements that it has sent.
    """
    for moment in range(1, 14, 2):
        with scene(2) as cluster:
            one = cluster.living[0]
            cluster.tell(one, "once once chunk once slow")
            cluster.run(moment * 0.001)
            one.freeze(stopped=True)
            cluster.run(9)
            one.freeze(stopped=False)
            cluster.run(2)


def test_a_node_that_was_stopped_begins_nothing_that_others_have_taken() -> None:
    stop_while_a_run_begins()


def test_a_node_that_does_not_look_at_its_lease_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NodeLease, "expired", False)
    with pytest.raises(AssertionError, match="has effects after"):
        stop_while_a_run_begins()


def test_the_tasks_of_a_killed_node_are_taken_within_ten_seconds() -> None:
    with scene(3) as cluster:
        database = cluster.audit._database
        for kind in ("again long long", "once long long", "once ask"):
            cluster.tell(cluster.living[0], kind)
        cluster.run(3.7)
        (killed, *_) = cluster.living
        numbers = [number for number, one in database._ownership.items() if one.owner is not None]
        assert len(numbers) == 2
        seen = max(node.seen for node in database._nodes.values() if node.info.name == killed.name)
        killed.kill()
        cluster.run(12)
        waits = [database._ownership[number].claimed_at - seen for number in numbers]
        assert all(6 <= wait <= 10 for wait in waits), waits
        assert cluster.world.now - START < 30


@pytest.mark.parametrize("seed", range(2))
def test_an_outage_of_the_database_kills_no_node_and_fails_no_task(seed: int) -> None:
    cluster = Cluster(seed, nodes=3, faults={"restart_database": 4.0}).play(300)
    assert len(cluster.audit.nodes) == 3
    assert cluster.steps["restart_database"] > 3
    failed = [row for row in cluster.audit.rows.values() if row.state is State.FAILED]
    reasons = {cluster.audit.journals[row.number][row.generation] for row in failed}
    assert all(b"as the script says" in reason for reason in reasons), reasons
