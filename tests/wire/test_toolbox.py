"""The toolbox as its users have it: `dragoman serve` in a process of its own, over https, on one file.

What the source document gives as JSON is compared to the byte; ids and times are put in.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sqlite3
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trustme
from support.command import DRAGOMAN
from support.server_process import LAST_LINE, ServerProcess

from dragoman.compat.client import cancel_task, discover, get_task, send_task

SRC = Path(__file__).resolve().parents[2] / "src"
SECONDS = 30  # healthy answers take milliseconds, a start two seconds
OLD_CARD = "/.well-known/agent.json"
CARD = (
    '{"name":"elixir-mcp-agent","description":"An Elixir MCP server exposed via the A2A protocol",'
    '"url":"https://localhost/a2a","version":"1.0.0",'
    '"capabilities":{"streaming":false,"pushNotifications":false,"stateTransitionHistory":true},'
    '"authentication":{"schemes":["cookie"]},"defaultInputModes":["text"],"defaultOutputModes":["text"],"skills":['
    '{"id":"get_greeting","name":"get_greeting","description":"Greet somebody by name.","tags":[],"examples":[]},'
    '{"id":"current_time","name":"current_time","description":"The time now, in UTC.","tags":[],"examples":[]},'
    '{"id":"is_admin","name":"is_admin","description":"Whether you are an administrator.","tags":[],"examples":[]},'
    '{"id":"get_counter","name":"get_counter","description":"The value of the counter.","tags":[],"examples":[]},'
    '{"id":"add_numbers","name":"add_numbers","description":"Add two numbers.","tags":[],"examples":[]}]}'
)
MESSAGE = (
    '{"role":"user","parts":[{"type":"text","text":"Add 3 and 7"},'
    '{"type":"data","data":{"tool":"add_numbers","arguments":{"a":3,"b":7}}}]}'
)
TASK = (
    '{"id":"%s","status":{"state":"%s","timestamp":"%s"},"history":[' + MESSAGE.replace("%", "%%") + "],"
    '"artifacts":[{"name":"add_numbers-result","parts":[{"type":"text","text":"10"}]}]}'
)
OPEN_TOOLS = ["get_greeting", "current_time", "is_admin", "get_counter", "add_numbers"]


class Site:
    """The server, its users, and a caller."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "tasks.db"
        authority = trustme.CA()
        own = authority.issue_cert("127.0.0.1")
        own.cert_chain_pems[0].write_to_path(str(folder / "own.pem"))
        own.private_key_pem.write_to_path(str(folder / "own.key"))
        self._trust = ssl.create_default_context()
        authority.configure_trust(self._trust)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("DRAGOMAN_", "COV"))}
        self._environ = {**kept, "PYTHONPATH": str(SRC), "PYTHONUNBUFFERED": "1"}
        self._store = ["--store", f"sqlite:///{self.path}"]
        self._users("add", "ada", "--no-password", "--permission", "admin", "--permission", "counter")
        self._users("add", "bob", "--no-password")
        self.cookies = {name: self._users("cookie", name) for name in ("ada", "bob")}
        self.start()

    def _users(self, *args: str) -> str:
        command = [*DRAGOMAN, "users", *args, *self._store]
        done = subprocess.run(
            command, cwd=self.folder, env=self._environ, capture_output=True, text=True, check=True, timeout=SECONDS
        )
        return done.stdout.strip()

    def start(self) -> None:
        words = ("serve", "dragoman.examples.toolbox", *self._store, "--port", "0", "--compat", "tool-server")
        tls = ("--url", "https://localhost", "--tls-cert", "own.pem", "--tls-key", "own.key")
        self.process = ServerProcess([*DRAGOMAN, *words, *tls], self.folder, environment=self._environ)
        self.process.ready().find(LAST_LINE)
        self.url = self.process.url
        self.http = httpx2.Client(base_url=self.url, verify=self._trust, timeout=SECONDS)

    def end(self, by: signal.Signals) -> None:
        """End it: asked to with SIGTERM, as a crash would with SIGKILL."""
        self.http.close()
        self.process.end(by)

    def tools(self) -> int:
        """The process of its MCP server, which its guard has started."""
        parents: dict[int, int] = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # others come and go
                parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        for pid, parent in parents.items():
            with suppress(OSError):
                if parents.get(parent) == self.process.pid and b"toolbox" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    return pid
        raise AssertionError("there is no MCP server")

    def headers(self, user: str) -> dict[str, str]:
        return {"Cookie": f"user={self.cookies[user]}"} if user else {}

    def post(self, method: str, params: str, user: str = "ada", **headers: str) -> httpx2.Response:
        body = f'{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}'
        sent = {"Content-Type": "application/json", **self.headers(user), **headers}
        return self.http.post("/a2a", content=body.encode(), headers=sent)

    def call(self, method: str, params: Any, user: str = "ada") -> dict[str, Any]:
        answer = self.post(method, json.dumps(params), user).json()
        return answer.get("result") or answer["error"]

    def send(self, tool: str = "", user: str = "ada", text: str = "", **arguments: Any) -> dict[str, Any]:
        parts: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
        if tool:
            parts.append({"type": "data", "data": {"tool": tool, "arguments": arguments}})
        return self.call("tasks/send", {"message": {"role": "user", "parts": parts}}, user)

    def rows(self) -> list[tuple[Any, ...]]:
        """The table, as another program sees it while the server runs."""
        with closing(sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)) as reader:
            columns = "id, updated_at, user_id, state, history, artifacts"
            return reader.execute(f"SELECT {columns} FROM a2a_tasks ORDER BY id").fetchall()

    def row(self, task: str) -> tuple[Any, ...]:
        return next(row for row in self.rows() if str(row[0]) == task)

    def user_number(self, name: str) -> int:
        with closing(sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)) as reader:
            return reader.execute("SELECT user FROM users WHERE name = ?", (name,)).fetchone()[0]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("toolbox"))
    yield site
    if site.process.is_running:
        site.end(signal.SIGTERM)


