"""Webhooks of a task: created, read, listed, replaced and deleted; what a server refuses, and what it never shows."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import pytest
from contract.bindings.caller import CALLERS, Caller, Refused, Site

from dragoman import State
from dragoman.model.operation import AuthenticationInfo, TaskPushNotificationConfig

HOOK = "https://hooks.example.com/in"
SECRETS = {"token": "T0K3N", "authentication": {"scheme": "Basic", "credentials": "S3CR3T"}}
NOBODY = "0f9d2c4e-5b61-4c8e-9a37-d5f2b1c6e843"


def waiting(caller: Caller) -> str:
    return caller.send(tool="ask_name").id


def refused_reasons(caller: Caller, task: str) -> set[str]:
    """Why each operation with webhooks of a task is refused."""
    operations: list[Callable[[], object]] = [
        lambda: caller.create_webhook(task, url=HOOK, id="p"),
        lambda: caller.webhook(task, "p"),
    ]
    if caller.version != "0.1":
        operations += [lambda: caller.webhooks(task), lambda: caller.delete_webhook(task, "p")]
    reasons: set[str] = set()
    for operation in operations:
        with pytest.raises(Refused) as refused:
            operation()
        reasons.add(refused.value.reason)
    return reasons


@pytest.mark.requirement("S2-15", "S2-16")
def test_a_webhook_is_created_with_an_id_and_read_again_without_its_secrets(caller: Caller) -> None:
    task = waiting(caller)
    made = caller.create_webhook(task, url=HOOK, **SECRETS)
    assert made.id is not None
    assert len(made.id) == 36
    shown = TaskPushNotificationConfig(HOOK, made.id, task, authentication=AuthenticationInfo("Basic"))
    assert caller.webhook(task, made.id) == shown
    if caller.version != "0.1":
        assert caller.webhooks(task) == [shown]


@pytest.mark.requirement("S2-17", "S2-18")
@pytest.mark.needs("webhooks by id")
def test_a_task_has_several_which_are_listed_replaced_and_deleted_by_their_ids(caller: Caller) -> None:
    task = waiting(caller)
    assert caller.webhooks(task) == []
    for name in ("a", "b", "c"):
        assert caller.create_webhook(task, id=name, url=f"{HOOK}/{name}").id == name
    caller.create_webhook(task, id="b", url=f"{HOOK}/new")
    assert [(each.id, each.url) for each in caller.webhooks(task)] == [
        ("a", f"{HOOK}/a"),
        ("b", f"{HOOK}/new"),
        ("c", f"{HOOK}/c"),
    ]
    caller.delete_webhook(task, "b")
    caller.delete_webhook(task, "b")
    assert [each.id for each in caller.webhooks(task)] == ["a", "c"]
    with pytest.raises(Refused) as refused:
        caller.webhook(task, "b")
    assert refused.value.reason == "TASK_NOT_FOUND"


@pytest.mark.needs("webhooks by id")
def test_an_ended_task_takes_a_webhook_too(caller: Caller) -> None:
    task = caller.send("hi")
    caller.create_webhook(task, id="late", url=HOOK)
    assert [each.id for each in caller.webhooks(task)] == ["late"]


@pytest.mark.needs("webhooks by id")
def test_there_are_ten_of_a_task_at_most(caller: Caller) -> None:
    task = waiting(caller)
    for number in range(10):
        caller.create_webhook(task, id=f"p{number}", url=HOOK)
    with pytest.raises(Refused) as refused:
        caller.create_webhook(task, id="p10", url=HOOK)
    assert refused.value.reason == "RESOURCE_EXHAUSTED"
    caller.create_webhook(task, id="p3", url=f"{HOOK}/again")
    assert len(caller.webhooks(task)) == 10


def test_a_task_that_is_not_there_has_no_webhooks(caller: Caller) -> None:
    assert refused_reasons(caller, NOBODY) == {"TASK_NOT_FOUND"}


def test_the_webhooks_of_another_user_s_task_do_not_exist(caller: Caller, named: Site) -> None:
    ann, bob = (named.caller(caller.name).as_user(name) for name in ("ann", "bob"))
    task = waiting(ann)
    ann.create_webhook(task, id="p", url=HOOK)
    assert refused_reasons(bob, task) == {"TASK_NOT_FOUND"}
    assert ann.webhook(task, "p").url == HOOK


# Which addresses these are, in all their spellings: tests/unit/net and tests/wire/attacks/test_webhooks.py.
def test_an_address_that_may_not_be_called_is_refused_by_its_field(caller: Caller) -> None:
    task = waiting(caller)
    for url in ("http://127.0.0.1/", "http://user:secret@hooks.example.com/", "file:///etc/passwd", "not a url"):
        with pytest.raises(Refused) as refused:
            caller.create_webhook(task, url=url)
        assert (refused.value.reason, refused.value.field) == ("INVALID_PARAMS", "url")
        assert "secret" not in refused.value.message
    if caller.version != "0.1":
        assert caller.webhooks(task) == []


def test_a_message_with_such_a_webhook_begins_nothing_and_answers_nothing(caller: Caller) -> None:
    with pytest.raises(Refused) as refused:
        caller.send("hi", webhook={"url": "http://127.0.0.1/"})
    assert refused.value.reason == "INVALID_PARAMS"
    task = waiting(caller)
    with pytest.raises(Refused) as refused:
        caller.send("Ada", task=task, webhook={"url": "http://127.0.0.1/"})
    assert refused.value.reason == "INVALID_PARAMS"
    assert caller.get(task).state is State.INPUT_REQUIRED


@pytest.mark.needs("webhooks by id")
def test_a_message_brings_a_webhook_for_its_task(caller: Caller) -> None:
    task = caller.send(tool="ask_name", webhook={"id": "inline", "url": HOOK, "token": "T0K3N"})
    assert caller.webhooks(task) == [TaskPushNotificationConfig(HOOK, "inline", task.id)]


@pytest.mark.needs("messages")
def test_a_webhook_may_be_deleted_before_its_task_is_answered(caller: Caller) -> None:
    task, name = waiting(caller), str(uuid4())
    caller.create_webhook(task, id=name, url=HOOK)
    caller.delete_webhook(task, name)
    assert caller.send("Ada", task=task).state is State.COMPLETED
    assert caller.webhooks(task) == []


@pytest.mark.requirement("S0-19")
def test_where_webhooks_are_off_every_operation_says_so_and_so_does_the_card(opened: Callable[..., Site]) -> None:
    there = opened(push=False)
    card = there.http.get(f"{there.url}/.well-known/agent-card.json").json()
    assert card["capabilities"]["pushNotifications"] is False
    for name in CALLERS:
        caller = there.caller(name)
        assert refused_reasons(caller, waiting(caller)) == {"PUSH_NOTIFICATION_NOT_SUPPORTED"}
        with pytest.raises(Refused) as refused:
            caller.send("hi", webhook={"url": HOOK})
        assert refused.value.reason == "PUSH_NOTIFICATION_NOT_SUPPORTED"
