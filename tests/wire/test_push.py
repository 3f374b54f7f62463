"""What arrives at a receiver of webhooks, in the version that asked for it.

The operations with webhooks are proven for every version and binding by tests/contract/bindings/test_webhooks.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from contract.bindings.caller import Site
from support.webhook_receiver import WebhookReceiver

from dragoman import Agent
from dragoman.push import verify
from dragoman.testing import served

CALLERS = ("1.0-rpc", "1.0-rest", "1.1-rpc", "1.1-rest", "0.3-rpc", "0.3-rest", "0.1-rpc")
SINCE_0_3 = CALLERS[:-1]
HOOK = "https://hooks.example.com/in"


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with WebhookReceiver() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def site(http: httpx2.Client, new_agent: Callable[..., Agent]) -> Iterator[Site]:
    """A server that may call webhooks on this machine."""
    with served(new_agent(), drain=0, push_allow=["127.0.0.1"]) as url:
        yield Site(http, url)


# -- the operations ------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S2-16")
def test_0_3_may_ask_for_the_first_webhook_without_its_id(site: Site, wire: Any) -> None:
    caller = site.caller("0.3-rpc")
    task = caller.send(tool="ask_name").id
    caller.create_webhook(task, id="a", url=HOOK)
    caller.create_webhook(task, id="b", url=HOOK)
    answer = wire.at(site.url).rpc("tasks/pushNotificationConfig/get", {"id": task})
    assert answer.result["pushNotificationConfig"]["id"] == "a"


def test_0_1_replaces_the_one_webhook_of_a_task(site: Site) -> None:
    caller = site.caller("0.1-rpc")
    task = caller.send(tool="ask_name").id
    for path in ("old", "new"):
        caller.create_webhook(task, url=f"{HOOK}/{path}")
    assert [each.url for each in site.caller("1.0-rpc").webhooks(task)] == [f"{HOOK}/new"]


# -- what arrives --------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S2-29")
@pytest.mark.parametrize("name", CALLERS)
def test_the_webhook_of_a_message_gets_every_event_in_the_version_of_the_message(
    site: Site, receiver: WebhookReceiver, name: str
) -> None:
    caller = site.caller(name)
    task = caller.send("hello", webhook={"url": receiver.url, "token": "T0K3N"})
    deliveries = receiver.wait_final()
    keys = httpx2.get(f"{site.url}/.well-known/jwks.json").json()
    for each in deliveries:
        assert each.headers["x-a2a-notification-token"] == "T0K3N"
        event = verify(each.headers, each.body, jwks=keys, token="T0K3N", audience=receiver.url.removesuffix("/hook"))
        assert event.task is not None
        assert event.task.id == task.id
    if caller.version.startswith("1."):
        assert [next(iter(each.json)) for each in deliveries] == ["statusUpdate", "artifactUpdate", "statusUpdate"]
        assert deliveries[1].json["artifactUpdate"]["artifact"]["parts"] == [{"text": "hello"}]
        assert deliveries[0].headers["content-type"] == "application/a2a+json"
    else:
        kinds = [each.json.get("kind") for each in deliveries]
        assert kinds == ["task" if caller.version == "0.3" else None] * 2
        assert deliveries[-1].json["artifacts"][0]["parts"][0]["text"] == "hello"
        assert deliveries[0].headers["content-type"] == "application/json"


@pytest.mark.parametrize("name", CALLERS)
def test_the_webhook_of_a_waiting_task_gets_the_answer(site: Site, receiver: WebhookReceiver, name: str) -> None:
    caller = site.caller(name)
    task = caller.send(tool="ask_name").id
    caller.create_webhook(task, url=receiver.url, authentication={"scheme": "Bearer", "credentials": "S3CR3T"})
    caller.send("Ada", task=task)
    deliveries = receiver.wait_final()
    assert {each.headers["authorization"] for each in deliveries} == {"Bearer S3CR3T"}
    assert all(each.headers["x-dragoman-signature"].startswith("ey") for each in deliveries)
    keys = [each.key for each in deliveries]
    assert len(set(keys)) == len(keys)
    assert {each.task for each in deliveries} == {task}


@pytest.mark.parametrize("name", SINCE_0_3)
def test_a_deleted_webhook_gets_nothing_more(site: Site, receiver: WebhookReceiver, name: str) -> None:
    caller = site.caller(name)
    task = caller.send(tool="ask_name").id
    caller.create_webhook(task, id="gone", url=f"{receiver.url}?gone")
    caller.create_webhook(task, id="stays", url=receiver.url)
    caller.delete_webhook(task, "gone")
    caller.send("Ada", task=task)
    assert {each.key.split("/")[1] for each in receiver.wait_final()} == {"stays"}


@pytest.mark.parametrize("name", ["1.0-rpc", "1.0-rest", "0.3-rpc"])
def test_an_answer_without_a_task_calls_no_webhook(site: Site, receiver: WebhookReceiver, name: str) -> None:
    caller = site.caller(name)
    caller.deliver(tool="reply", webhook={"url": receiver.url})
    task = caller.send("hello", webhook={"url": f"{receiver.url}?second"})
    assert {each.task for each in receiver.wait_final()} == {task.id}


def test_webhooks_are_there_after_a_restart(
    http: httpx2.Client, new_agent: Callable[..., Agent], receiver: WebhookReceiver, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"store": f"sqlite:///{tmp_path}/tasks.db", "push_allow": ["127.0.0.1"], "drain": 0}
    tasks: dict[str, str] = {}
    with served(new_agent(), **settings) as url:
        for name in CALLERS:
            caller = Site(http, url).caller(name)
            tasks[name] = caller.send(tool="ask_name").id
            caller.create_webhook(tasks[name], id="p", url=receiver.url, token="T0K3N")
    assert b"T0K3N" not in (tmp_path / "tasks.db").read_bytes()
    with served(new_agent(), **settings) as url:
        for name in CALLERS:
            caller = Site(http, url).caller(name)
            assert caller.webhook(tasks[name], "p").url == receiver.url
            caller.send("Ada", task=tasks[name])
        receiver.wait_final(len(CALLERS))
    assert {each.headers["x-a2a-notification-token"] for each in receiver.requests} == {"T0K3N"}