# -- the card ----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement(
    "S0-4",
    "S0-10",
    "S0-14",
    "S0-15",
    "S0-16",
    "S0-17",
    "S0-18",
    "S0-19",
    "S0-20",
    "S0-21",
    "S0-22",
    "S0-23",
    "S0-24",
    "S0-25",
    "S0-26",
    "S0-27",
)
def test_the_public_card_is_the_document_s_to_the_byte(site: Site) -> None:
    answer = site.http.get(OLD_CARD)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.text == CARD


# -- tasks -------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement(
    "S0-6", "S0-29", "S0-30", "S0-35", "S0-37", "S0-38", "S0-56", "S0-57", "S0-58", "S0-59", "S0-60", "S0-61", "S1-20"
)
def test_a_sent_message_becomes_the_document_s_task_to_the_byte(site: Site) -> None:
    answer = site.post("tasks/send", f'{{"message":{MESSAGE}}}')
    task = answer.json()["result"]
    timestamp = task["status"]["timestamp"]
    assert answer.status_code == 200
    assert answer.text == f'{{"jsonrpc":"2.0","id":1,"result":{TASK % (task["id"], "completed", timestamp)}}}'
    assert re.fullmatch(r"\d{13}", task["id"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", timestamp)
    number, updated, user, state, history, artifacts = site.row(task["id"])
    assert (number, state, user) == (int(task["id"]), "completed", site.user_number("ada"))
    assert updated == round(datetime.fromisoformat(timestamp).timestamp() * 1000)
    assert history == f"[{MESSAGE}]"
    assert artifacts == '[{"name":"add_numbers-result","parts":[{"type":"text","text":"10"}]}]'


# -- its own client ----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S1-11", "S1-18", "S1-26")
def test_the_four_functions_work_one_after_another(site: Site) -> None:
    async def work() -> None:
        cookie = site.cookies["ada"]
        outcome, card = await discover(site.url)
        assert (outcome, type(card)) == ("ok", dict)
        assert card["name"] == "elixir-mcp-agent"
        assert [skill["id"] for skill in card["skills"]] == OPEN_TOOLS
        outcome, task = await send_task(
            site.url, "Add these numbers", cookie=cookie, tool="add_numbers", arguments={"a": 5, "b": 12}
        )
        assert (outcome, task["status"]["state"]) == ("ok", "completed")
        assert task["artifacts"][0] == {"name": "add_numbers-result", "parts": [{"type": "text", "text": "17"}]}
        assert await get_task(site.url, task["id"], cookie=cookie) == ("ok", task)
        outcome, canceled = await cancel_task(site.url, task["id"], cookie=cookie)
        assert (outcome, canceled["status"]["state"]) == ("ok", "canceled")
        assert await get_task(site.url, task["id"], cookie=cookie) == ("ok", canceled)
        outcome, error = await get_task(site.url, "1", cookie=cookie)
        assert (outcome, error["code"]) == ("error", -32001)
        outcome, error = await send_task(site.url, "hi", cookie="garbage")
        assert (outcome, error["code"]) == ("error", -31401)

    asyncio.run(work())


# -- a crash -----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S0-3", "S0-28", "S0-33")
def test_tasks_outlive_a_kill_and_one_at_work_has_failed(site: Site) -> None:
    done, canceled = site.send("add_numbers", a=3, b=7), site.send("get_counter")
    canceled = site.call("tasks/cancel", {"id": canceled["id"]})
    # A tool that hangs: its process stands still.
    tools = site.tools()
    os.kill(tools, signal.SIGSTOP)
    try:
        body = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tasks/sendSubscribe",
            "params": {"message": json.loads(MESSAGE)},
        }
        with site.http.stream("POST", "/a2a", json=body, headers=site.headers("ada")) as response:
            events = (json.loads(line[6:])["result"] for line in response.iter_lines() if line.startswith("data: "))
            at_work = next(event for event in events if event["status"]["state"] == "working")["id"]
            number, _, _, state, history, artifacts = site.row(at_work)
            assert (str(number), state, history, artifacts) == (at_work, "working", f"[{MESSAGE}]", "[]")
            site.end(signal.SIGKILL)
    finally:
        with suppress(ProcessLookupError):  # its guard ends it with the server
            os.kill(tools, signal.SIGKILL)
    site.start()
    assert site.call("tasks/get", {"id": done["id"]}) == done
    assert site.call("tasks/get", {"id": canceled["id"]}) == canceled
    failed = site.call("tasks/get", {"id": at_work})
    assert failed["status"]["state"] == "failed"
    assert "restart" in json.dumps(failed)
    assert site.row(at_work)[3] == "failed"
    assert site.send("add_numbers", a=1, b=1)["artifacts"][0]["parts"][0]["text"] == "2"


@pytest.mark.requirement("S0-14", "S0-15", "S0-16", "S0-48", "S0-62")
def test_started_as_a_module_it_has_the_document_s_card_without_a_setting(tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DRAGOMAN_", "COV"))}
    environment = {**kept, "PYTHONPATH": str(SRC), "DRAGOMAN_PORT": "0"}
    with ServerProcess(
        [sys.executable, "-m", "dragoman.examples.toolbox"], tmp_path, environment=environment
    ) as server:
        # The table is there before anybody has asked for anything.
        with closing(sqlite3.connect(f"file:{tmp_path / '.dragoman' / 'tasks.db'}?mode=ro", uri=True)) as reader:
            made = reader.execute("SELECT type FROM sqlite_master WHERE tbl_name = 'a2a_tasks' ORDER BY type")
            assert [kind for (kind,) in made] == ["index", "table"]
            assert reader.execute("SELECT count(*) FROM a2a_tasks").fetchone() == (0,)
        assert httpx2.get(server.url + OLD_CARD, timeout=SECONDS).text == CARD
        server.end()
