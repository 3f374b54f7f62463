"""`dragoman push` on a file, and `dragoman listen` on a port."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner, Result
from support.command import DRAGOMAN, dragoman
from support.server_process import ServerProcess
from unit.cli.sqlite_file import opened

from dragoman import Agent
from dragoman.cli.main import group
from dragoman.cli.store.push import command
from dragoman.engine.ports.store import WOKEN, Push, PushState
from dragoman.keys.ring import KeyRing
from dragoman.model.error import ConfigError
from dragoman.testing import served
from dragoman.testing.store_writes import NOW, create, row_of
from dragoman.webhooks.request import Secrets, delivery_request

BODY = json.dumps(
    {
        "statusUpdate": {
            "taskId": "t1",
            "contextId": "c",
            "status": {
                "state": "TASK_STATE_WORKING",
                "message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "half way"}]},
            },
        }
    }
).encode()


def run(*args: str, store: str = "sqlite:///t.db") -> Result:
    result = CliRunner().invoke(command, [*args, "--store", store])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def hook(row: Any, id: str, **more: Any) -> Push:
    return Push(row.number, id, "1.0", f"https://u:pw@hooks.example.com/{id}?key=S3CR3T", b"sealed", 1, NOW, **more)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)

    async def fill() -> None:
        failing = {"tries": 3, "failing_ms": NOW, "due_ms": NOW + 60_000, "error": "HTTP 503"}
        dead = {"tries": 400, "failing_ms": NOW, "state": PushState.DEAD, "error": "TIMED_OUT"}
        async with opened(tmp_path / "t.db") as store:
            one, two = row_of(store, "task-1"), row_of(store, "task-2")
            await create(store, one, pushes=(hook(one, "well"), hook(one, "failing", **failing)))
            await create(store, two, pushes=(hook(two, "dead", **dead), hook(two, "done", state=PushState.DONE)))

    asyncio.run(fill())
    return tmp_path


def listed() -> dict[str, Any]:
    return {each["id"]: each for each in json.loads(run("list", "--json").stdout)}


def test_the_list_has_those_that_are_owed_something_and_no_secret(place: Path) -> None:
    found = listed()
    assert {name: each["state"] for name, each in found.items()} == {
        "well": "waiting",
        "failing": "failing",
        "dead": "dead",
    }
    assert found["dead"]["task"] == "task-2"
    assert found["dead"]["error"] == "TIMED_OUT"
    assert found["failing"]["url"] == "https://hooks.example.com/failing"
    text = run("list").stdout
    assert re.search(r"task-1 +failing +failing +https://hooks.example.com/failing +HTTP 503, 3 tries since 20", text)
    assert "S3CR3T" not in text
    assert "pw@" not in text


def test_retry_wakes_the_dead_and_the_failing_and_leaves_the_others(place: Path) -> None:
    assert run("retry").stderr == "retrying 2 webhooks\n"
    assert {name: each["state"] for name, each in listed().items()} == {
        "well": "waiting",
        "failing": "woken",
        "dead": "woken",
    }

    async def owed() -> Any:
        async with opened(place / "t.db") as store:
            return await store.undelivered_pushes(woken=True)

    found = asyncio.run(owed())
    assert [(push.id, push.state, push.tries, push.due_ms) for push, _ in found] == [
        ("failing", PushState.OPEN, 0, WOKEN),
        ("dead", PushState.OPEN, 0, WOKEN),
    ]


def test_the_list_has_those_that_refused_an_event_and_retry_leaves_them(place: Path) -> None:
    refused = "event 3 was refused with HTTP 404 and skipped"

    async def refuse() -> None:
        async with opened(place / "t.db") as store:
            row = row_of(store, "task-3")
            await create(store, row, pushes=(hook(row, "over", state=PushState.DONE, error=refused),))

    asyncio.run(refuse())
    assert (listed()["over"]["state"], listed()["over"]["error"]) == ("skipped", refused)
    assert re.search(rf"task-3 +skipped +over +https://hooks.example.com/over +{refused}\n", run("list").stdout)
    with pytest.raises(ConfigError, match="push list"):
        run("retry", "task-3")


def test_retry_of_a_task_or_of_one_webhook_touches_no_other(place: Path) -> None:
    assert run("retry", "task-1").stderr == "retrying 1 webhook\n"
    assert listed()["dead"]["state"] == "dead"
    assert run("retry", "task-2", "dead").stderr == "retrying 1 webhook\n"
    for args in (("task-2", "dead2"), ("nowhere",), ("task-1", "well")):
        with pytest.raises(ConfigError, match="push list"):
            run("retry", *args)


def test_retry_takes_the_beginning_of_a_task_id(place: Path) -> None:
    async def fail() -> None:
        async with opened(place / "t.db") as store:
            for number in (1, 2):
                row = row_of(store, f"4d1e{number}000-94cd-4f26-8d5b-6a0c9e1f2d74")
                await create(store, row, pushes=(hook(row, f"hook-{number}", state=PushState.DEAD),))

    asyncio.run(fail())
    with pytest.raises(ConfigError, match="matches 2 task ids"):
        run("retry", "4d1e")
    assert run("retry", "4d1e2").stderr == "retrying 1 webhook\n"
    assert listed()["hook-1"]["state"] == "dead"
    with pytest.raises(ConfigError, match="push list"):
        run("retry", "task")  # only a whole one, where one id may be the beginning of another


def test_where_there_is_nothing_it_says_so(place: Path) -> None:
    with pytest.raises(ConfigError, match="there is no store"):
        run("list", store="sqlite:///other.db")
    with pytest.raises(ConfigError, match="memory"):
        run("retry", store="memory:")
    (place / "text.db").write_text("this is no store, however long it may be, and never was")
    with pytest.raises(ConfigError, match="not a store"):
        run("list", store="sqlite:///text.db")
    asyncio.run(emptied(place / "empty.db"))
    assert run("list", store="sqlite:///empty.db").stderr.startswith("no webhooks")


async def emptied(path: Path) -> None:
    async with opened(path):
        pass


# -- listen ----------------------------------------------------------------------------------------------------------


class Listening:
    """`dragoman listen` in a process of its own."""

    def __init__(self, folder: Path, *args: str) -> None:
        self.process = subprocess.Popen(
            [*DRAGOMAN, "listen", "--port", "0", *args],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        output = self.process.stderr.readline()
        self.url = output.removeprefix("listening on ").strip()
        assert self.url.startswith("http://127.0.0.1:"), output
        assert self.process.stderr.readline() == f'  try     dragoman send "hello" --push {self.url}\n'

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")


@contextmanager
def listening(folder: Path, *args: str) -> Iterator[Listening]:
    listener = Listening(folder, *args)
    try:
        yield listener
    finally:
        listener.process.kill()
        listener.process.communicate()


@pytest.fixture(scope="module")
def agent() -> Iterator[Any]:
    """A server that signs, and lets its key be known."""
    made = Agent("signer")
    keys = KeyRing.from_text("a secret for trying things out")

    @made.skill
    def echo(text: str) -> str:
        return text

    with served(made, secret="a secret for trying things out", push_allow=["127.0.0.1"]) as url:
        yield url, keys


def post(
    listener: Listening, keys: KeyRing | None, body: bytes = BODY, issuer: str = "dragoman", **secrets: Any
) -> int:

    push = Push(1, "p", "1.0", listener.url, b"", 1, 0)
    signer = None if keys is None else keys.signer()
    keys = Secrets(**secrets)
    request = delivery_request(
        push, keys, "t1", 7, body, "application/json", signer=signer, issuer=issuer, now=int(time.time())
    )
    return httpx2.post(listener.url, content=body, headers=request.headers).status_code


def test_a_webhook_is_a_line_and_its_signature_is_judged(tmp_path: Path, agent: Any) -> None:
    url, keys = agent
    with listening(tmp_path, "--jwks", f"{url}/.well-known/jwks.json") as listener:
        assert post(listener, keys) == 204
        assert listener.line() == "t1  working  half way  [signature holds]"
        assert post(listener, KeyRing.random()) == 401
        assert "no key is named" in listener.line()
        assert post(listener, None) == 401
        assert listener.line().endswith("[not signed]")
        assert post(listener, keys, b"garbage \x1b[31m") == 204
        assert listener.line().startswith("garbage")


def test_the_issuer_says_where_its_keys_are(tmp_path: Path, agent: Any) -> None:
    url, keys = agent
    with listening(tmp_path) as listener:
        assert post(listener, keys, issuer=url) == 204
        assert listener.line().endswith("[signature holds]")
        # Somebody else's address behind the own network is not asked, whoever names it.
        assert post(listener, keys, issuer="http://169.254.169.254") == 204
        assert "--jwks" in listener.line()
        assert post(listener, None) == 204
        assert listener.line().endswith("[not signed]")


def test_a_token_is_checked_and_json_hides_what_is_secret(tmp_path: Path, agent: Any) -> None:
    url, keys = agent
    jwks = f"{url}/.well-known/jwks.json"
    with listening(tmp_path, "--json", "--token", "T0K3N", "--jwks", jwks, "--count", "2") as listener:
        assert post(listener, keys, token="other") == 401
        refused = json.loads(listener.line())
        assert (refused["verified"], refused["why"]) == (False, "the webhook has another token, or none")
        assert post(listener, keys, token="T0K3N", scheme="Basic", credentials="S3CR3T") == 204
        line = listener.line()
        report = json.loads(line)
        assert (report["verified"], report["why"]) == (True, "signature and token hold")
        assert report["body"]["statusUpdate"]["taskId"] == "t1"
        assert report["headers"]["idempotency-key"] == "t1/p/7"
        assert "T0K3N" not in line
        assert "S3CR3T" not in line
        assert listener.process.wait(10) == 0


def test_a_webhook_of_an_agent_is_received_and_its_signature_holds(tmp_path: Path, agent: Any) -> None:
    url, _ = agent
    with listening(tmp_path, "--count", "3") as listener:
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
        configuration = {"taskPushNotificationConfig": {"url": listener.url}}
        sent = httpx2.post(f"{url}/message:send", json={"message": message, "configuration": configuration})
        task = sent.json()["task"]["id"]
        lines = [listener.line() for _ in range(3)]
        assert listener.process.wait(10) == 0
    assert lines == [
        f"{task}  working  [signature holds]",
        f"{task}  artifact  hello  [signature holds]",
        f"{task}  completed  [signature holds]",
    ]


def test_a_webhook_of_a_served_agent_is_verified_at_any_port(tmp_path: Path) -> None:
    (tmp_path / "echo.py").write_text("def echo(text: str) -> str:\n    return text\n")
    with (
        listening(tmp_path, "--count", "3") as listener,
        ServerProcess.serve(tmp_path, "echo.py:echo", "--push-allow", "127.0.0.1") as server,
    ):
        sent = CliRunner().invoke(group, ["send", server.url, "hello", "--push", listener.url])
        assert (sent.exit_code, sent.stdout) == (0, "hello\n")
        assert [listener.line().rpartition("  ")[2] for _ in range(3)] == ["[signature holds]"] * 3


def test_a_key_that_is_elsewhere_is_asked_for(tmp_path: Path, agent: Any) -> None:
    url, keys = agent
    with socket.create_server(("127.0.0.1", 0)) as found:
        nobody = f"http://127.0.0.1:{found.getsockname()[1]}"
    hint = "Name its keys: --jwks http://HOST:PORT/.well-known/jwks.json]"
    with listening(tmp_path) as listener:
        assert post(listener, keys, issuer=nobody) == 204
        assert listener.line().endswith(
            f"[not checked: the keys at {nobody}/.well-known/jwks.json cannot be fetched: Connection refused. {hint}"
        )
        assert post(listener, KeyRing.random(), issuer=url) == 204
        assert listener.line().endswith(f"[not checked: the sender's key is not at this address. {hint}")


def test_a_sender_that_does_not_know_its_url_is_taken_for_the_default_agent(
    tmp_path: Path, agent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, keys = agent
    monkeypatch.setenv("DRAGOMAN_AGENT", url)
    with listening(tmp_path) as listener:
        assert post(listener, keys, issuer="dragoman") == 204
        assert listener.line().endswith("[signature holds]")


def test_a_listener_on_a_taken_port_is_an_error(tmp_path: Path) -> None:
    with listening(tmp_path) as listener:
        port = listener.url.rstrip("/").rpartition(":")[2]
        done = dragoman(tmp_path, "listen", "--port", port)
    assert done.returncode == 2
    assert "use another --port" in done.stderr


def test_a_listener_ends_when_its_output_is_closed(tmp_path: Path) -> None:
    listener = Listening(tmp_path)
    assert listener.process.stdout is not None
    listener.process.stdout.close()
    with suppress(httpx2.TransportError):  # it is not answered
        post(listener, None)
    assert listener.process.stderr is not None
    assert (listener.process.stderr.read(), listener.process.wait(30)) == ("", 1)
    listener.process.stderr.close()


def test_a_host_that_cannot_be_bound_is_an_error() -> None:
    done = CliRunner().invoke(group, ["listen", "--host", "192.0.2.1", "--port", "0"])
    assert str(done.exception).endswith("; use another --host")
