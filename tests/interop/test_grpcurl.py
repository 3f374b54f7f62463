"""grpcurl, and with it whatever else reads a server's reflection: it lists, describes and calls with nothing else."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import urlopen

import pytest
import trustme
from docs import examples

from dragoman import Agent, Context, Server, User
from dragoman.model.error import Unauthenticated
from dragoman.testing import served

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / ".peers" / "grpcurl" / "grpcurl"
SECONDS = 30
V1, V03 = "lf.a2a.v1.A2AService", "a2a.v1.A2AService"
HEALTH = "grpc.health.v1.Health"
HOOK = "https://hooks.example/a2a"

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not PROGRAM.exists(), reason="grpcurl is not built: make interop"),
]


class Answer(NamedTuple):
    """What grpcurl printed: the messages, and the error if there was one."""

    messages: list[Any]
    error: str

    @property
    def message(self) -> Any:
        assert len(self.messages) == 1, self
        return self.messages[0]


class Grpcurl:
    """grpcurl, with the address of a server and nothing else."""

    def __init__(self, address: str, *flags: str) -> None:
        self.address = address
        self.flags = flags or ("-plaintext",)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=SECONDS, check=False)

    def text(self, *words: str) -> str:
        done = self.run(*self.flags, self.address, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def call(self, method: str, data: Any = None, *flags: str) -> Answer:
        given = () if data is None else ("-d", json.dumps(data))
        done = self.run(*self.flags, *flags, *given, self.address, method)
        assert bool(done.returncode) == bool(done.stderr), done
        return Answer(list(parsed(done.stdout)), done.stderr)


def parsed(text: str) -> Iterator[Any]:
    """The JSON values of a text, one after the other."""
    decoder, start = json.JSONDecoder(), 0
    while (text := text[start:].lstrip()) and text[0] == "{":
        value, start = decoder.raw_decode(text)
        yield value


def agent() -> Agent:
    made = Agent("trips", description="Plans trips")

    @made.skill
    async def plan(ctx: Context, city: str):
        days = await ctx.ask("How many days?", type=int)
        for day in range(1, days + 1):
            yield f"Day {day} in {city}. "

    return made


def grpc_address(url: str) -> str:
    with urlopen(f"{url}/.well-known/agent-card.json") as response:
        card = json.load(response)
    return next(each["url"] for each in card["supportedInterfaces"] if each["protocolBinding"] == "GRPC")


@pytest.fixture(scope="module")
def grpcurl() -> Iterator[Grpcurl]:
    with served(agent(), grpc="127.0.0.1:0", push=True) as url:
        yield Grpcurl(grpc_address(url))


# -- the schema ------------------------------------------------------------------------------------------------------


def test_it_lists_every_service_and_every_method(grpcurl: Grpcurl) -> None:
    services = grpcurl.text("list").split()
    assert services == [
        V03, HEALTH, "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection", V1,
    ]  # fmt: skip
    methods = {service: grpcurl.text("list", service).split() for service in (V1, V03)}
    assert [name.removeprefix(f"{V1}.") for name in methods[V1]] == [
        "CancelTask", "CreateTaskPushNotificationConfig", "DeleteTaskPushNotificationConfig", "GetExtendedAgentCard",
        "GetTask", "GetTaskPushNotificationConfig", "ListTaskPushNotificationConfigs", "ListTasks", "SendMessage",
        "SendStreamingMessage", "SubscribeToTask",
    ]  # fmt: skip
    assert [name.removeprefix(f"{V03}.") for name in methods[V03]] == [
        "CancelTask", "CreateTaskPushNotificationConfig", "DeleteTaskPushNotificationConfig", "GetAgentCard",
        "GetTask", "GetTaskPushNotificationConfig", "ListTaskPushNotificationConfig", "SendMessage",
        "SendStreamingMessage", "TaskSubscription",
    ]  # fmt: skip


@pytest.mark.parametrize("service", [V1, V03, HEALTH, "grpc.reflection.v1.ServerReflection"])
def test_it_describes_every_message_that_a_service_uses(grpcurl: Grpcurl, service: str) -> None:
    described: set[str] = set()
    ahead = [service]
    while ahead:
        symbol = ahead.pop()
        described.add(symbol)
        text = grpcurl.text("describe", symbol)
        found = {word.strip(",>") for word in text.replace("<", " ").split() if word.startswith(".")}
        ahead += [name[1:] for name in found if name[1:] not in described and name[1:] not in ahead]
    assert len(described) > 3


@pytest.mark.parametrize(
    ("symbol", "lines"),
    [
        ("lf.a2a.v1.Message", ["string message_id = 1;", "repeated .lf.a2a.v1.Part parts = 5;"]),
        ("lf.a2a.v1.Part", ["oneof content {", ".google.protobuf.Value data = 4;", "string media_type = 7;"]),
        ("lf.a2a.v1.GetTaskRequest", ["optional int32 history_length = 3;"]),
        ("lf.a2a.v1.AgentCard", ["map<string, .lf.a2a.v1.SecurityScheme> security_schemes = 8;"]),
        ("lf.a2a.v1.TaskState", ["TASK_STATE_CANCELED = 5;"]),
        ("a2a.v1.Message", ["repeated .a2a.v1.Part content = 5;"]),
        ("a2a.v1.TaskState", ["TASK_STATE_CANCELLED = 5;"]),
        (f"{V1}.SendStreamingMessage", ["returns ( stream .lf.a2a.v1.StreamResponse );"]),
    ],
)
def test_it_describes_a_symbol_in_the_names_of_the_specification(
    grpcurl: Grpcurl, symbol: str, lines: list[str]
) -> None:
    text = " ".join(grpcurl.text("describe", symbol).split())
    assert [line for line in lines if line not in text] == []


def test_it_shows_what_a_request_looks_like(grpcurl: Grpcurl) -> None:
    shown = grpcurl.run(*grpcurl.flags, "-msg-template", grpcurl.address, "describe", "lf.a2a.v1.SendMessageRequest")
    template = json.loads(shown.stdout.partition("Message template:")[2])
    assert "returnImmediately" in template["configuration"]


# -- every operation -------------------------------------------------------------------------------------------------


def test_it_calls_every_operation_of_1_0(grpcurl: Grpcurl) -> None:
    asked = grpcurl.call(f"{V1}/SendMessage", {"message": message("m1", parts=[{"text": "Lisbon"}])}).message["task"]
    assert asked["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    task, name = {"id": asked["id"]}, {"taskId": asked["id"], "id": "w1"}
    hook = grpcurl.call(f"{V1}/CreateTaskPushNotificationConfig", {**name, "url": HOOK, "token": "t"}).message
    assert (hook["id"], hook["url"]) == ("w1", HOOK)
    assert grpcurl.call(f"{V1}/GetTaskPushNotificationConfig", name).message["url"] == HOOK
    listed = grpcurl.call(f"{V1}/ListTaskPushNotificationConfigs", {"taskId": asked["id"]}).message
    assert [each["id"] for each in listed["configs"]] == ["w1"]
    assert grpcurl.call(f"{V1}/DeleteTaskPushNotificationConfig", name).message == {}

    answer = message("m2", taskId=asked["id"], parts=[{"text": "2"}])
    events = grpcurl.call(f"{V1}/SendStreamingMessage", {"message": answer}).messages
    assert [next(iter(event)) for event in events] == ["task", "artifactUpdate", "artifactUpdate", "statusUpdate"]
    text = "".join(part["text"] for event in events[1:3] for part in event["artifactUpdate"]["artifact"]["parts"])
    assert text == "Day 1 in Lisbon. Day 2 in Lisbon. "
    done = grpcurl.call(f"{V1}/GetTask", {**task, "historyLength": 1}).message
    assert (done["status"]["state"], len(done["history"])) == ("TASK_STATE_COMPLETED", 1)
    rest = grpcurl.call(f"{V1}/SubscribeToTask", task, "-H", "last-event-id: 5").messages
    assert rest == events[2:]

    other = grpcurl.call(f"{V1}/SendMessage", {"message": message("m3", parts=[{"text": "Porto"}])}).message["task"]
    assert grpcurl.call(f"{V1}/CancelTask", {"id": other["id"]}).message["status"]["state"] == "TASK_STATE_CANCELED"
    page = grpcurl.call(f"{V1}/ListTasks", {"contextId": other["contextId"], "pageSize": 10}).message
    assert ([each["id"] for each in page["tasks"]], page["totalSize"]) == ([other["id"]], 1)
    assert "Code: FailedPrecondition" in grpcurl.call(f"{V1}/GetExtendedAgentCard").error


def test_it_calls_every_operation_of_0_3(grpcurl: Grpcurl) -> None:
    asked = grpcurl.call(f"{V03}/SendMessage", {"request": message("m1", content=[{"text": "Faro"}])}).message["task"]
    assert asked["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    task = {"name": f"tasks/{asked['id']}"}
    parent = {"parent": task["name"]}
    config = {"pushNotificationConfig": {"id": "w1", "url": HOOK}}
    hook = grpcurl.call(
        f"{V03}/CreateTaskPushNotificationConfig", {**parent, "configId": "w1", "config": config}
    ).message
    assert hook["name"] == f"{task['name']}/pushNotificationConfigs/w1"
    assert grpcurl.call(f"{V03}/GetTaskPushNotificationConfig", {"name": hook["name"]}).message == hook
    listed = grpcurl.call(f"{V03}/ListTaskPushNotificationConfig", parent).message
    assert [each["name"] for each in listed["configs"]] == [hook["name"]]
    assert grpcurl.call(f"{V03}/DeleteTaskPushNotificationConfig", {"name": hook["name"]}).message == {}

    answer = message("m2", taskId=asked["id"], content=[{"text": "1"}])
    events = grpcurl.call(f"{V03}/SendStreamingMessage", {"request": answer}).messages
    assert next(iter(events[0])) == "task"
    assert events[-1]["statusUpdate"]["final"] is True
    assert grpcurl.call(f"{V03}/GetTask", task).message["status"]["state"] == "TASK_STATE_COMPLETED"
    rest = grpcurl.call(f"{V03}/TaskSubscription", task, "-H", "last-event-id: 4").messages
    assert rest == events[1:]

    other = grpcurl.call(f"{V03}/SendMessage", {"request": message("m3", content=[{"text": "Porto"}])}).message["task"]
    canceled = grpcurl.call(f"{V03}/CancelTask", {"name": f"tasks/{other['id']}"}).message
    assert canceled["status"]["state"] == "TASK_STATE_CANCELLED"
    card = grpcurl.call(f"{V03}/GetAgentCard").message
    assert (card["name"], card["protocolVersion"]) == ("trips", "0.3.0")


def message(message_id: str, **members: Any) -> dict[str, Any]:
    return {"messageId": message_id, "role": "ROLE_USER", **members}


# -- errors, health, TLS ---------------------------------------------------------------------------------------------


def test_the_details_of_an_error_are_decoded(grpcurl: Grpcurl) -> None:
    error = grpcurl.call(f"{V1}/GetTask", {"id": "nobody"}).error
    assert "Code: NotFound" in error
    details = next(parsed(error.partition("1)")[2]))
    assert details == {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "domain": "a2a-protocol.org",
        "reason": "TASK_NOT_FOUND",
        "metadata": {"taskId": "nobody"},
    }
    empty = grpcurl.call(f"{V1}/SendMessage", {"message": message("m1")}).error
    violation = next(parsed(empty.partition("2)")[2]))
    assert violation["@type"] == "type.googleapis.com/google.rpc.BadRequest"
    assert violation["fieldViolations"][0]["field"] == "message.parts"


def test_health_needs_no_schema_and_no_credentials() -> None:
    async def nobody(request: Any) -> User | None:
        raise Unauthenticated

    with served(agent(), grpc="127.0.0.1:0", auth=nobody) as url:
        stranger = Grpcurl(grpc_address(url))
        assert stranger.call(f"{HEALTH}/Check").message == {"status": "SERVING"}
        assert stranger.call(f"{HEALTH}/Check", {"service": V1}).message == {"status": "SERVING"}
        assert "Code: NotFound" in stranger.call(f"{HEALTH}/Check", {"service": "a2a"}).error
        assert V1 in stranger.text("list")
        assert "Code: Unauthenticated" in stranger.call(f"{V1}/GetTask", {"id": "x"}).error


def test_with_tls_it_needs_the_authority_and_with_mtls_a_certificate_of_its_own(tmp_path: Path) -> None:
    authority = trustme.CA()
    files = {name: str(tmp_path / name) for name in ("ca.pem", "server.pem", "me.pem", "me.key")}
    authority.cert_pem.write_to_path(files["ca.pem"])
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(files["server.pem"])
    mine = authority.issue_cert("me@example.org")
    mine.cert_chain_pems[0].write_to_path(files["me.pem"])
    mine.private_key_pem.write_to_path(files["me.key"])
    trusting = ("-cacert", files["ca.pem"])
    with served(agent(), grpc="127.0.0.1:0", tls_cert=files["server.pem"]) as url:
        address = grpc_address(url)
        assert V1 in Grpcurl(address, *trusting).text("list")
        assert "Failed to dial" in Grpcurl(address, "-plaintext", "-connect-timeout", "1").call("list").error
    with served(agent(), grpc="127.0.0.1:0", tls_cert=files["server.pem"], tls_ca=files["ca.pem"]) as url:
        address = grpc_address(url)
        shown = Grpcurl(address, *trusting, "-cert", files["me.pem"], "-key", files["me.key"])
        assert shown.call(f"{HEALTH}/Check").message == {"status": "SERVING"}
        refused = Grpcurl(address, *trusting, "-connect-timeout", "1").call(f"{HEALTH}/Check").error
        assert "certificate required" in refused or "Failed to dial" in refused


@pytest.mark.parametrize(("tenant", "text"), [("", "one: hi"), ("two", "two: hi"), ("two/acme", "two: hi")])
def test_the_tenant_chooses_one_of_several_agents(tenant: str, text: str) -> None:
    with served(Server(echo("one"), echo("two")), grpc="127.0.0.1:0") as url:
        request = {"tenant": tenant, "message": message("m1", parts=[{"text": "hi"}])}
        task = Grpcurl(grpc_address(url)).call(f"{V1}/SendMessage", request).message["task"]
    assert task["artifacts"][0]["parts"] == [{"text": text}]


def echo(name: str) -> Agent:
    made = Agent(name, description="Echoes")

    @made.skill
    def say(text: str) -> str:
        return f"{name}: {text}"

    return made


# -- the page --------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(120)
def test_every_line_for_grpcurl_in_the_documentation_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{PROGRAM.parent}{os.pathsep}{os.environ['PATH']}")
    examples.Reader(tmp_path).read(ROOT / "docs" / "protocols.md")
