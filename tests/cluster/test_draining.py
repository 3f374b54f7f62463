"""A node that stops while others go on: it is a front for them until its runs have ended. In virtual time."""

from __future__ import annotations

from typing import Any

import pytest
from cluster.callers import ANYBODY, SentMessage, get_request, new_message
from cluster.machine import Cluster
from cluster.node import SETTINGS, SimulatedNode
from cluster.test_several_nodes import scene, state

from dragoman.engine.journal.durability import STOPPING
from dragoman.engine.ports.store import TaskRow
from dragoman.model.error import ServerError
from dragoman.model.state import State
from dragoman.stores.postgres.sql.claims import RETURN_SECONDS


def outcome_of(cluster: Cluster, node: SimulatedNode, text: str, **options: Any) -> list[Any]:
    """Send a message whose caller waits for the task, and collect its answer or the error."""
    outcomes: list[Any] = []
    sent = SentMessage("serial", new_message(cluster._new_id(), text, **options), wait=True)
    work = node.services["serial"].send(ANYBODY, sent.request)
    cluster._call(node, work, lambda result, error: outcomes.append(error or result.result))
    return outcomes


def begin(
    cluster: Cluster, node: SimulatedNode, text: str, context_id: str | None = None, agent: str = "serial"
) -> SentMessage:
    """Send a message to a node whose caller does not wait for the task."""
    sent = SentMessage(agent, new_message(cluster._new_id(), text, context_id=context_id), wait=False)
    cluster.messages.append(sent)
    cluster.open_messages[sent] = None
    cluster.repeat_at(sent, node)
    return sent


def stop(cluster: Cluster, node: SimulatedNode) -> None:
    """Stop a node, and let it find out who else is there."""
    node.stop()
    cluster.run(0.1)


def owner_of(cluster: Cluster, task_id: str | None) -> str | None:
    """The name of the node that has a task."""
    row = cluster.audit._database._ownership[cluster.audit.numbers_by_id[task_id or ""]]
    return None if row.owner is None else cluster.audit.nodes[row.owner]


def text_of(cluster: Cluster, node: SimulatedNode, task_id: str | None) -> str:
    """What the last status of a task says."""
    texts: list[str] = []
    work = node.services["serial"].get(ANYBODY, get_request(task_id or ""))
    cluster._call(node, work, lambda result, error: texts.append(result.result.status.message.text))
    cluster.run(1)
    return texts[0]


def test_a_node_that_stops_still_answers_and_the_others_run_what_it_accepts() -> None:
    with scene(2) as cluster:
        one, two = cluster.living
        begin(cluster, one, "once slow")
        cluster.run(0.5)
        stop(cluster, one)
        waiting = outcome_of(cluster, one, "once chunk")
        asking = outcome_of(cluster, one, "once ask slow")
        cluster.run(0.5)
        assert [task.status.state for task in waiting + asking] == [State.COMPLETED, State.INPUT_REQUIRED]
        (question,) = asking
        answered = outcome_of(cluster, one, "yes", task_id=question.id)
        cluster.run(0.2)
        assert owner_of(cluster, question.id) == two.name
        cluster.run(5)  # its own run has ended, but a caller still waits here
        assert [task.status.state for task in answered] == [State.COMPLETED]
        assert not one.alive


def test_a_node_that_stops_resumes_a_task_from_inside_for_another_node() -> None:
    with scene(2) as cluster:
        one, two = cluster.living
        begin(cluster, one, "once slow")
        task = begin(cluster, one, "once auth slow")
        cluster.run(0.5)
        stop(cluster, one)
        resumed: list[Any] = []
        work = one.services["serial"].resume(cluster.effects.handles[task.task_id or ""][-1], {"yes": 1})
        cluster._call(one, work, lambda result, error: resumed.append(error or result))
        cluster.run(0.5)
        assert [each.status.state for each in resumed] == [State.WORKING]
        assert owner_of(cluster, task.task_id) == two.name


