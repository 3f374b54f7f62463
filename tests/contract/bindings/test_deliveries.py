"""What arrives at a webhook: every event in the words of the version that set it, signed, also after a restart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from contract.bindings.agent import make_agent
from contract.bindings.caller import CALLERS, Caller, Site, site
from support.webhook_receiver import WebhookReceiver

from dragoman import Message
from dragoman.push import verify

BEARER = {"scheme": "Bearer", "credentials": "S3CR3T"}


@pytest.fixture(scope="package")
def calling(http: httpx2.Client) -> Iterator[Site]:
    """A server that may call webhooks on this machine."""
    with site(http, make_agent(), push_allow=["127.0.0.1"]) as there:
        yield there


@pytest.fixture
def sender(caller: Caller, calling: Site) -> Caller:
    return calling.caller(caller.name)


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with WebhookReceiver() as receiver:
        yield receiver


@pytest.mark.requirement("S2-29")
def test_a_webhook_of_a_message_gets_all_events_in_its_own_version(
    sender: Caller, calling: Site, receiver: WebhookReceiver
) -> None:
    task = sender.send("hello", webhook={"url": receiver.url, "token": "T0K3N"})
    deliveries = receiver.wait_final()
    keys = calling.http.get(f"{calling.url}/.well-known/jwks.json").json()
    for each in deliveries:
        assert each.headers["x-a2a-notification-token"] == "T0K3N"
        event = verify(each.headers, each.body, jwks=keys, token="T0K3N", audience=receiver.url.removesuffix("/hook"))
        assert event.task is not None
        assert event.task.id == task.id
    last, kind = deliveries[-1].json, deliveries[0].headers["content-type"]
    if sender.version in ("0.3", "0.1"):
        # The whole task at each status.
        assert [each.json.get("kind", "") for each in deliveries] == ["task" if sender.version == "0.3" else ""] * 2
        assert (last["artifacts"][0]["parts"][0]["text"], kind) == ("hello", "application/json")
    else:
        assert [next(iter(each.json)) for each in deliveries] == ["statusUpdate", "artifactUpdate", "statusUpdate"]
        assert deliveries[1].json["artifactUpdate"]["artifact"]["parts"] == [{"text": "hello"}]
        assert kind == "application/a2a+json"


def test_a_webhook_of_a_waiting_task_gets_its_answer(sender: Caller, receiver: WebhookReceiver) -> None:
    task = sender.send(tool="ask_name")
    sender.create_webhook(task, url=receiver.url, authentication=BEARER)
    sender.send("Ada", task=task)
    deliveries = receiver.wait_final()
    assert {each.headers["authorization"] for each in deliveries} == {"Bearer S3CR3T"}
    assert all(each.headers["x-dragoman-signature"].startswith("ey") for each in deliveries)
    assert {each.task for each in deliveries} == {task.id}
    assert len({each.key for each in deliveries}) == len(deliveries)


@pytest.mark.needs("webhooks by id")
def test_a_deleted_webhook_gets_nothing_more(sender: Caller, receiver: WebhookReceiver) -> None:
    task = sender.send(tool="ask_name")
    sender.create_webhook(task, id="gone", url=f"{receiver.url}?gone")
    sender.create_webhook(task, id="stays", url=receiver.url)
    sender.delete_webhook(task, "gone")
    sender.send("Ada", task=task)
    assert {each.key.split("/")[1] for each in receiver.wait_final()} == {"stays"}


@pytest.mark.needs("messages")
def test_an_answer_without_a_task_calls_no_webhook(sender: Caller, receiver: WebhookReceiver) -> None:
    answer = sender.deliver(tool="reply", webhook={"url": receiver.url}).value
    assert isinstance(answer, Message)
    task = sender.send("hello", webhook={"url": f"{receiver.url}?second"})
    assert {each.task for each in receiver.wait_final()} == {task.id}


def test_webhooks_are_there_after_a_restart_and_their_secrets_are_not_in_the_file(
    http: httpx2.Client, receiver: WebhookReceiver, tmp_path: Path
) -> None:
    settings = {"store": f"sqlite:///{tmp_path}/tasks.db", "push_allow": ["127.0.0.1"]}
    webhooks: dict[str, tuple[str, str]] = {}
    with site(http, make_agent(), **settings) as there:
        for name in CALLERS:
            caller = there.caller(name)
            task = caller.send(tool="ask_name").id
            webhooks[name] = task, caller.create_webhook(task, url=receiver.url, token="T0K3N").id or ""
    assert b"T0K3N" not in (tmp_path / "tasks.db").read_bytes()
    with site(http, make_agent(), **settings) as there:
        for name, (task, number) in webhooks.items():
            caller = there.caller(name)
            assert caller.webhook(task, number).url == receiver.url
            caller.send("Ada", task=task)
        deliveries = receiver.wait_final(len(CALLERS))
    assert {each.headers["x-a2a-notification-token"] for each in deliveries} == {"T0K3N"}
