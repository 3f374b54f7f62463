"""What is particular about webhooks: the forms of 0.3 and 0.1 without an id, and all addresses that are not called.

The four operations are in tests/contract/bindings/test_webhooks.py, what arrives in test_deliveries.py beside it.
"""

from __future__ import annotations

from typing import Any

import pytest

HOOK = "https://hooks.example.com/in"


def waiting(wire: Any, version: str) -> str:
    speaker = wire.speaker(version)
    return speaker.id_of(speaker.send("hi", tool="ask_name"))


@pytest.mark.requirement("S2-16")
def test_0_3_may_ask_for_the_first_one_without_an_id(wire: Any) -> None:
    task = waiting(wire, "0.3-rpc")
    for name in ("a", "b"):
        hook = {"id": name, "url": HOOK}
        wire.rpc("tasks/pushNotificationConfig/set", {"taskId": task, "pushNotificationConfig": hook})
    found = wire.rpc("tasks/pushNotificationConfig/get", {"id": task}).result
    assert found["pushNotificationConfig"]["id"] == "a"


def test_a_task_of_0_1_has_one_webhook(wire: Any) -> None:
    task = waiting(wire, "0.1-rpc")
    for name in ("old", "new"):
        hook = {"url": f"{HOOK}/{name}"}
        wire.rpc("tasks/pushNotification/set", {"id": task, "pushNotificationConfig": hook})
    found = wire.rpc("tasks/pushNotification/get", {"id": task}).result
    assert found["pushNotificationConfig"]["url"] == f"{HOOK}/new"
    listed = wire.rpc("ListTaskPushNotificationConfigs", {"taskId": task}).result
    assert [each["url"] for each in listed["configs"]] == [f"{HOOK}/new"]


FORBIDDEN = [
    "http://127.0.0.1/",
    "http://localhost:8080/",
    "http://10.0.0.1/",
    "http://192.168.1.1/",
    "http://169.254.169.254/latest/meta-data/",
    "http://[::1]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[fd00::1]/",
    "http://2130706433/",
    "http://0x7f.1/",
    "http://0177.0.0.1/",
    "http://metadata.google.internal/",
    "http://user:secret@hooks.example.com/",
    "http://printer.local/",
    "file:///etc/passwd",
    "gopher://hooks.example.com/",
    "http://hooks.example.com:0/",
    "http://hooks.example.com\\@127.0.0.1/",
    "//hooks.example.com/",
    "not a url",
]


@pytest.mark.parametrize("url", FORBIDDEN)
def test_an_address_that_is_nobodys_business_is_refused_by_its_field(wire: Any, url: str) -> None:
    task = waiting(wire, "1.0-rpc")
    answer = wire.rpc("CreateTaskPushNotificationConfig", {"taskId": task, "url": url})
    assert (answer.code, answer.reason, answer.field) == (-32602, "INVALID_PARAMS", "url")
    assert "secret" not in answer.text
    assert wire.rpc("ListTaskPushNotificationConfigs", {"taskId": task}).result.get("configs", []) == []


def test_where_webhooks_are_on_the_card_says_so(wire: Any) -> None:
    assert wire.request("GET", "/.well-known/agent-card.json").json["capabilities"]["pushNotifications"] is True
