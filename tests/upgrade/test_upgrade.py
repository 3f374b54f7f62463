"""A store, a settings file and the calls of clients of an earlier version work with this one.

`make.py` made `made/` and `program/` with the commit that `made/facts.toml` names. They are never made again. What is
meant to differ since then is listed in `differences.toml`.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import tomllib
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import urlencode

import pytest
from support.command import dragoman
from support.server_process import ServerProcess
from upgrade.calls import Call, RecordedCall, Response, load, normalized
from upgrade.play import settle
from upgrade.program.trips import agent as trips
from upgrade.server import Receiver, copy_program, port_of, run_command, start_server, user_environment

from dragoman import Client, State
from dragoman.net.postgres import connect

HERE = Path(__file__).parent
MADE = HERE / "made"
FACTS = tomllib.loads((MADE / "facts.toml").read_text())
TASKS: dict[str, str] = FACTS["tasks"]
KEY = {"Content-Type": "application/json", "Authorization": f"Bearer {FACTS['key']}"}
RUNNING = [TASKS[name] for name in ("working", "queued", "report")]


class Difference(NamedTuple):
    """A text of the recorded responses that is another one now, on every store or on one."""

    calls: str
    then: str
    now: str
    reason: str
    store: str = ""


DIFFERENCES = [
    Difference(**entry) for entry in tomllib.loads((HERE / "differences.toml").read_text()).get("difference", [])
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of the user: programs, settings, store and key."""
    copy_program(tmp_path)
    for name in ("tasks.db", "tasks.db.key"):
        shutil.copy(MADE / name, tmp_path / name)
    (tmp_path / "tasks.db.key").chmod(0o600)
    # What runs and waits may end.
    (tmp_path / "go").touch()
    return tmp_path


class Store(NamedTuple):
    """How the user's commands reach the store."""

    name: str
    flags: tuple[str, ...] = ()
    environment: Mapping[str, str] = MappingProxyType({})

    def serving(self, folder: Path) -> ServerProcess:
        """Serve the user's agents from it."""
        return start_server(folder, *self.flags, **self.environment)

    def cookie(self, folder: Path) -> str:
        """A new cookie of ann."""
        return run_command(folder, "users", "cookie", "ann", *self.flags, **self.environment).strip()


def sqlite_store(request: pytest.FixtureRequest) -> Store:
    """The file of the settings."""
    return Store("sqlite")


def postgres_store(request: pytest.FixtureRequest) -> Store:
    """The dump, in a database of its own."""
    url: str = request.getfixturevalue("empty_postgres_url")
    asyncio.run(restore(url, (MADE / "postgres.sql").read_text(encoding="utf-8")))
    return Store("postgres", ("--store", url), {"DRAGOMAN_SECRET": FACTS["secret"]})


async def restore(url: str, dump: str) -> None:
    """Put a dump into an empty database."""
    connection = await connect(url)
    try:
        await connection.execute(dump)
    finally:
        await connection.close()


