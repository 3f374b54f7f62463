"""Lists of tasks: their pages, filters and what of a task they show."""

from __future__ import annotations

from uuid import uuid4

import pytest
from contract.bindings.caller import Caller, Refused
from msgspec.structs import replace

from dragoman import State
from dragoman.model.operation import ListTasksResponse

pytestmark = pytest.mark.needs("list", "tenants")


@pytest.fixture
def alone(caller: Caller) -> Caller:
    """A caller whose tasks nobody else sees."""
    return caller.in_tenant(f"tenant-{uuid4()}")


def test_every_task_is_listed_exactly_once_newest_first(alone: Caller) -> None:
    sent = [alone.send(f"number {number}").id for number in range(7)]
    pages = [alone.list(pageSize=3)]
    while pages[-1].next_page_token:
        pages.append(alone.list(pageSize=3, pageToken=pages[-1].next_page_token))
    assert [len(page.tasks) for page in pages] == [3, 3, 1]
    assert [task.id for page in pages for task in page.tasks] == sent[::-1]
    assert {(page.page_size, page.total_size) for page in pages} == {(3, 7)}


def test_a_task_that_begins_while_pages_are_turned_disturbs_none_of_them(alone: Caller) -> None:
    sent = [alone.send(f"number {number}").id for number in range(4)]
    first = alone.list(pageSize=2)
    alone.send("late")
    second = alone.list(pageSize=2, pageToken=first.next_page_token)
    assert [task.id for task in (*first.tasks, *second.tasks)] == sent[::-1]
    assert second.next_page_token == ""


def test_tasks_are_listed_by_context_by_state_and_by_time(alone: Caller) -> None:
    done = alone.send("hi")
    asking = alone.send(tool="ask_name", context=done.context_id)
    other = alone.send(tool="ask_name")

    def listed(**filters: object) -> set[str]:
        page = alone.list(**filters)
        assert page.total_size == len(page.tasks)
        return {task.id for task in page.tasks}

    everything = {done.id, asking.id, other.id}
    assert listed() == everything
    assert listed(contextId=done.context_id) == {done.id, asking.id}
    assert listed(status="TASK_STATE_INPUT_REQUIRED") == {asking.id, other.id}
    assert listed(contextId=done.context_id, status="TASK_STATE_COMPLETED") == {done.id}
    assert listed(contextId="nowhere") == set()
    assert listed(statusTimestampAfter="2000-01-01T00:00:00Z") == everything
    assert listed(statusTimestampAfter="2999-01-01T00:00:00Z") == set()


def test_artifacts_and_history_are_listed_as_far_as_they_are_asked_for(alone: Caller) -> None:
    task = alone.send("hi")
    assert alone.list().tasks == (replace(task, artifacts=()),)
    assert alone.list(includeArtifacts=True).tasks == (task,)
    assert alone.list(includeArtifacts=True, historyLength=0).tasks == (replace(task, history=()),)


def test_the_token_of_a_list_with_other_filters_is_refused(alone: Caller) -> None:
    for number in range(2):
        alone.send(f"number {number}")
    token = alone.list(pageSize=1).next_page_token
    for there, filters in (
        (alone, {"contextId": "c"}),
        (alone, {"status": "TASK_STATE_WORKING"}),
        (alone, {"statusTimestampAfter": "2000-01-01T00:00:00Z"}),
        (alone.in_tenant("another"), {}),
    ):
        with pytest.raises(Refused) as refused:
            there.list(pageSize=1, pageToken=token, **filters)
        assert (refused.value.reason, refused.value.field) == ("INVALID_PARAMS", "pageToken")


def test_a_page_has_fifty_tasks_unless_another_size_is_asked_for(alone: Caller) -> None:
    assert alone.list() == ListTasksResponse((), "", 50, 0)
    assert alone.list(pageSize=100).page_size == 100


def test_a_wrong_parameter_of_a_list_is_named(alone: Caller) -> None:
    for params, field in (
        ({"pageSize": 101}, "pageSize"),
        ({"pageSize": -1}, "pageSize"),
        ({"pageToken": "garbage"}, "pageToken"),
        ({"pageToken": "W10"}, "pageToken"),
        ({"historyLength": -5}, "historyLength"),
    ):
        with pytest.raises(Refused) as refused:
            alone.list(**params)
        assert (refused.value.reason, refused.value.field) == ("INVALID_PARAMS", field)


def test_a_tenant_sees_its_own_tasks_alone(caller: Caller, alone: Caller) -> None:
    task = alone.send("hi")
    assert [each.id for each in alone.list().tasks] == [task.id]
    elsewhere = caller.in_tenant(f"tenant-{uuid4()}")
    assert elsewhere.list().tasks == ()
    for there in (elsewhere, caller):
        with pytest.raises(Refused) as refused:
            there.get(task)
        assert refused.value.reason == "TASK_NOT_FOUND"
    assert alone.get(task).state is State.COMPLETED


def test_a_skill_knows_the_tenant(alone: Caller) -> None:
    assert " tenant=tenant-" in alone.send(tool="who").text
