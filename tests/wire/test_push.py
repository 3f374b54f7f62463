"""Webhooks over the wire: the four operations in every dialect and binding, and what arrives at a real receiver."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.webhook_receiver import WebhookReceiver

from dragoman import User
from dragoman.push import verify
from dragoman.testing import served

SPEAKERS = ("1.0-rpc", "1.0-rest", "1.1-rpc", "1.1-rest", "0.3-rpc", "0.3-rest", "0.1-rpc")
FOUR = ("1.0-rpc", "1.0-rest", "1.1-rpc", "1.1-rest", "0.3-rpc", "0.3-rest")
HOOK = "https://hooks.example.com/in"
SECONDS = 10
_METHODS = {
    "1": {
        "create": "CreateTaskPushNotificationConfig",
        "get": "GetTaskPushNotificationConfig",
        "list": "ListTaskPushNotificationConfigs",
        "delete": "DeleteTaskPushNotificationConfig",
    },
    "0.3": {
        "create": "tasks/pushNotificationConfig/set",
        "get": "tasks/pushNotificationConfig/get",
        "list": "tasks/pushNotificationConfig/list",
        "delete": "tasks/pushNotificationConfig/delete",
    },
    "0.1": {"create": "tasks/pushNotification/set", "get": "tasks/pushNotification/get"},
}


class Hooks:
    """The four operations as one speaker spells them."""

    def __init__(self, speaker: Any, headers: dict[str, str] | None = None) -> None:
        self.speaker = speaker
        self.headers = headers or {}
        self.old = not speaker.is_modern

    def config(self, url: str = HOOK, id: str = "", token: str = "", scheme: str = "", credentials: str = "") -> Any:
        made: dict[str, Any] = {"url": url}
        made |= {name: value for name, value in {"id": id, "token": token}.items() if value}
        if scheme:
            named = {"schemes": [scheme]} if self.old else {"scheme": scheme}
            made["authentication"] = {**named, "credentials": credentials} if credentials else named
        return made

    def ask(self, operation: str, task: str, id: str = "", config: Any = None) -> Any:
        speaker = self.speaker
        asked = {"A2A-Version": speaker.version} if speaker.is_modern else {}
        headers = {**asked, **self.headers}
        if speaker.is_rest:
            return self._rest(operation, task, id, config, headers)
        method = _METHODS["1" if speaker.is_modern else speaker.version][operation]
        if speaker.is_modern:
            params = {"taskId": task, **(config or {}), **({"id": id} if id else {})}
        elif operation == "create":
            named = "taskId" if speaker.version == "0.3" else "id"
            params = {named: task, "pushNotificationConfig": config}
        else:
            params = {"id": task, **({"pushNotificationConfigId": id} if id else {})}
        return speaker.wire.rpc(method, params, **headers)

    def _rest(self, operation: str, task: str, id: str, config: Any, headers: dict[str, str]) -> Any:
        root = "/v1" if self.old else ""
        path = f"{root}/tasks/{task}/pushNotificationConfigs"
        if operation == "create":
            body = {"config": {"pushNotificationConfig": config}} if self.old else config
            return self.speaker.wire.rest("POST", path, body, **headers)
        if operation == "list":
            return self.speaker.wire.rest("GET", path, **headers)
        return self.speaker.wire.rest("DELETE" if operation == "delete" else "GET", f"{path}/{id}", **headers)

    @staticmethod
    def read(result: Any) -> dict[str, Any]:
        """A webhook in any spelling, as that of 0.3."""
        if "pushNotificationConfig" in result:
            return result["pushNotificationConfig"]
        found = {name: value for name, value in result.items() if name in ("url", "id", "token")}
        if "authentication" in result:
            said = result["authentication"]
            found["authentication"] = {"schemes": [said["scheme"]]}
            if "credentials" in said:
                found["authentication"]["credentials"] = said["credentials"]
        return found

    def create(self, task: str, **config: Any) -> dict[str, Any]:
        return self.read(self.ask("create", task, config=self.config(**config)).result)

    def get(self, task: str, id: str = "") -> dict[str, Any]:
        return self.read(self.ask("get", task, id).result)

    def list(self, task: str) -> list[dict[str, Any]]:
        result = self.ask("list", task).result
        return [self.read(each) for each in (result if isinstance(result, list) else result.get("configs", []))]

    def delete(self, task: str, id: str) -> Any:
        return self.ask("delete", task, id).result


def parked(speaker: Any, **options: Any) -> str:
    return speaker.id_of(speaker.send("hi", tool="ask_name", **options).result)


# -- the operations --------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S2-15", "S2-16")
def test_a_webhook_is_created_with_an_id_and_read_again(speaker: Any) -> None:
    hooks, task = Hooks(speaker), parked(speaker)
    made = hooks.create(task, token="T0K3N", scheme="Basic", credentials="S3CR3T")
    assert made["url"] == HOOK
    assert len(made["id"]) == 36
    found = hooks.get(task, made["id"])
    assert (found["id"], found["url"]) == (made["id"], HOOK)


@pytest.mark.parametrize("speaker", SPEAKERS, indirect=True)
def test_secrets_are_never_shown_again(speaker: Any) -> None:
    hooks, task = Hooks(speaker), parked(speaker)
    made = hooks.create(task, token="T0K3N", scheme="Basic", credentials="S3CR3T")
    answers = [hooks.ask("get", task, made["id"])]
    if speaker.version != "0.1":
        answers.append(hooks.ask("list", task))
    for answer in answers:
        assert "T0K3N" not in answer.text
        assert "S3CR3T" not in answer.text
        assert "Basic" in answer.text


@pytest.mark.requirement("S2-17", "S2-18")
@pytest.mark.parametrize("speaker", FOUR, indirect=True)
def test_a_task_has_several_which_are_listed_replaced_and_deleted_by_their_ids(speaker: Any) -> None:
    hooks, task = Hooks(speaker), parked(speaker)
    assert hooks.list(task) == []
    for name in ("a", "b", "c"):
        assert hooks.create(task, id=name, url=f"{HOOK}/{name}")["id"] == name
    hooks.create(task, id="b", url=f"{HOOK}/new")
    assert [(each["id"], each["url"]) for each in hooks.list(task)] == [
        ("a", f"{HOOK}/a"),
        ("b", f"{HOOK}/new"),
        ("c", f"{HOOK}/c"),
    ]
    hooks.delete(task, "b")
    hooks.delete(task, "b")
    assert [each["id"] for each in hooks.list(task)] == ["a", "c"]
    gone = hooks.ask("get", task, "b")
    assert (gone.code, gone.reason) in ((-32001, "TASK_NOT_FOUND"), (404, "TASK_NOT_FOUND"))


@pytest.mark.requirement("S2-16")
@pytest.mark.parametrize("speaker", ["0.3-rpc"], indirect=True)
def test_0_3_may_ask_for_the_first_one_without_an_id(speaker: Any) -> None:
    hooks, task = Hooks(speaker), parked(speaker)
    hooks.create(task, id="a")
    hooks.create(task, id="b")
    assert hooks.get(task)["id"] == "a"


@pytest.mark.parametrize("speaker", ["0.1-rpc"], indirect=True)
def test_0_1_knows_one_webhook_of_a_task(speaker: Any) -> None:
    hooks, task = Hooks(speaker), parked(speaker)
    hooks.create(task, url=f"{HOOK}/old")
    hooks.create(task, url=f"{HOOK}/new")
    assert hooks.get(task)["url"] == f"{HOOK}/new"
    modern = Hooks(speaker.wire.speaker("1.0-rpc"))
    assert [each["url"] for each in modern.list(task)] == [f"{HOOK}/new"]


@pytest.mark.parametrize("speaker", FOUR, indirect=True)
def test_an_ended_task_takes_a_webhook_too(speaker: Any) -> None:
    hooks = Hooks(speaker)
    task = speaker.id_of(speaker.send("hi").result)
    hooks.create(task, id="late")
    assert [each["id"] for each in hooks.list(task)] == ["late"]


@pytest.mark.parametrize("speaker", FOUR, indirect=True)
def test_there_are_ten_of_a_task_at_most(speaker: Any) -> None:
    hooks, task = Hooks(speaker), parked(speaker)
    for number in range(10):
        hooks.create(task, id=f"p{number}")
    refused = hooks.ask("create", task, config=hooks.config(id="p10"))
    assert refused.reason == "RESOURCE_EXHAUSTED"
    hooks.create(task, id="p3", url=f"{HOOK}/again")
    assert len(hooks.list(task)) == 10


def not_found(answer: Any) -> bool:
    return (answer.code, answer.reason) in ((-32001, "TASK_NOT_FOUND"), (404, "TASK_NOT_FOUND"))


def every_operation(hooks: Hooks, task: str) -> Iterator[Any]:
    yield hooks.ask("create", task, config=hooks.config(id="p"))
    yield hooks.ask("get", task, "p")
    if hooks.speaker.version != "0.1":
        yield hooks.ask("list", task)
        yield hooks.ask("delete", task, "p")


def test_a_task_that_is_not_there_has_no_webhooks(speaker: Any) -> None:
    for answer in every_operation(Hooks(speaker), "0f9d2c4e-5b61-4c8e-9a37-d5f2b1c6e843"):
        assert not_found(answer)


def test_the_webhooks_of_anothers_task_do_not_exist(
    http: httpx2.Client, new_agent: Any, wire: Any, request: Any
) -> None:
    async def auth(request: Any) -> User | None:
        name = request.headers.get("x-name")
        return User(name) if name else None

    with served(new_agent(), auth=auth) as url:
        for name in SPEAKERS:
            speaker = wire.at(url).speaker(name)
            answer = speaker.send("hi", tool="ask_name", headers={"X-Name": "ann"})
            task = speaker.id_of(answer.result)
            Hooks(speaker, {"X-Name": "ann"}).create(task, id="p")
            for answer in every_operation(Hooks(speaker, {"X-Name": "bob"}), task):
                assert not_found(answer)
            assert Hooks(speaker, {"X-Name": "ann"}).get(task, "p")["url"] == HOOK


# -- addresses that are not called -----------------------------------------------------------------------------------

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
    for name in SPEAKERS:
        speaker = wire.speaker(name)
        hooks, task = Hooks(speaker), parked(speaker)
        answer = hooks.ask("create", task, config=hooks.config(url=url))
        assert answer.code in (-32602, 400), name
        assert answer.reason == "INVALID_PARAMS", name
        assert answer.field == "url", name
        assert "secret" not in answer.text
        if name != "0.1-rpc":
            assert hooks.list(task) == []


@pytest.mark.parametrize("speaker", SPEAKERS, indirect=True)
def test_a_message_with_such_a_webhook_begins_nothing_and_answers_nothing(speaker: Any) -> None:
    config = Hooks(speaker).config(url="http://127.0.0.1/")
    assert inline(speaker, config, tool="echo").reason == "INVALID_PARAMS"
    task = parked(speaker)
    assert inline(speaker, config, task=task).reason == "INVALID_PARAMS"
    assert speaker.state(speaker.get(task).result) == "input-required"


def inline(speaker: Any, config: Any, *values: Any, **options: Any) -> Any:
    """Send a message with a webhook."""
    params = speaker.params(*(values or ("hi",)), **options)
    if speaker.version == "0.1":
        params["pushNotification"] = config
    else:
        name = {"0.3-rpc": "pushNotificationConfig", "0.3-rest": "pushNotification"}.get(speaker.name)
        params.setdefault("configuration", {})[name or "taskPushNotificationConfig"] = config
    return speaker._call("send", params, None)


# -- what arrives ----------------------------------------------------------------------------------------------------


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with WebhookReceiver() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def open_wire(http: httpx2.Client, new_agent: Any) -> Iterator[Any]:
    """A server that may call webhooks on this machine."""
    from types import SimpleNamespace

    with served(new_agent(), drain=0, push_allow=["127.0.0.1"]) as url:
        yield SimpleNamespace(url=url, client=http)


@pytest.mark.requirement("S2-29")
@pytest.mark.parametrize("name", SPEAKERS)
def test_a_webhook_that_came_with_the_message_hears_all_in_its_own_version(
    wire: Any, open_wire: Any, receiver: WebhookReceiver, name: str
) -> None:
    speaker = wire.at(open_wire.url).speaker(name)
    config = Hooks(speaker).config(receiver.url, token="T0K3N")
    task = speaker.id_of(inline(speaker, config, "hello", tool="echo").result)
    came = receiver.wait_final()
    keys = httpx2.get(f"{open_wire.url}/.well-known/jwks.json").json()
    for each in came:
        assert each.headers["x-a2a-notification-token"] == "T0K3N"
        event = verify(each.headers, each.body, jwks=keys, token="T0K3N", audience=receiver.url.removesuffix("/hook"))
        assert event.task is not None
        assert event.task.id == task
    kinds = [next(iter(each.json)) if speaker.is_modern else each.json.get("kind", "") for each in came]
    if speaker.is_modern:
        assert kinds == ["statusUpdate", "artifactUpdate", "statusUpdate"]
        assert came[1].json["artifactUpdate"]["artifact"]["parts"] == [{"text": "hello"}]
        assert came[0].headers["content-type"] == "application/a2a+json"
    else:
        assert kinds == ["task" if speaker.version == "0.3" else ""] * 2
        assert came[-1].json["artifacts"][0]["parts"][0]["text"] == "hello"
        assert came[0].headers["content-type"] == "application/json"


@pytest.mark.parametrize("name", SPEAKERS)
def test_a_webhook_of_a_parked_task_hears_the_answer(
    wire: Any, open_wire: Any, receiver: WebhookReceiver, name: str
) -> None:
    speaker = wire.at(open_wire.url).speaker(name)
    task = parked(speaker)
    Hooks(speaker).create(task, url=receiver.url, scheme="Bearer", credentials="S3CR3T")
    speaker.send("Ada", task=task)
    came = receiver.wait_final()
    assert {each.headers["authorization"] for each in came} == {"Bearer S3CR3T"}
    assert all(each.headers["x-dragoman-signature"].startswith("ey") for each in came)
    keys = [each.headers["idempotency-key"] for each in came]
    assert len(set(keys)) == len(keys)
    assert all(key.startswith(f"{task}/") for key in keys)


@pytest.mark.parametrize("name", FOUR)
def test_a_deleted_webhook_hears_nothing_more(wire: Any, open_wire: Any, receiver: WebhookReceiver, name: str) -> None:
    speaker = wire.at(open_wire.url).speaker(name)
    task = parked(speaker)
    hooks = Hooks(speaker)
    hooks.create(task, id="gone", url=f"{receiver.url}?gone")
    hooks.create(task, id="stays", url=receiver.url)
    hooks.delete(task, "gone")
    speaker.send("Ada", task=task)
    came = receiver.wait_final()
    assert {each.headers["idempotency-key"].split("/")[1] for each in came} == {"stays"}


@pytest.mark.parametrize("name", ["1.0-rpc", "1.0-rest", "0.3-rpc"])
def test_an_answer_without_a_task_calls_no_webhook(
    wire: Any, open_wire: Any, receiver: WebhookReceiver, name: str
) -> None:
    speaker = wire.at(open_wire.url).speaker(name)
    answer = inline(speaker, Hooks(speaker).config(receiver.url), "x", tool="reply")
    assert "at once" in answer.text
    config = Hooks(speaker).config(f"{receiver.url}?second")
    inline(speaker, config, "hello", tool="echo")
    came = receiver.wait_final()
    assert len({each.headers["idempotency-key"].split("/")[0] for each in came}) == 1


def test_webhooks_are_there_after_a_restart(
    http: httpx2.Client, new_agent: Any, wire: Any, receiver: Any, tmp_path: Path
) -> None:
    settings = {"store": f"sqlite:///{tmp_path}/tasks.db", "push_allow": ["127.0.0.1"], "drain": 0}
    tasks: dict[str, str] = {}
    with ExitStack() as stack:
        url = stack.enter_context(served(new_agent(), **settings))
        for name in SPEAKERS:
            speaker = wire.at(url).speaker(name)
            tasks[name] = parked(speaker)
            Hooks(speaker).create(tasks[name], id="p", url=receiver.url, token="T0K3N")
    secrets = (tmp_path / "tasks.db").read_bytes()
    assert b"T0K3N" not in secrets
    with served(new_agent(), **settings) as url:
        for name in SPEAKERS:
            speaker = wire.at(url).speaker(name)
            assert Hooks(speaker).get(tasks[name], "p")["url"] == receiver.url
            speaker.send("Ada", task=tasks[name])
        receiver.wait_final(len(SPEAKERS))
    assert {each.headers["x-a2a-notification-token"] for each in receiver.requests} == {"T0K3N"}


# -- turned off ------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S0-19")
def test_where_webhooks_are_off_every_operation_says_so_and_so_does_the_card(new_agent: Any, wire: Any) -> None:
    with served(new_agent(), push=False) as url:
        card = wire.at(url).request("GET", "/.well-known/agent-card.json").json
        assert card["capabilities"]["pushNotifications"] is False
        for name in SPEAKERS:
            speaker = wire.at(url).speaker(name)
            task = parked(speaker)
            for answer in every_operation(Hooks(speaker), task):
                assert (answer.code, answer.reason) in (
                    (-32003, "PUSH_NOTIFICATION_NOT_SUPPORTED"),
                    (400, "PUSH_NOTIFICATION_NOT_SUPPORTED"),
                )
            answer = inline(speaker, Hooks(speaker).config(), tool="echo")
            assert answer.reason == "PUSH_NOTIFICATION_NOT_SUPPORTED"


def test_where_they_are_on_the_card_says_so(wire: Any) -> None:
    assert wire.request("GET", "/.well-known/agent-card.json").json["capabilities"]["pushNotifications"] is True
