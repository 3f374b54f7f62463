"""An agent made from tools, as callers of 0.1 see it: one short form of a task, and a table with a row for each."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.webhook_receiver import WebhookReceiver

from dragoman import Agent, Context, Rejected, Server, User
from dragoman.auth.inbound.cookie import seal_cookie
from dragoman.auth.inbound.passwords import key_digest, new_key
from dragoman.clock import SystemClock, milliseconds
from dragoman.errors import Failed
from dragoman.keys.ring import KeyRing
from dragoman.model.card import AgentSkill
from dragoman.model.part import Part
from dragoman.server.agent.base import Backend
from dragoman.stores.sqlite.admin.users import SqliteUsers
from dragoman.testing import served

SECRET = "dk1_" + "s" * 43  # as if it were generated: no slow derivation
WORDS = {"submitted", "working", "completed", "failed", "canceled"}
NOT_FOUND, NOT_CANCELABLE, UNKNOWN_CALLER = -32001, -32002, -31401


class Tool(NamedTuple):
    """One tool, as the card shows it."""

    id: str
    permission: str | None = None
    default: bool = False

    @property
    def name(self) -> str:
        return self.id

    @property
    def description(self) -> str:
        return f"Does {self.id}"

    def card(self) -> AgentSkill:
        return AgentSkill(self.id, self.id, self.description, ("test",))

    def sample(self) -> dict[str, Any]:
        return {"data": {"tool": self.id}}


class Tools:
    """Plain functions where other servers would be."""

    revision = 1
    about = ("Some tools", "1.0.0")
    asks_within_calls = False

    def __init__(self, *more: Tool) -> None:
        names = ("echo", "two", "wait", "give_up", "fall", "refuse")
        self.offers: Sequence[Tool] = (*(Tool(name, default=name == "echo") for name in names), *more)
        self.calls: list[str] = []

    def schemas(self, ids: Sequence[str]) -> Mapping[str, Any]:
        return {}

    def restarts(self, ctx: Context) -> bool:
        return False

    async def canceled(self, ref: Any) -> None:
        """Nothing waits here."""

    async def open(self) -> None:
        """They are there."""

    async def close(self) -> None:
        """Nothing is held."""

    async def run(self, ctx: Context) -> AsyncIterator[Any]:
        data = next((part.data for part in ctx.message.parts if part.kind == "data"), {})
        ctx.skill = data.get("tool", "echo")
        self.calls.append(ctx.skill)
        match ctx.skill:
            case "two":
                yield (Part(text="one"), Part(data={"two": 2}))
            case "wait":
                await asyncio.Event().wait()
            case "give_up":
                yield Part(text="the disk is full")
                raise Failed("the disk is full")
            case "fall":
                raise Failed("there is no such thing")
            case "refuse":
                raise Rejected("not today")
            case _:
                yield Part(text=ctx.message.text)


def tool_agent(*more: Tool, name: str = "tools") -> Agent:
    tools = Tools(*more)
    return Agent(name, Backend(tools.run, tools=tools), description="Made from tools")


def table(path: Path) -> list[dict[str, Any]]:
    """The rows, read by another connection than the server's."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as reader:
        reader.row_factory = sqlite3.Row
        return [dict(row) for row in reader.execute("SELECT * FROM a2a_tasks ORDER BY id")]


def row_of(path: Path, task: Any) -> dict[str, Any]:
    return next(row for row in table(path) if str(row["id"]) == task["id"])


class Desk:
    """A server of tools with its file, and the oldest calls to it."""

    def __init__(self, wire: Any, path: Path) -> None:
        self.wire = wire
        self.path = path

    def ask(self, method: str, params: Any = None, *, at: str = "/a2a", **headers: str) -> Any:
        return self.wire.rpc(method, params, path=at, **headers)

    def send(self, tool: str = "", text: str = "hi", *, at: str = "/a2a", more: Any = None) -> Any:
        parts: list[Any] = [{"type": "text", "text": text}]
        if tool:
            parts.append({"type": "data", "data": {"tool": tool}})
        return self.ask("tasks/send", {"message": {"role": "user", "parts": parts}, **(more or {})}, at=at).result

    def get(self, task: Any, **headers: str) -> Any:
        return self.ask("tasks/get", {"id": task["id"]}, **headers).result

    def cancel(self, task: Any) -> Any:
        return self.ask("tasks/cancel", {"id": task["id"]}).result

    def row(self, task: Any) -> dict[str, Any]:
        return row_of(self.path, task)

    @contextmanager
    def running(self) -> Iterator[Any]:
        """A task whose tool does not end, as the first event of its stream shows it."""
        message = {"role": "user", "parts": [{"type": "data", "data": {"tool": "wait"}}]}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tasks/sendSubscribe", "params": {"message": message}}
        with self.wire.reading("POST", "/a2a", json=body) as reading:
            events = iter(reading)
            first = next(events).json["result"]
            while first["status"]["state"] == "submitted":
                first = next(events).json["result"]
            yield first


