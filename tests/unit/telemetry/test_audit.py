"""The audit log tells what happened in one line, whatever is in it."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dragoman import Agent, Context, User
from dragoman.net.asgi import AsgiClient
from dragoman.net.exchange import HttpRequest
from dragoman.telemetry.audit import Audit
from dragoman.telemetry.logs import configure


def test_a_name_cannot_begin_another_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    name = 'eve"\r\nevent=signed-in user=root\u2028'
    Audit().record_denial(scheme="basic", reason="locked", user=name, address="203.0.113.9")
    (record,) = caplog.records
    assert record.name == "dragoman.audit"
    fields = 'user="eve\\"\ufffd\ufffdevent=signed-in user=root\ufffd"'
    assert record.getMessage() == f"event=denied {fields} scheme=basic reason=locked address=203.0.113.9"
    assert record.__dict__["address"] == "203.0.113.9"
    assert record.levelno == logging.WARNING


def test_empty_fields_are_left_out_of_the_audit_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    Audit().record_change("user-added", by="root", user="alice", permission="")
    assert caplog.records[0].getMessage() == "event=user-added user=alice by=root"
    assert "permission" not in vars(caplog.records[0])


# -- what callers do ---------------------------------------------------------------------------------------------------


async def by_name(request: Any) -> User | None:
    """Whoever says a name is that user."""
    name = request.headers.get("x-name")
    return User(name) if name else None


class Desk:
    """A server with a task of Ada's that waits, and calls of it."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.task_id = ""

    async def post(self, user: str, method: str, **params: Any) -> Any:
        """Call it as a user."""
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
        headers = {"Content-Type": "application/json", "A2A-Version": "1.0", "X-Name": user}
        response = await AsgiClient(self.app).send(HttpRequest("POST", "http://127.0.0.1/", headers, body))
        return json.loads(await response.read())


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    agent = Agent("desk")

    @agent.skill
    async def ask(ctx: Context) -> str:
        return str(await ctx.ask("Your name?"))

    desk = Desk(agent.app(store="memory:", auth=by_name))
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "go"}]}
    answer = await desk.post("ada", "SendMessage", message=message)
    desk.task_id = answer["result"]["task"]["id"]
    yield desk
    await desk.app.stop()


def audited(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [f"{record.levelname} {record.getMessage()}" for record in caplog.records if record.name == "dragoman.audit"]


async def test_a_cancel_is_audited(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    await desk.post("ada", "CancelTask", id=desk.task_id)
    await desk.post("ada", "CancelTask", id=desk.task_id)  # it is not cancelable any more
    assert audited(caplog) == [f"INFO event=canceled user=ada agent=desk task={desk.task_id}"]


@pytest.mark.parametrize("method", ["GetTask", "CancelTask", "SubscribeToTask"])
async def test_naming_the_task_of_another_user_is_audited_and_reveals_nothing(
    desk: Desk, caplog: pytest.LogCaptureFixture, method: str
) -> None:
    caplog.set_level(logging.INFO)
    foreign = await desk.post("eve", method, id=desk.task_id)
    missing = await desk.post("eve", method, id="no-such-task")
    assert foreign["error"]["message"] == missing["error"]["message"]
    denied = f"WARNING event=denied user=eve scheme=owner reason=not-yours agent=desk task={desk.task_id}"
    assert audited(caplog) == [denied]


# -- its level and its place -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("level", "events"), [("error", ["denied"]), ("info", ["denied", "signed-in"])])
def test_denials_are_audited_at_every_log_level(
    capsys: pytest.CaptureFixture[str], level: str, events: list[str]
) -> None:
    configure("json", "error")
    configure("json", level)
    Audit().record_denial(scheme="basic", reason="wrong-password", user="ada")
    Audit().record_sign_in(user="ada")
    assert [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()] == events


def test_a_level_that_the_program_has_set_stays(capsys: pytest.CaptureFixture[str]) -> None:
    logging.getLogger("dragoman.audit").setLevel("INFO")
    configure("json", "error")  # what this changes is put back after the test
    Audit().record_sign_in(user="ada")
    assert json.loads(capsys.readouterr().err)["event"] == "signed-in"


@pytest.mark.parametrize("log", ["json", "text"])
def test_changes_by_commands_are_audited_on_stderr_with_json_logs(tmp_path: Path, log: str) -> None:
    environment = {**os.environ, "DRAGOMAN_LOG": log, "SUDO_USER": "grace"}
    store = f"sqlite:///{tmp_path / 't.db'}"

    def run(*words: str) -> list[dict[str, Any]]:
        command = [sys.executable, "-m", "dragoman.cli.main", *words, "--store", store]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        lines = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
        return [{name: line[name] for name in line if name not in ("time", "message")} for line in lines]

    common = {"level": "info", "logger": "dragoman.audit", "by": "grace"}
    expected = [
        {"event": "user-added", "user": "ada", "permission": "vault", **common},
        {"event": "permission-revoked", "user": "ada", "permission": "vault", **common},
        {"event": "webhooks-retried", "count": "0", **common},
        {"event": "backup-made", "file": str(tmp_path / "copy.db"), **common},
    ]
    written = [
        *run("users", "add", "ada", "--no-password", "--permission", "vault"),
        *run("users", "revoke", "ada", "vault"),
        *run("push", "retry"),
        *run("backup", str(tmp_path / "copy.db")),
    ]
    assert written == (expected if log == "json" else [])
