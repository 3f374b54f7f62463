"""`dragoman doctor URL`: a sound agent passes, each fault is reported with its rule, and no work is started."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme

from dragoman import Agent, Context, User
from dragoman.cli.doctor.tls import check_tls
from dragoman.model.error import Unauthenticated
from dragoman.testing import served

from .conftest import Run


def agent(**card: Any) -> Agent:
    made = Agent("echo", description="Echoes", card=card)

    @made.skill(tags=("text",))
    async def say(ctx: Context, text: str) -> str:
        return await ctx.ask("Really?") if text == "ask" else text

    return made


def levels(done: subprocess.CompletedProcess[str]) -> set[str]:
    return {line[:4].strip() for line in done.stdout.splitlines()}


def line_with(done: subprocess.CompletedProcess[str], words: str) -> str:
    """The one line that says this, with single spaces."""
    found = [" ".join(line.split()) for line in done.stdout.splitlines() if words in line]
    assert len(found) == 1, done.stdout
    return found[0]


# -- sound -----------------------------------------------------------------------------------------------------------


def test_our_own_agent_passes_on_every_interface_and_no_task_is_made(run: Run):
    with served(agent()) as url:
        done = run("doctor", url)
        assert run("tasks", url).stderr == "no tasks\n"
    assert (done.returncode, done.stderr) == (0, "")
    assert "FAIL" not in levels(done)
    for check in ("jsonrpc 1.0", "jsonrpc 1.1", "jsonrpc 0.3", "rest 1.0", "rest 1.1", "rest 0.3"):
        assert f"ok    {check:<11}  GetTask of an unknown task: " in done.stdout
    assert line_with(done, "kept by its ETag") == "ok discovery kept by its ETag, public, max-age=300"
    for what in ("an unknown method: -32601", "broken JSON: -32700", "A2A-Version 99.0: -32009"):
        assert f"ok    jsonrpc 1.0  {what}\n" in done.stdout
    assert "ms, the median of " in done.stdout


@pytest.mark.parametrize(("text", "state"), [("hello", "completed"), ("ask", "input-required")])
def test_a_task_is_started_only_with_send(run: Run, text: str, state: str):
    with served(agent()) as url:
        done = run("doctor", url, "--send", text)
        tasks = run("tasks", url).stdout.splitlines()
    assert done.returncode == 0
    assert line_with(done, " send ").startswith(f"ok send a task, {state}, in ")
    assert line_with(done, " stream ").endswith(f"ms, {state}")
    assert len(tasks) == 2


def test_the_options_narrow_what_is_looked_at(run: Run):
    with served(agent()) as url:
        done = run("doctor", url, "--protocol", "0.3", "--transport", "rest")
    assert "rest 0.3" in done.stdout
    assert "jsonrpc" not in done.stdout


def test_with_json_it_says_the_same(run: Run):
    with served(agent()) as url:
        done = run("doctor", url, "--json")
    answer = json.loads(done.stdout)
    assert answer["result"] in ("ok", "warn")
    assert {"level", "check", "says", "do"} == set(answer["checks"][0])


def test_an_agent_that_wants_credentials_is_not_reported_as_broken(run: Run):
    async def who(request: Any) -> User | None:
        if request.headers.get("authorization") == "Bearer right-token":
            return User("me")
        raise Unauthenticated

    schemes = {"token": {"httpAuthSecurityScheme": {"scheme": "bearer"}}}
    demanded = [{"schemes": {"token": {"list": []}}}]
    demanding = agent(securitySchemes=schemes, securityRequirements=demanded)
    with served(demanding, auth=who, card_version="1.0") as url:
        stranger = run("doctor", url)
        friend = run("doctor", url, DRAGOMAN_TOKEN="right-token")
    assert (stranger.returncode, friend.returncode) == (0, 0)
    assert "warn  jsonrpc 1.0  every operation: HTTP 401, so it is not checked: put a token into " in stranger.stdout
    assert "ok    jsonrpc 1.0  GetTask of an unknown task: -32001" in friend.stdout
    with served(agent(), auth=who) as url:
        undeclared = run("doctor", url)
    assert undeclared.returncode == 1
    assert "HTTP 401, and the card names no way to authenticate: A2A 1.0, 7.3: " in undeclared.stdout


def test_local_and_remote_options_do_not_mix(run: Run):
    done = run("doctor", "http://127.0.0.1:1", "--full")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--store, --config and --full check this machine: omit the address." in done.stderr
    for typed, option in ((["--send", "x"], "--send"), (["-H", "a: b"], "-H"), (["--insecure"], "--insecure")):
        done = run("doctor", *typed)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"{option} checks an agent: add its address." in done.stderr


# -- faults ----------------------------------------------------------------------------------------------------------


class Faulty:
    """An agent of a few lines. `faults` say how an answer is spoilt: by JSON-RPC method, or by path."""

    def __init__(self, card: dict[str, Any] | bytes | None = None, **faults: Any) -> None:
        self.card = card
        self.faults = faults
        self.url = ""

    def described(self) -> bytes:
        if isinstance(self.card, bytes):
            return self.card
        whole = {
            "name": "faulty", "description": "x", "version": "1", "defaultInputModes": ["text/plain"],
            "defaultOutputModes": ["text/plain"], "capabilities": {"streaming": True}, "skills": [],
            "supportedInterfaces": [{"url": f"{self.url}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        }  # fmt: skip
        return json.dumps(
            {key: value for key, value in {**whole, **(self.card or {})}.items() if value != "gone"}
        ).encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body = b""
        while True:
            event = await receive()
            body += event.get("body", b"")
            if not event.get("more_body"):
                break
        status, headers, answer = self.answer(scope, body)
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": raw})
        await send({"type": "http.response.body", "body": answer})

    def answer(self, scope: Any, body: bytes) -> tuple[int, dict[str, str], bytes]:
        path = scope["path"]
        if path == "/.well-known/agent-card.json":
            headers = {"content-type": "application/json", "cache-control": "max-age=60", "etag": '"1"'}
            return self.faults.get("discovery", lambda: (200, headers, self.described()))()
        if path == "/rpc":
            return self.rpc(scope, body)
        if path.startswith("/rest/"):
            return self.rest(scope)
        return 404, {"content-type": "text/plain"}, b"nothing"

    def rpc(self, scope: Any, body: bytes) -> tuple[int, dict[str, str], bytes]:
        sent = dict(scope["headers"])
        method, request_id = "broken", None
        try:
            call = json.loads(body)
            method, request_id = call["method"], call["id"]
        except ValueError:
            code = -32700
        else:
            code = {"DragomanDoctor": -32601, "GetExtendedAgentCard": -32004}.get(method, -32001)
            code = -32003 if "Push" in method else code
        if sent.get(b"a2a-version") == b"99.0":
            method, code = "version", -32009
        if sent.get(b"content-type") == b"text/plain":
            method, code = "plain", -32005
        answer: Any = {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": "no"}}
        if method == "ListTasks":
            page = {"tasks": [], "nextPageToken": "", "pageSize": 1, "totalSize": 0}
            answer = {"jsonrpc": "2.0", "id": request_id, "result": page}
        spoilt = self.faults.get(method, answer)
        spoilt = spoilt(answer) if callable(spoilt) else spoilt
        if isinstance(spoilt, tuple):
            return spoilt
        return 200, {"content-type": "application/json"}, json.dumps(spoilt).encode()

    def rest(self, scope: Any) -> tuple[int, dict[str, str], bytes]:
        return self.faults["rest"](scope)


@contextmanager
def faulty(card: Any = None, **faults: Any) -> Iterator[str]:
    made = Faulty(card, **faults)
    with served(made) as url:
        made.url = url
        yield url


def with_code(code: int) -> Any:
    return lambda answer: {**answer, "error": {"code": code, "message": "wrong"}}


def test_the_stub_without_a_fault_passes(run: Run):
    with faulty() as url:
        done = run("doctor", url)
    assert (done.returncode, levels(done) - {"ok", "warn"}) == (0, set()), done.stdout


@pytest.mark.parametrize(
    ("faults", "says"),
    [
        (
            {"GetTask": with_code(-32603)},
            "FAIL jsonrpc 1.0 GetTask of an unknown task: -32603 ('wrong') instead of -32001: A2A 1.0, 3.3.2 and 5.4: ",
        ),
        (
            {"CancelTask": lambda answer: {"jsonrpc": "2.0", "id": answer["id"], "result": {}}},
            "FAIL jsonrpc 1.0 CancelTask of an unknown task: answered as if all were well: A2A 1.0, 3.3.2 and 5.4: ",
        ),
        (
            {"SubscribeToTask": lambda answer: {**answer, "id": "other"}},
            "FAIL jsonrpc 1.0 SubscribeToTask to an unknown task: the id is 'other' and not ",
        ),
        (
            {"ListTasks": lambda answer: {**answer, "result": {"tasks": []}}},
            "FAIL jsonrpc 1.0 ListTasks, one a page: nextPageToken, pageSize, totalSize missing: A2A 1.0, 3.1.4: ",
        ),
        (
            {"ListTaskPushNotificationConfigs": with_code(-32001)},
            "FAIL jsonrpc 1.0 ListTaskPushNotificationConfigs of an unknown task: -32001 ('wrong') instead of -32003: "
            "A2A 1.0, 3.3.4: ",
        ),
        (
            {"GetExtendedAgentCard": with_code(-32601)},
            "FAIL jsonrpc 1.0 GetExtendedAgentCard: -32601 ('wrong') instead of -32004: A2A 1.0, 3.3.4: ",
        ),
        (
            {"DragomanDoctor": with_code(-32603)},
            "FAIL jsonrpc 1.0 an unknown method: -32603 ('wrong') instead of -32601: JSON-RPC 2.0, 5.1: ",
        ),
        ({"broken": with_code(-32600)}, "FAIL jsonrpc 1.0 broken JSON: -32600 ('wrong') instead of -32700: "),
        (
            {"version": with_code(-32001)},
            "FAIL jsonrpc 1.0 A2A-Version 99.0: -32001 ('wrong') instead of -32009: A2A 1.0, 3.6.2: ",
        ),
        ({"plain": with_code(-32001)}, "warn jsonrpc 1.0 a body that is text/plain is read all the same: Advice: "),
        (
            {"GetTask": {"jsonrpc": "2.0", "id": "1"}},
            "FAIL jsonrpc 1.0 GetTask of an unknown task: there is not exactly one of ",
        ),
        (
            {"GetTask": [1]},
            "FAIL jsonrpc 1.0 GetTask of an unknown task: the answer is no JSON object: JSON-RPC 2.0, 5: ",
        ),
        (
            {"GetTask": lambda answer: {**answer, "error": "no"}},
            "FAIL jsonrpc 1.0 GetTask of an unknown task: the error has no code or no message: JSON-RPC 2.0, 5.1: ",
        ),
        (
            {"GetTask": lambda answer: {**answer, "jsonrpc": "1.0"}},
            "FAIL jsonrpc 1.0 GetTask of an unknown task: `jsonrpc` is '1.0': JSON-RPC 2.0, 5: ",
        ),
        (
            {"GetTask": lambda answer: {**answer, "error": {**answer["error"], "data": "x"}}},
            "warn jsonrpc 1.0 GetTask of an unknown task: the `data` of the error is x: A2A 1.0, 9.5: ",
        ),
    ],
)
def test_a_wrong_response_is_reported_with_the_rule_it_breaks(run: Run, faults: dict[str, Any], says: str):
    with faulty(**faults) as url:
        done = run("doctor", url)
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert [line for line in lines if line.startswith(says)], done.stdout
    assert done.returncode == (1 if says.startswith("FAIL") else 0)
    assert "Traceback" not in done.stderr


def test_html_instead_of_json_is_reported_once_and_ends_the_checks_of_the_interface(run: Run):
    page = (200, {"content-type": "text/html"}, b"<html>welcome</html>")
    with faulty(GetTask=page, CancelTask=page) as url:
        done = run("doctor", url)
    assert done.returncode == 1
    assert "HTTP 200, text/html instead of JSON: '<html>welcome</html>': A2A 1.0, 9.1: " in line_with(done, "text/html")
    assert "CancelTask" not in done.stdout


def test_a_card_without_a_version_is_reported_by_field_and_rule(run: Run):
    with faulty({"version": "gone"}) as url:
        done = run("doctor", url)
    assert done.returncode == 1
    assert any(
        line.startswith("FAIL  card         version: ") and "A2A 1.0, " in line for line in done.stdout.splitlines()
    )
    assert "so the rest is not checked" in done.stdout


def test_html_in_the_place_of_the_card_is_a_failure(run: Run):
    with faulty(b"<html>") as url:
        done = run("doctor", url)
    assert done.returncode == 1
    assert "FAIL  card         (card): HTML or XML: A2A 0.3, 5.1: " in done.stdout


def test_a_missing_card_is_reported_with_both_addresses(run: Run):
    with faulty(discovery=lambda: (404, {}, b"")) as url:
        done = run("doctor", url)
    assert done.returncode == 1
    assert f"FAIL  discovery    {url}/.well-known/agent-card.json: HTTP 404: A2A 1.0, 8.2: " in done.stdout
    assert f"FAIL  discovery    {url}/.well-known/agent.json: HTTP 404: A2A 0.2: " in done.stdout


def test_a_card_that_cannot_be_kept_is_a_warning(run: Run):
    with served(made := Faulty()) as url:
        made.url = url
        made.faults["discovery"] = lambda: (200, {"content-type": "text/plain"}, made.described())
        bare = run("doctor", url)
        headers = {"content-type": "application/json", "etag": '"1"', "cache-control": "no-cache"}
        made.faults["discovery"] = lambda: (200, headers, made.described())
        stubborn = run("doctor", url)
    assert (bare.returncode, stubborn.returncode) == (0, 0)
    for line in (
        "the card is text/plain: Advice: ",
        "there is no Cache-Control: A2A 1.0, 8.6.1: ",
        "there is no ETag: ",
    ):
        assert f"warn  discovery    {line}" in bare.stdout
    assert "warn  discovery    Cache-Control is 'no-cache': A2A 1.0, 8.6.1: " in stubborn.stdout
    assert "warn  discovery    asked again with its ETag: HTTP 200: RFC 9110, 13.1.2: " in stubborn.stdout


def test_nobody_there_is_one_failure(run: Run):
    done = run("doctor", "http://127.0.0.1:1")
    assert done.returncode == 1
    assert "FAIL  discovery    nobody answers at http://127.0.0.1:1" in done.stdout


def test_an_interface_that_is_not_there_is_a_failure_and_one_not_spoken_is_left_out(run: Run):
    offered = [
        {"url": "http://127.0.0.1:1/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
        {"url": "127.0.0.1:1", "protocolBinding": "GRPC", "protocolVersion": "1.0"},
        {"url": "soap://127.0.0.1:1/", "protocolBinding": "https://example.org/soap", "protocolVersion": "1.0"},
    ]
    with faulty({"supportedInterfaces": offered}) as url:
        done = run("doctor", url)
    assert done.returncode == 1
    assert "FAIL  jsonrpc 1.0  nobody answers at http://127.0.0.1:1" in done.stdout
    assert "FAIL  grpc 1.0     nobody answers at grpc://127.0.0.1:1" in done.stdout
    assert "soap 1.0  at soap://127.0.0.1:1/: not checked, as it is not spoken here" in done.stdout


REST_STATUS = {"error": {"code": 404, "status": "NOT_FOUND", "message": "no", "details": []}}


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ((404, REST_STATUS), "the ErrorInfo says nothing instead of TASK_NOT_FOUND: A2A 1.0, 11.6: "),
        ((404, {"detail": "Not Found"}), "the body has no `error` object: A2A 1.0, 11.6: "),
        ((500, REST_STATUS), "HTTP 500 instead of 404: A2A 1.0, 3.3.2 and 5.4: "),
        ((200, {"id": "x"}), "answered as if all were well: A2A 1.0, 3.3.2 and 5.4: "),
        ((404, {"error": {"details": []}}), "`error.code` or `error.message` is missing or wrong: A2A 1.0, 11.6: "),
    ],
)
def test_a_wrong_response_over_rest_is_reported_with_the_rule_it_breaks(run: Run, answer: tuple[int, Any], says: str):
    status, body = answer
    with served(made := Faulty()) as url:
        made.url = url
        made.card = {
            "supportedInterfaces": [{"url": f"{url}/rest", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"}]
        }
        made.faults["rest"] = lambda _: (status, {"content-type": "application/a2a+json"}, json.dumps(body).encode())
        done = run("doctor", url)
    assert done.returncode == 1
    assert f"FAIL  rest 1.0     GetTask of an unknown task: {says}" in done.stdout


def test_a_stream_that_never_ends_does_not_hold_the_doctor_up(run: Run):
    ended = threading.Event()

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"].endswith("/x"):
            await send(
                {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}
            )
            await send({"type": "http.response.body", "body": b"data: {}\n\n", "more_body": True})
            while (await receive())["type"] != "http.disconnect":
                pass
            ended.set()
        elif scope["type"] == "http":
            await made(scope, receive, send)

    made = Faulty()
    with served(endless) as url:
        made.url = url
        made.card = {
            "supportedInterfaces": [{"url": f"{url}/x", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]
        }
        done = run("doctor", url)
        assert ended.wait(30)
    assert done.returncode == 1
    assert "there is not exactly one of `result` and `error`" in done.stdout


# -- certificates ----------------------------------------------------------------------------------------------------


@contextmanager
def tls(expires: datetime) -> Iterator[tuple[str, Path]]:
    """A port that only shakes hands, and the file of the authority that vouches for it."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", not_after=expires).configure_cert(context)
    listener = socket.create_server(("127.0.0.1", 0))

    def shake_hands() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with suppress(OSError):
                    context.wrap_socket(connection, server_side=True).close()

    thread = threading.Thread(target=shake_hands, daemon=True)
    thread.start()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "authority.pem"
        authority.cert_pem.write_to_path(str(path))
        yield f"https://127.0.0.1:{listener.getsockname()[1]}", path
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(30)
    assert not thread.is_alive()


async def test_the_days_of_a_certificate_are_counted(monkeypatch: pytest.MonkeyPatch):
    now = datetime.now(UTC)
    with tls(now + timedelta(days=30, hours=1)) as (url, authority):
        monkeypatch.setenv("SSL_CERT_FILE", str(authority))
        found = await check_tls(url)
        assert (found.level, found.says) == ("ok", "TLSv1.3, the certificate is valid for 30 more days")
        later = await check_tls(url, now=(now + timedelta(days=29)).timestamp())
    assert (later.level, later.says) == ("warn", "TLSv1.3, the certificate is valid for 1 more day")


async def test_plain_http_is_a_warning_except_on_loopback():
    assert (await check_tls("http://127.0.0.1:1")).level == "ok"
    found = await check_tls("http://agents.example.com")
    assert (found.level, found.do[:14]) == ("warn", "A2A 1.0, 7.1: ")


async def test_a_certificate_that_cannot_be_read_is_a_warning():
    found = await check_tls("https://127.0.0.1:1")
    assert (found.level, found.check) == ("warn", "tls")
