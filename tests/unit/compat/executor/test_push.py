"""Webhooks of executors: kept beside their tasks, and brought."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.webhook_receiver import WebhookReceiver

from dragoman.compat.executor import (
    PushAuthInfo,
    PushConfig,
    PushConfigStore,
    PushSender,
    RequestHandler,
    Task,
    TaskState,
    TaskStatus,
    TaskStore,
)
from dragoman.model.error import ConfigError
from dragoman.stores.sqlite.store import SqliteStore

HOOK = PushConfig("https://hooks.example.com/in", token="T0K3N", authentication=PushAuthInfo(("Basic",), "S3CR3T"))
TASK = Task("t", "c", TaskStatus(TaskState.INPUT_REQUIRED))


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with WebhookReceiver() as receiver:
        yield receiver


async def kept(folder: Path | None = None) -> PushConfigStore:
    """A store of webhooks with one task in it."""
    store = TaskStore(None if folder is None else SqliteStore(folder / "t.db"))
    await store.engine_store.open()
    assert (await store.save(TASK))[0] == "ok"
    return PushConfigStore(store)


# -- the store -------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S2-56")
@pytest.mark.requirement("S2-94")
@pytest.mark.parametrize("in_file", [False, True])
async def test_webhooks_are_set_read_replaced_listed_and_deleted(in_file: bool, tmp_path: Path) -> None:
    configs = await kept(tmp_path if in_file else None)
    assert await configs.get("t") == ("error", "not_found")
    assert await configs.list("t") == ("ok", ())
    status, made = await configs.set("t", HOOK)
    assert status == "ok"
    assert isinstance(made, PushConfig)
    assert made.id
    assert await configs.get("t", made.id) == ("ok", made)
    assert (made.url, made.token, made.authentication) == (HOOK.url, HOOK.token, HOOK.authentication)
    second = PushConfig("https://hooks.example.com/2", id="mine")
    assert await configs.set("t", second) == ("ok", second)
    third = PushConfig("https://hooks.example.com/3", id="mine", token="new")
    assert await configs.set("t", third) == ("ok", third)
    assert await configs.list("t") == ("ok", (made, third))
    assert await configs.get("t", "other") == ("error", "not_found")
    for _ in range(2):
        assert await configs.delete("t", "mine") == "ok"
    assert await configs.list("t") == ("ok", (made,))
    await configs.task_store.engine_store.close()
    if in_file:
        assert b"T0K3N" not in (tmp_path / "t.db").read_bytes()


async def test_a_webhook_that_cannot_be_read_is_a_pair_like_any_other_refusal() -> None:
    configs = await kept()
    status, reason = await configs.set("t", PushConfig(""))
    assert status == "error"
    assert "url" in str(reason)
    assert await configs.list("t") == ("ok", ())


@pytest.mark.requirement("S2-56")
async def test_a_webhook_belongs_to_a_task_and_to_no_other() -> None:
    configs = await kept()
    await configs.task_store.save(Task("u", "c2", TaskStatus(TaskState.INPUT_REQUIRED)))
    await configs.set("t", PushConfig(HOOK.url, id="p"))
    assert await configs.get("u", "p") == ("error", "not_found")
    assert await configs.set("nowhere", HOOK) == ("error", "not_found")
    assert await configs.list("nowhere") == ("error", "not_found")
    assert await configs.delete("nowhere", "p") == "ok"
    await configs.delete("u", "p")
    assert (await configs.get("t", "p"))[0] == "ok"


async def test_a_webhook_that_may_not_be_called_is_refused_with_the_reason() -> None:
    configs = await kept()
    status, reason = await configs.set("t", PushConfig("http://169.254.169.254/"))
    assert status == "error"
    assert "metadata" in str(reason)


# -- the sender ------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S2-55")
async def test_a_task_is_posted_with_token_and_credentials(receiver: WebhookReceiver) -> None:
    sender = PushSender(allow=["127.0.0.1"])
    config = PushConfig(receiver.url, token="T0K3N", authentication=PushAuthInfo(("Bearer", "Basic"), "S3CR3T"))
    assert await sender.send(TASK, config) == "ok"
    (delivery,) = receiver.requests
    headers = delivery.headers
    assert delivery.json == TASK.to_map()
    assert headers["content-type"] == "application/json"
    assert headers["x-a2a-notification-token"] == "T0K3N"
    assert headers["authorization"] == "Bearer S3CR3T"
    receiver.answer = 503
    assert await sender.send(TASK, config) == ("error", "push endpoint returned 503")
    await sender.close()


@pytest.mark.requirement("S2-55")
async def test_what_cannot_be_posted_is_a_reason_and_no_exception() -> None:
    sender = PushSender()
    status, reason = await sender.send(TASK, PushConfig("http://127.0.0.1:9/"))
    assert (status, "loopback" in reason) == ("error", True)
    sender = PushSender(allow=["127.0.0.1"])
    status, reason = await sender.send(TASK, PushConfig("http://127.0.0.1:9/"))
    assert (status, "nobody answers" in reason) == ("error", True)
    await sender.close()


# -- the handler -----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S2-42")
async def test_callers_and_the_store_see_the_same_webhooks(echo: Any) -> None:
    async with RequestHandler(echo, push_sender=PushSender()) as handler:
        assert handler.push_configs is not None
        await handler.task_store.save(TASK)

        async def ask(method: str, **params: Any) -> Any:
            name = f"tasks/pushNotificationConfig/{method}"
            return (await handler.handle({"jsonrpc": "2.0", "id": 1, "method": name, "params": params}))["result"]

        made = await ask("set", taskId="t", pushNotificationConfig=HOOK.to_map())
        assert made["taskId"] == "t"
        status, found = await handler.push_configs.get("t", made["pushNotificationConfig"]["id"])
        assert status == "ok"
        assert isinstance(found, PushConfig)
        assert (found.url, found.token) == (HOOK.url, "T0K3N")
        await handler.push_configs.set("t", PushConfig(f"{HOOK.url}/2", id="second"))
        listed = await ask("list", id="t")
        assert [each["pushNotificationConfig"]["url"] for each in listed] == [HOOK.url, f"{HOOK.url}/2"]
        assert "T0K3N" not in json.dumps(listed)
        await ask("delete", id="t", pushNotificationConfigId="second")
        assert await handler.push_configs.get("t", "second") == ("error", "not_found")


@pytest.mark.requirement("S2-29")
@pytest.mark.requirement("S2-55")
async def test_every_change_of_a_handlers_task_is_posted(echo: Any, receiver: WebhookReceiver) -> None:
    async with RequestHandler(echo, push_sender=PushSender(allow=["127.0.0.1"])) as handler:
        params = {
            "message": {"messageId": "m", "role": "user", "kind": "message", "parts": [{"kind": "text", "text": "hi"}]},
            "configuration": {"blocking": True, "pushNotificationConfig": {"url": receiver.url, "token": "T0K3N"}},
        }
        request = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": params}
        task = (await handler.handle(request))["result"]

        deliveries = await asyncio.to_thread(receiver.wait_final)
    assert deliveries[-1].json["id"] == task["id"]
    assert {each.headers["x-a2a-notification-token"] for each in deliveries} == {"T0K3N"}
    assert all(each.json["kind"] == "task" for each in deliveries)


async def test_a_task_that_is_saved_by_hand_is_posted_too(echo: Any, receiver: WebhookReceiver) -> None:
    async with RequestHandler(echo, push_sender=PushSender(allow=["127.0.0.1"])) as handler:
        await handler.task_store.save(TASK)
        assert handler.push_configs is not None
        await handler.push_configs.set("t", PushConfig(receiver.url))
        await handler.task_store.save(Task("t", "c", TaskStatus(TaskState.COMPLETED)))
        (delivery,) = await asyncio.to_thread(receiver.wait)
    assert delivery.state == "completed"


@pytest.mark.requirement("S2-42", "S2-56", "S2-94")
@pytest.mark.parametrize("shared", [False, True], ids=["new", "of the same task store"])
async def test_a_handler_takes_the_two_parts_that_the_document_lists(
    calling: Any, echo: Any, receiver: WebhookReceiver, shared: bool
) -> None:
    tasks = TaskStore()
    configs = PushConfigStore(tasks) if shared else PushConfigStore()
    sender = PushSender(allow=["127.0.0.1"])
    options = {"task_store": tasks} if shared else {}
    caller = calling(echo, push_config_store=configs, push_sender=sender, **options)
    assert caller.handler.push_configs is configs
    message = {"role": "user", "messageId": "m", "parts": [{"kind": "text", "text": "hi"}]}
    configuration = {"pushNotificationConfig": {"id": "p", "url": receiver.url, "token": "T0K3N"}}
    task = (await caller.ask("message/send", message=message, configuration=configuration))["result"]
    assert await configs.list(task["id"]) == ("ok", (PushConfig(receiver.url, "p", "T0K3N"),))
    delivery = (await asyncio.to_thread(receiver.wait))[-1]
    assert (delivery.headers["x-a2a-notification-token"], delivery.json["id"]) == ("T0K3N", task["id"])


async def test_the_task_store_of_a_push_config_store_is_the_handlers(calling: Any, echo: Any) -> None:
    tasks = TaskStore()
    handler = calling(echo, push_config_store=PushConfigStore(tasks), push_sender=PushSender()).handler
    assert handler.task_store is tasks
    with pytest.raises(ConfigError, match="made for another TaskStore than the handler's"):
        calling(echo, task_store=TaskStore(), push_config_store=PushConfigStore(tasks), push_sender=PushSender())