@pytest.fixture(params=[sqlite_store, postgres_store], ids=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> Store:
    make: Callable[[pytest.FixtureRequest], Store] = request.param
    return make(request)


def expected(recorded: RecordedCall, store: str) -> Response:
    """The recorded response, with the differences that are meant."""
    response = recorded.response
    for difference in DIFFERENCES:
        if difference.store in ("", store) and fnmatchcase(recorded.call.name, difference.calls):
            response = response._replace(body=response.body.replace(difference.then, difference.now))
    return response


@pytest.mark.timeout(60)
def test_calls_of_an_earlier_version_on_its_store_are_answered_as_at_the_time(store: Store, folder: Path) -> None:
    stored = (MADE / "tasks.db").read_bytes()
    different: list[str] = []
    with store.serving(folder) as server:
        settle(port_of(server), FACTS["key"], RUNNING)
        cookie = store.cookie(folder)
        for recorded in load(MADE / "calls.json"):
            now, then = normalized(recorded.call.send(port_of(server), cookie), stored), expected(recorded, store.name)
            if now != then:
                different.append(f"{recorded.call.name}\n  then {then}\n  now  {now}")
    assert not different, "\n".join(different)
    # What a function did once before it asked was not done again after the answers.
    assert not (folder / "tickets.txt").exists()


def test_each_difference_that_is_meant_is_one_and_says_why() -> None:
    recorded = load(MADE / "calls.json")
    for difference in DIFFERENCES:
        bodies = [each.response.body for each in recorded if fnmatchcase(each.call.name, difference.calls)]
        assert any(difference.then in body for body in bodies), difference
        assert difference.reason, difference


def test_the_recorded_calls_cover_all_states_and_versions() -> None:
    recorded = load(MADE / "calls.json")
    text = "".join(each.response.body for each in recorded)
    for state in ("COMPLETED", "FAILED", "CANCELED", "REJECTED", "INPUT_REQUIRED", "AUTH_REQUIRED"):
        assert f"TASK_STATE_{state}" in text
    methods = {json.loads(body).get("method") for each in recorded if (body := each.call.body) and body != "{"}
    assert {"tasks/send", "tasks/sendSubscribe", "message/send", "message/stream", "SendMessage"} <= methods
    assert {"SendStreamingMessage", "SubscribeToTask", "tasks/resubscribe"} <= methods
    assert {each.call.headers.get("A2A-Version") for each in recorded} >= {"1.0", "1.1", None}
    assert {each.call.path.split("/")[1] for each in recorded} >= {"v1", "tasks", "message:send", "message:stream"}
    assert {each.response.status for each in recorded} >= {200, 400, 401, 404, 413}


@pytest.mark.timeout(60)
def test_an_owed_webhook_of_an_earlier_version_is_delivered_with_its_secrets(store: Store, folder: Path) -> None:
    with Receiver(FACTS["receiver"], accepts_owed=True) as receiver, store.serving(folder):
        deliveries = receiver.wait_end("/owed")
    for delivery in deliveries:
        assert delivery.task == TASKS["owed"]
        assert delivery.headers["authorization"] == "Bearer credentials-2"
        assert delivery.headers["x-a2a-notification-token"] == "token-2"
    # The other webhook was delivered before.
    assert {each.path for each in receiver.requests} == {"/owed"}


@pytest.mark.timeout(60)
def test_users_of_an_earlier_version_log_in(store: Store, folder: Path) -> None:
    read = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": TASKS["greeting"]}})
    with store.serving(folder) as server:
        form = Call("", "GET", "/login", {}).exchange(port_of(server))
        found = re.search(r'name="csrf" value="(\w+)"', form.body)
        assert found is not None
        fields = {"csrf": found[1], "next": "login", "name": "bob", "password": FACTS["password"]}
        cookies = {"Cookie": form.cookie, "Content-Type": "application/x-www-form-urlencoded"}
        logged_in = Call("", "POST", "/login", cookies, urlencode(fields)).exchange(port_of(server))
        assert logged_in.cookie.startswith("user=")
        whose = {"Content-Type": "application/json", "Cookie": logged_in.cookie}
        # Bob is known, and the task is ann's.
        assert "Task not found" in Call("", "POST", "/", whose, read).send(port_of(server)).body
        for headers in (KEY, {"Content-Type": "application/json", "X-API-Key": FACTS["key"]}):
            assert "TASK_STATE_COMPLETED" in Call("", "POST", "/", headers, read).send(port_of(server)).body
    listed = run_command(folder, "users", "list", *store.flags, **store.environment)
    assert {"ann", "bob"} <= set(re.findall(r"\w+", listed))
    assert "eve" not in listed, "access of eve was revoked"


async def test_a_login_that_an_earlier_version_waited_for_continues_the_task(folder: Path) -> None:
    recorded = {each.call.name: each.response.body for each in load(MADE / "calls.json")}
    found = re.search(r"state=([\w.-]+)", recorded["login, 1.0"])
    assert found is not None
    app = trips.app(store=f"sqlite:///{folder / 'tasks.db'}", auth=["bearer"], drain=0)
    async with Client(app, auth=FACTS["key"]) as client:
        assert (await client.get_task(TASKS["login"])).status.state is State.AUTH_REQUIRED
        await app.resume(found[1], {"name": "Ann"})
        task = await client.wait(TASKS["login"])
        assert task.text == "logged in as {'name': 'Ann'}"


def test_a_remote_of_an_earlier_settings_file_is_called_by_its_name(folder: Path) -> None:
    ended = dragoman(folder, "send", "shop", "hi", environment=user_environment(SHOP_TOKEN="secret"))
    assert ended.returncode
    assert "127.0.0.1:9" in ended.stderr