def test_a_node_that_stops_answers_for_all_its_agents_until_the_last_run_has_ended() -> None:
    with scene(2) as cluster:
        one, _ = cluster.living
        begin(cluster, one, "once slow", agent="parallel")
        cluster.run(0.5)
        stop(cluster, one)
        cluster.run(1)
        outcomes = outcome_of(cluster, one, "once chunk")
        cluster.run(0.2)
        assert [task.status.state for task in outcomes] == [State.COMPLETED]


def test_a_node_that_stops_without_runs_is_gone_at_once() -> None:
    with scene(2) as cluster:
        one, _ = cluster.living
        stop(cluster, one)
        cluster.run(0.5)
        assert not one.alive


def test_a_node_that_stops_cancels_and_streams_the_tasks_of_others() -> None:
    with scene(2) as cluster:
        one, two = cluster.living
        begin(cluster, one, "once slow")
        task = begin(cluster, two, "once long")
        cluster.run(0.5)
        stop(cluster, one)
        sent = cluster.tell(one, "once chunk slow", stream=True)
        cluster.cancel_at(one, task.task_id or "")
        cluster.run(0.5)
        assert state(cluster, task.task_id) is State.CANCELED
        assert owner_of(cluster, sent.task_id) == two.name


def test_what_has_not_begun_begins_on_another_node_at_once() -> None:
    with scene(2) as cluster:
        one, two = cluster.living
        first = begin(cluster, one, "once slow", context_id="talk")
        cluster.run(0.1)
        later = [begin(cluster, node, "once chunk", context_id="talk") for node in (one, two)]
        cluster.run(1)
        stop(cluster, one)
        cluster.run(2)  # the turn of those that waited has come
        assert state(cluster, first.task_id) is State.COMPLETED
        assert [state(cluster, task.task_id) for task in later] == [State.COMPLETED] * 2


def test_at_the_deadline_what_may_begin_again_does_so_elsewhere_at_once_and_is_not_counted() -> None:
    with scene(2) as cluster:
        one, two = cluster.living
        task = begin(cluster, one, "again long chunk")
        cluster.run(1)
        stop(cluster, one)
        cluster.run(SETTINGS.drain - 0.1)
        assert owner_of(cluster, task.task_id) == one.name
        cluster.run(0.2)
        assert owner_of(cluster, task.task_id) == two.name
        number = cluster.audit.numbers_by_id[task.task_id or ""]
        assert cluster.audit._database._ownership[number].attempts == 0
        cluster.run(10)
        assert state(cluster, task.task_id) is State.COMPLETED


def test_a_task_that_is_handed_over_often_is_never_given_up() -> None:
    with scene(1) as cluster:
        task = begin(cluster, cluster.living[0], "again long chunk")
        for _ in range(5):
            cluster.run(1)
            cluster.start_node()
            cluster.run(2)
            stop(cluster, cluster.living[0])
            cluster.run(5)
        cluster.run(10)
        assert state(cluster, task.task_id) is State.COMPLETED


def test_at_the_deadline_what_may_not_begin_again_fails_and_its_caller_gets_that() -> None:
    with scene(2) as cluster:
        one, two = cluster.living
        outcomes = outcome_of(cluster, one, "once long")
        cluster.run(1)
        stop(cluster, one)
        cluster.run(SETTINGS.drain + 0.1)
        (task,) = outcomes
        assert task.status.state is State.FAILED
        assert text_of(cluster, two, task.id) == "the server that ran it is gone"


def test_a_caller_that_still_waits_when_the_drain_ends_gets_an_error_that_says_to_ask_again() -> None:
    with scene(2) as cluster:
        one, two = cluster.living
        task = begin(cluster, two, "once long", context_id="talk")
        cluster.run(0.5)
        outcomes = outcome_of(cluster, one, "once chunk", context_id="talk")
        cluster.run(0.5)
        stop(cluster, one)
        cluster.run(SETTINGS.drain + 0.5)
        (error,) = outcomes
        assert isinstance(error, ServerError)
        assert STOPPING in str(error)
        assert state(cluster, task.task_id) is State.WORKING


