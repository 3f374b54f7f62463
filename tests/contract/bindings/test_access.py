"""Who calls: without credentials, without a permission, somebody else's task, and the card for those who are known."""

from __future__ import annotations

from uuid import uuid4

import pytest
from contract.bindings.caller import Caller, Refused, Site
from contract.bindings.deviations import state_in

from dragoman import State


@pytest.fixture
def stranger(caller: Caller, named: Site) -> Caller:
    """A caller without a name, at a server that asks for one."""
    return named.caller(caller.name)


def test_a_caller_without_credentials_is_refused_whatever_it_asks(stranger: Caller) -> None:
    task = stranger.as_user("ann").send(tool="ask_name")

    def follow() -> None:
        with stranger.subscribe(task):
            pass

    def stream() -> None:
        with stranger.stream("hi"):
            pass

    for operation in (
        lambda: stranger.send("hi"),
        stream,
        lambda: stranger.get(task),
        lambda: stranger.cancel(task),
        follow,
        lambda: stranger.create_webhook(task, url="https://hooks.example.com/in"),
    ):
        with pytest.raises(Refused) as refused:
            operation()
        assert refused.value.reason == "UNAUTHENTICATED"
        assert task.id not in str(refused.value.details)
    assert stranger.as_user("ann").get(task).state is State.INPUT_REQUIRED


def test_a_skill_knows_its_caller(stranger: Caller) -> None:
    assert stranger.as_user("ann").send(tool="who").text.startswith("user=ann ")


def test_the_task_of_another_user_does_not_exist(stranger: Caller) -> None:
    ann, bob = stranger.as_user("ann"), stranger.as_user("bob")
    task = ann.send(tool="ask_name")
    if stranger.version != "0.1":
        with pytest.raises(Refused) as refused:
            bob.send("Mallory", task=task, message_id=str(uuid4()))
        assert refused.value.reason == "TASK_NOT_FOUND"

    def follow() -> None:
        with bob.subscribe(task):
            pass

    for operation in (lambda: bob.get(task), lambda: bob.cancel(task), follow):
        with pytest.raises(Refused) as refused:
            operation()
        assert (refused.value.reason, refused.value.message) == ("TASK_NOT_FOUND", "Task not found")
    assert ann.get(task).state is State.INPUT_REQUIRED


@pytest.mark.needs("list", "tenants")
def test_a_list_shows_one_s_own_tasks_and_its_page_tokens_are_no_one_else_s(stranger: Caller) -> None:
    ann, bob = (stranger.as_user(f"{name}-{uuid4()}") for name in ("ann", "bob"))
    mine = [ann.send("hi").id for _ in range(2)]
    page = ann.list(pageSize=1)
    assert [task.id for task in page.tasks] == mine[1:]
    assert bob.list().tasks == ()
    with pytest.raises(Refused) as refused:
        bob.list(pageSize=1, pageToken=page.next_page_token)
    assert (refused.value.reason, refused.value.field) == ("INVALID_PARAMS", "pageToken")


def test_a_skill_with_a_permission_is_for_those_who_have_it(stranger: Caller) -> None:
    assert stranger.as_user("vera").send(tool="empty_vault").text == "empty"
    task = stranger.as_user("bob").send(tool="empty_vault")
    assert task.state is state_in(stranger.version, State.REJECTED)
    assert task.error is not None
    assert "Unauthorized: " in task.error
    assert "vault-key" not in task.error


@pytest.mark.requirement("S2-19")
@pytest.mark.needs("extended card")
def test_the_extended_card_shows_what_its_reader_may_use(stranger: Caller) -> None:
    def skills(name: str) -> set[str]:
        return {skill["id"] for skill in stranger.as_user(name).extended_card()["skills"]}

    assert skills("vera") - skills("bob") == {"empty_vault"}
    with pytest.raises(Refused) as refused:
        stranger.extended_card()
    assert refused.value.reason == "UNAUTHENTICATED"


@pytest.mark.requirement("S2-19")
@pytest.mark.needs("own extended card")
def test_an_agent_that_everybody_may_use_has_no_extended_card(caller: Caller) -> None:
    with pytest.raises(Refused) as refused:
        caller.extended_card()
    assert refused.value.reason == "UNSUPPORTED_OPERATION"