async def somebody(request: Any) -> User | None:
    return User("7")


@contextmanager
def desk_of(wire: Any, path: Path, *agents: Agent, **settings: Any) -> Iterator[Desk]:
    given = {"store": f"sqlite:///{path}", "drain": 0, "auth": somebody, "compat": "tool-server", **settings}
    with served(Server(*(agents or (tool_agent(),))), **given) as url:
        yield Desk(wire.at(url), path)


def cookie_of(path: Path, name: str) -> str:
    """A new user of the store, and the cookie that says so."""
    users = SqliteUsers(path)
    users.prepare()
    users.add(name)
    account = users.account(name)
    assert account is not None
    return seal_cookie(KeyRing.from_text(SECRET), account, SystemClock())


@pytest.fixture(scope="module")
def desk(wire: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with desk_of(wire, tmp_path_factory.mktemp("tools") / "t.db") as desk:
        yield desk


# -- the form of a task ------------------------------------------------------------------------------------------------


def shape(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: shape(each) for key, each in value.items()}
    return [shape(each) for each in value] if isinstance(value, list) else None


@pytest.mark.requirement("S0-7", "S0-8", "S0-41", "S0-56")
@pytest.mark.parametrize("tool", ["echo", "two", "give_up"])
def test_send_get_and_cancel_answer_in_the_same_form(desk: Desk, tool: str) -> None:
    sent = desk.send(tool)
    got = desk.get(sent)
    assert got == sent
    canceled = desk.cancel(sent)
    assert shape(canceled) == shape(sent)
    assert set(sent) == {"id", "status", "history", "artifacts"}
    assert set(sent["status"]) == {"state", "timestamp"}
    assert {**canceled, "status": sent["status"]} == sent


def test_other_versions_show_such_a_task_in_their_own_form(desk: Desk) -> None:
    task = desk.send("echo", "hello")
    modern = desk.ask("GetTask", {"id": task["id"]}).result
    assert (modern["contextId"], modern["status"]["state"]) == (task["id"], "TASK_STATE_COMPLETED")
    older = desk.get(task, **{"A2A-Version": "0.3"})
    assert (older["kind"], older["artifacts"][0]["parts"]) == ("task", [{"kind": "text", "text": "hello"}])
    assert desk.get(task, **{"A2A-Version": "0.1"}) == task


# -- the table ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S0-35", "S0-50", "S0-54", "S0-55", "S0-57", "S0-58")
@pytest.mark.parametrize("tool", ["echo", "two", "give_up", "fall"])
def test_the_row_of_a_task_says_what_its_answer_says(desk: Desk, tool: str) -> None:
    task = desk.send(tool)
    row = desk.row(task)
    assert set(row) == {"id", "updated_at", "user_id", "state", "history", "artifacts"}
    assert (str(row["id"]), row["state"], row["user_id"]) == (task["id"], task["status"]["state"], 7)
    assert row["updated_at"] == milliseconds(task["status"]["timestamp"])
    assert (json.loads(row["history"]), json.loads(row["artifacts"])) == (task["history"], task["artifacts"])


@pytest.mark.requirement("S0-28", "S0-53")
def test_a_row_holds_one_of_five_words(desk: Desk) -> None:
    ends = {tool: desk.send(tool)["status"]["state"] for tool in ("echo", "give_up", "fall", "refuse")}
    assert ends == {"echo": "completed", "give_up": "failed", "fall": "failed", "refuse": "failed"}
    with desk.running() as task:
        assert (desk.row(task)["state"], desk.get(task)["status"]["state"]) == ("working", "working")
        desk.cancel(task)
    assert {row["state"] for row in table(desk.path)} <= WORDS


@pytest.mark.requirement("S0-49")
def test_tasks_of_one_moment_have_ids_of_their_own(desk: Desk) -> None:
    before = SystemClock().now()
    with ThreadPoolExecutor(8) as pool:
        ids = [int(task["id"]) for task in pool.map(lambda _: desk.send("echo"), range(40))]
    assert len(set(ids)) == 40
    assert all(before <= number <= SystemClock().now() + 40 for number in ids)


def test_an_id_the_caller_chose_is_a_row_when_it_is_a_number(desk: Desk) -> None:
    for given in ("4711", "my-task", "007", "٣"):
        task = desk.send("echo", more={"id": given})
        assert (task["id"], desk.get(task)) == (given, task)
        assert any(str(row["id"]) == given for row in table(desk.path)) is (given == "4711")
    named = {"id": "my-task"}
    assert desk.ask("tasks/cancel", named).code == NOT_CANCELABLE  # it has ended, and has no row
    assert {7, 3}.isdisjoint(row["id"] for row in table(desk.path))


def test_an_id_that_a_caller_took_in_advance_is_passed_over(desk: Desk) -> None:
    soon = SystemClock().now() + 60_000
    desk.send("echo", more={"id": str(soon)})
    assert int(desk.send("echo")["id"]) < soon


def test_tasks_of_other_versions_and_other_agents_have_no_row(wire: Any, new_agent: Any, tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with desk_of(wire, path, tool_agent(), new_agent("plain")) as desk:
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
        assert desk.ask("SendMessage", {"message": message}).result["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
        old = {"message": {**message, "role": "user", "parts": [{"kind": "text", "text": "hi"}]}}
        assert desk.ask("message/send", old).result["status"]["state"] == "completed"
        plain = desk.send("echo", at="/agents/plain/a2a")
        assert len(plain["id"]) == 36
        assert "sessionId" in plain
        assert desk.ask("tasks/cancel", {"id": plain["id"]}, at="/agents/plain/").code == NOT_CANCELABLE
        assert table(path) == []


# -- whose it is -------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S0-51")
def test_a_row_belongs_to_its_caller(wire: Any, tmp_path: Path) -> None:
    async def who(request: Any) -> User | None:
        return User(request.headers["x-user"]) if "x-user" in request.headers else None

    path = tmp_path / "t.db"
    with desk_of(wire, path, auth=who) as desk:
        found: list[int] = []
        for name in ("42", "ada", "bob", "ada"):
            task = desk.ask("tasks/send", {"message": "hi"}, **{"x-user": name}).result
            found.append(desk.row(task)["user_id"])
            for method in ("tasks/get", "tasks/cancel"):
                other = desk.ask(method, {"id": task["id"]}, **{"x-user": "eve"})
                assert (other.code, other.status) == (NOT_FOUND, 200)
        assert found[0] == 42
        assert found[1] == found[3] != found[2]
        assert all(0 < number < 2**52 for number in found)


@pytest.mark.requirement("S0-51")
def test_a_user_of_the_store_is_known_by_the_key_of_the_users_table(wire: Any, tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    users, keys = SqliteUsers(path), {name: new_key() for name in ("ada", "bob")}
    users.prepare()
    for name, key in keys.items():
        users.add(name)
        users.add_key(name, key_digest(key), key[-4:])
    with desk_of(wire, path, auth="bearer", secret=SECRET) as desk:
        for name, key in keys.items():
            headers = {"Authorization": f"Bearer {key}"}
            task = desk.ask("tasks/send", {"message": "hi"}, **headers).result
            with closing(sqlite3.connect(path)) as reader:
                owner = "SELECT name FROM users JOIN a2a_tasks ON user = user_id WHERE id = ?"
                assert reader.execute(owner, (int(task["id"]),)).fetchone() == (name,)


OLDEST = ("tasks/send", "tasks/sendSubscribe", "tasks/get", "tasks/cancel", "tasks/resubscribe")
PUSHES = ("tasks/pushNotification/set", "tasks/pushNotification/get")


@pytest.mark.requirement("S0-5")
def test_where_the_cookie_counts_strangers_ask_no_tool_in_the_oldest_words(wire: Any, tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    cookie = cookie_of(path, "ada")
    agent = tool_agent(Tool("vault", permission="vault-key"))
    with desk_of(wire, path, agent, secret=SECRET, auth=None) as desk:
        params = {"id": "1", "message": "hi", "pushNotificationConfig": {"url": "https://example.com"}}
        for asked in ({}, {"A2A-Version": "0.1"}):
            for method in (*OLDEST, *PUSHES):
                refused = desk.ask(method, params, **asked)
                assert (refused.status, refused.code, refused.reason) == (401, UNKNOWN_CALLER, "UNAUTHENTICATED")
                assert refused.headers["www-authenticate"] == 'Cookie realm="dragoman", cookie-name="user"'
                assert refused.json["error"]["message"].endswith("of the agent's card: cookie")
                assert refused.json["id"] == 1
        for wrong in ("garbage", cookie[:-2] + "xx", ""):
            assert desk.ask("tasks/send", {"message": "hi"}, Cookie=f"user={wrong}").status == 401
        assert table(path) == []
        assert agent.tools.calls == []
        known = desk.ask("tasks/send", {"message": "hi"}, Cookie=f"user={cookie}").result
        assert row_of(path, known)["state"] == "completed"
        # Elsewhere strangers may ask what is public.
        stranger = desk.ask("tasks/send", {"message": "hi"}, at="/").result
        assert stranger["status"]["state"] == "completed"
        # All strangers are one owner: what one of them did must not be found by guessing a time.
        assert len(stranger["id"]) == 36
        assert [row["id"] for row in table(path)] == [int(known["id"])]
        assert desk.ask("tasks/get", {"id": known["id"]}, at="/", **{"A2A-Version": "0.3"}).code == NOT_FOUND


@pytest.mark.requirement("S0-5")
def test_where_the_cookie_counts_it_does_for_every_method_and_version(wire: Any, tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    cookie = cookie_of(path, "ada")
    agent = tool_agent(Tool("vault", permission="vault-key"))
    kind = {"messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "hi"}]}
    role = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
    calls: list[tuple[str, Any, dict[str, str]]] = [
        ("message/send", {"message": kind}, {}),
        ("message/stream", {"message": kind}, {}),
        ("message/send", {"message": kind}, {"A2A-Version": "0.3"}),
        ("SendMessage", {"message": role}, {"A2A-Version": "1.0"}),
        ("SendStreamingMessage", {"message": role}, {"A2A-Version": "1.1"}),
        ("SendMessage", {"message": role}, {}),
        ("GetTask", {"id": "1"}, {}),
        ("ListTasks", {}, {}),
        ("agent/getAuthenticatedExtendedCard", {}, {}),
        ("tasks/nothing", {}, {}),
    ]
    with desk_of(wire, path, agent, secret=SECRET, auth=None) as desk:
        for method, params, asked in calls:
            refused = desk.ask(method, params, **asked)
            assert (refused.status, refused.code) == (401, UNKNOWN_CALLER), method
            assert refused.headers["www-authenticate"] == 'Cookie realm="dragoman", cookie-name="user"'
        assert agent.tools.calls == []
        # With the cookie, and on the other paths, where the server is open, they are answered.
        sent = desk.ask("message/send", {"message": kind}, Cookie=f"user={cookie}").result
        assert sent["status"]["state"] == "completed"
        modern = desk.ask("SendMessage", {"message": role}, at="/")
        assert modern.result["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
        assert "www-authenticate" not in modern.headers


# -- reading and canceling ---------------------------------------------------------------------------------------------


@pytest.mark.requirement("S0-44")
def test_a_running_task_is_canceled_for_everybody(desk: Desk) -> None:
    with desk.running() as begun:
        task = desk.cancel(begun)
    assert task["status"]["state"] == "canceled"
    assert desk.get(task) == task
    row = desk.row(task)
    assert (row["state"], row["updated_at"]) == ("canceled", milliseconds(task["status"]["timestamp"]))
    assert desk.ask("GetTask", {"id": task["id"]}).result["status"]["state"] == "TASK_STATE_CANCELED"


@pytest.mark.requirement("S0-44", "S0-45")
def test_an_ended_task_is_canceled_in_the_table_alone(desk: Desk) -> None:
    sent = desk.send("echo")
    before = desk.row(sent)
    task = desk.cancel(sent)
    assert task["status"]["state"] == "canceled"
    assert task["artifacts"] == sent["artifacts"]
    assert desk.get(task) == task
    row = desk.row(task)
    assert row["updated_at"] > before["updated_at"]
    assert row == {**before, "state": "canceled", "updated_at": milliseconds(task["status"]["timestamp"])}
    # The others go on seeing how it ended, and may not cancel it.
    assert desk.ask("GetTask", {"id": task["id"]}).result["status"]["state"] == "TASK_STATE_COMPLETED"
    assert desk.ask("CancelTask", {"id": task["id"]}).code == NOT_CANCELABLE
    old = {"A2A-Version": "0.3"}
    assert desk.get(task, **old)["status"]["state"] == "completed"
    assert desk.ask("tasks/cancel", {"id": task["id"]}, **old).code == NOT_CANCELABLE
    again = desk.cancel(task)
    assert (again["status"]["state"], desk.get(task)) == ("canceled", again)


@pytest.mark.requirement("S0-3")
def test_what_was_answered_is_answered_after_a_restart(wire: Any, tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with desk_of(wire, path) as desk:
        done, failed = desk.send("echo"), desk.send("give_up")
        canceled = desk.cancel(desk.send("echo"))
        with desk.running() as running:
            pass
        rows = table(path)
    with desk_of(wire, path) as desk:
        for task in (done, failed, canceled):
            assert desk.get(task) == task
        interrupted = desk.get(running)
        assert interrupted["status"]["state"] == desk.row(running)["state"] == "failed"
        assert interrupted["status"]["message"]["parts"] == [{"type": "text", "text": "interrupted by a restart"}]
        assert desk.row(running)["updated_at"] == milliseconds(interrupted["status"]["timestamp"])
        assert [row for row in table(path) if str(row["id"]) != running["id"]] == rows[:-1]
        assert int(desk.send("echo")["id"]) > rows[-1]["id"]
        assert desk.ask("CancelTask", {"id": canceled["id"]}).code == NOT_CANCELABLE


# -- streams and webhooks ----------------------------------------------------------------------------------------------


def test_a_stream_of_such_a_task_is_plain_0_1(desk: Desk, like: Any) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tasks/sendSubscribe", "params": {"message": "hello"}}
    with desk.wire.reading("POST", "/a2a", json=body) as reading:
        events = [event.json["result"] for event in reading]
    assert [event["status"]["state"] for event in events if "status" in event] == ["submitted", "working", "completed"]
    artifact = next(event["artifact"] for event in events if "artifact" in event)
    assert artifact == {"name": "echo-result", "parts": [{"type": "text", "text": "hello"}], "lastChunk": True}
    assert events[-1] == {
        "id": events[0]["id"],
        "status": {"state": "completed", "timestamp": like.time},
        "final": True,
    }
    task = desk.get(events[0])
    assert task["status"]["timestamp"] == events[-1]["status"]["timestamp"]
    resumed = {**body, "method": "tasks/resubscribe", "params": {"id": task["id"]}}
    with desk.wire.reading("POST", "/a2a", json=resumed, headers={"Last-Event-ID": "2"}) as reading:
        assert [event.json["result"] for event in reading] == events[2:]


def test_the_webhook_of_such_a_task_gets_plain_0_1(wire: Any, tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with WebhookReceiver() as receiver, desk_of(wire, path, push_allow=[f"127.0.0.1:{receiver.port}"]) as desk:
        url = receiver.url
        params = {"message": "hello", "pushNotification": {"url": url}}
        task = desk.ask("tasks/send", params).result
        deliveries = receiver.wait_final()
        assert [each.state for each in deliveries] == ["working", "completed"]
        assert deliveries[-1].json["artifacts"] == task["artifacts"]
        # One of 0.1 has one webhook: another takes its place.
        desk.ask("tasks/pushNotification/set", {"id": task["id"], "pushNotificationConfig": {"url": f"{url}/2"}})
        shown = desk.ask("tasks/pushNotification/get", {"id": task["id"]}).result
        assert shown["pushNotificationConfig"]["url"] == f"{url}/2"
        with closing(sqlite3.connect(path)) as reader:
            assert reader.execute("SELECT dialect, url FROM pushes").fetchall() == [("0.1", f"{url}/2")]