def test_a_node_that_stops_and_is_alone_refuses_messages_as_nobody_could_run_them() -> None:
    with scene(1) as cluster:
        (one,) = cluster.living
        task = begin(cluster, one, "once slow")
        cluster.run(0.5)
        stop(cluster, one)
        outcomes = outcome_of(cluster, one, "once chunk")
        cluster.run(0.5)
        (error,) = outcomes
        assert isinstance(error, ServerError)
        assert STOPPING in str(error)
        cluster.run(3)
        assert state(cluster, task.task_id) is State.COMPLETED


def test_two_nodes_that_stop_at_the_same_time_do_not_count_on_each_other_nor_on_a_front() -> None:
    with scene(2) as cluster:
        one, two = cluster.living
        cluster.start_node(0)
        cluster.run(2)
        tasks = [begin(cluster, node, "once slow") for node in (one, two)]
        cluster.run(0.1)
        stop(cluster, one)
        stop(cluster, two)
        cluster.run(1.1)  # the first one knows it with its next beat
        outcomes = outcome_of(cluster, one, "once chunk")
        cluster.run(0.1)
        (error,) = outcomes
        assert isinstance(error, ServerError)
        cluster.run(2)
        assert [state(cluster, task.task_id) for task in tasks] == [State.COMPLETED] * 2


@pytest.mark.parametrize("limit", [0, 1])
def test_a_node_without_room_fails_what_had_begun_on_a_dead_one_and_queues_what_may_begin_again(limit: int) -> None:
    with scene(1) as cluster:
        (one,) = cluster.living
        cluster.start_node(limit)
        cluster.run(2)
        front = cluster.living[1]
        lost, again = (begin(cluster, one, script) for script in ("once long", "again long chunk"))
        cluster.run(1)
        if limit:
            begin(cluster, front, "once long long long long")
        one.kill()
        cluster.run(11)
        assert state(cluster, lost.task_id) is State.FAILED
        assert state(cluster, again.task_id) is State.WORKING
        assert owner_of(cluster, again.task_id) is None
        cluster.start_node()
        cluster.run(12)
        assert state(cluster, again.task_id) is State.COMPLETED


def test_a_session_waits_for_a_node_that_is_restarted() -> None:
    with scene(2) as cluster:
        one, two = cluster.living
        begin(cluster, one, "once chunk", context_id="talk", agent="pinned")
        cluster.run(0.5)
        one.stop()
        cluster.run(1)
        later = begin(cluster, two, "once chunk", context_id="talk", agent="pinned")
        cluster.run(5)
        assert state(cluster, later.task_id) is State.SUBMITTED
        cluster.start_node(name=one.name)
        cluster.run(1)
        assert state(cluster, later.task_id) is State.COMPLETED


@pytest.mark.parametrize(("ends", "seconds"), [("stop", RETURN_SECONDS + 3), ("kill", 11)])
def test_a_session_does_not_wait_for_a_node_that_has_died_nor_for_ever(ends: str, seconds: float) -> None:
    with scene(2) as cluster:
        one, two = cluster.living
        begin(cluster, one, "once chunk", context_id="talk", agent="pinned")
        cluster.run(0.5)
        getattr(one, ends)()
        cluster.run(1)
        later = begin(cluster, two, "once chunk", context_id="talk", agent="pinned")
        cluster.run(seconds)
        assert state(cluster, later.task_id) is State.FAILED


@pytest.mark.parametrize("seed", range(2))
def test_nodes_that_stop_all_the_time_break_no_promise_and_fail_nothing_that_has_time_to_end(seed: int) -> None:
    cluster = Cluster(seed, nodes=3, faults={"stop": 10.0}).play(300)
    assert cluster.steps["stop"] > 10
    failed = [row for row in cluster.audit.rows.values() if row.state is State.FAILED and not is_pinned(row)]
    for row in failed:
        script = cluster.audit.journals[row.number][1]
        reason = cluster.audit.journals[row.number][row.generation]
        assert b"as the script says" in reason or any(word in script for word in (b"long", b"slow"))


def is_pinned(row: TaskRow) -> bool:
    """Whether a task may have lost its session."""
    return row.scope.agent == "pinned"
