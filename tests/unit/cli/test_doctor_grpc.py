"""`dragoman doctor` and gRPC: a sound interface passes, and each fault is reported with what to do about it."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme

from dragoman import Agent
from dragoman.testing import served
from dragoman.transports.grpc.codec import codec_of
from dragoman.transports.grpc.method import METHODS

from .conftest import Typed

V1, V03 = "lf.a2a.v1.A2AService", "a2a.v1.A2AService"
DOMAIN = "a2a-protocol.org"


def lines_of(ended: Any, check: str) -> list[str]:
    """What it says of one check, with single spaces."""
    lines = [" ".join(line.split()) for line in ended.out.splitlines()]
    return [line for line in lines if f" {check} " in f"{line} "]


def agent() -> Agent:
    made = Agent("echo", description="Echoes")

    @made.skill(tags=("text",))
    def say(text: str) -> str:
        return text

    return made


# -- sound -----------------------------------------------------------------------------------------------------------


def test_our_own_server_passes_in_every_version(typed: Typed) -> None:
    with served(agent(), grpc="127.0.0.1:0") as url:
        ended = typed("doctor", url)
        assert typed("tasks", url).err == "no tasks\n"
    assert (ended.code, ended.err) == (0, "")
    for version in ("1.0", "1.1", "0.3"):
        assert f"ok grpc {version} health: SERVING" in lines_of(ended, f"grpc {version}")
        assert f"ok grpc {version} GetTask of an unknown task: NOT_FOUND" in lines_of(ended, f"grpc {version}")
        assert f"ok grpc {version} a broken message: INVALID_ARGUMENT" in lines_of(ended, f"grpc {version}")
    assert "ok grpc 1.0 A2A-Version 99.0: FAILED_PRECONDITION" in lines_of(ended, "grpc 1.0")
    assert "ok grpc 0.3 GetAgentCard: a result" in lines_of(ended, "grpc 0.3")


# -- faults ----------------------------------------------------------------------------------------------------------


class Faulty(grpc.GenericRpcHandler):
    """A gRPC server of a few lines. `faults` are the status and the reason of a method instead of the right ones."""

    def __init__(self, service: str = V1, **faults: tuple[grpc.StatusCode, str]) -> None:
        self.service_name = service
        self.faults = faults

    def service(self, handler_call_details: Any) -> Any:
        _, service, name = handler_call_details.method.split("/")
        if service != self.service_name or handler_call_details.method not in METHODS:
            return None
        headers = dict(handler_call_details.invocation_metadata)
        return grpc.unary_unary_rpc_method_handler(lambda data, context: self.answer(name, headers, data, context))

    def answer(self, name: str, headers: dict[str, str], data: bytes, context: Any) -> bytes:
        if name == "ListTasks":
            return codec_of("lf.a2a.v1").encode("ListTasksResponse", {"pageSize": 1})
        right = (grpc.StatusCode.NOT_FOUND, "TASK_NOT_FOUND")
        if "Push" in name:
            right = (grpc.StatusCode.FAILED_PRECONDITION, "PUSH_NOTIFICATION_NOT_SUPPORTED")
        elif "Card" in name:
            right = (grpc.StatusCode.FAILED_PRECONDITION, "UNSUPPORTED_OPERATION")
        elif headers.get("a2a-version") == "99.0":
            right = (grpc.StatusCode.FAILED_PRECONDITION, "VERSION_NOT_SUPPORTED")
        elif data == b"\xff":
            right = (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST")
        code, reason = self.faults.get(name, right)
        info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": DOMAIN}
        status = {"code": code.value[0], "details": [info] if reason else []}
        encoded = codec_of("google.rpc").encode("Status", status)
        context.set_trailing_metadata([("grpc-status-details-bin", encoded)])
        context.abort(code, "wrong")


@contextmanager
def answering(handler: Faulty, credentials: Any = None) -> Iterator[int]:
    with ThreadPoolExecutor(2) as threads:
        server = grpc.server(threads, handlers=[handler])
        address = "127.0.0.1:0"
        port = (
            server.add_insecure_port(address) if credentials is None else server.add_secure_port(address, credentials)
        )
        server.start()
        try:
            yield port
        finally:
            server.stop(None).wait()


@contextmanager
def carded(url: str, version: str = "1.0") -> Iterator[str]:
    """An agent with a card that has one interface over gRPC."""
    card = {
        "name": "faulty", "description": "x", "version": "1", "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"], "capabilities": {"streaming": True}, "skills": [],
        "supportedInterfaces": [{"url": url, "protocolBinding": "GRPC", "protocolVersion": version}],
    }  # fmt: skip

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            headers = [(b"content-type", b"application/json")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": json.dumps(card).encode()})

    with served(app) as base:
        yield base


@contextmanager
def checked(typed: Typed, handler: Faulty, version: str = "1.0") -> Iterator[list[str]]:
    with answering(handler) as port, carded(f"127.0.0.1:{port}", version) as base:
        yield lines_of(typed("doctor", base), f"grpc {version}")


def test_the_stub_without_a_fault_passes(typed: Typed) -> None:
    with checked(typed, Faulty()) as lines:
        assert [line for line in lines if not line.startswith("ok ")] == []
        assert "ok grpc 1.0 health: not offered, which is optional" in lines


@pytest.mark.parametrize(
    ("method", "answer", "says"),
    [
        (
            "GetTask",
            (grpc.StatusCode.INTERNAL, ""),
            "FAIL grpc 1.0 GetTask of an unknown task: INTERNAL ('wrong') instead of NOT_FOUND: A2A 1.0, 3.3.2 and 5.4",
        ),
        (
            "GetTask",
            (grpc.StatusCode.NOT_FOUND, ""),
            "FAIL grpc 1.0 GetTask of an unknown task: the ErrorInfo says nothing instead of TASK_NOT_FOUND: ",
        ),
        (
            "GetExtendedAgentCard",
            (grpc.StatusCode.UNIMPLEMENTED, "UNSUPPORTED_OPERATION"),
            "warn grpc 1.0 GetExtendedAgentCard: UNIMPLEMENTED instead of FAILED_PRECONDITION: A2A 1.0.1, 5.4",
        ),
    ],
)
def test_a_wrong_status_is_reported_with_the_rule_it_breaks(
    typed: Typed, method: str, answer: tuple[grpc.StatusCode, str], says: str
) -> None:
    with checked(typed, Faulty(**{method: answer})) as lines:
        assert [line for line in lines if line.startswith(says)], lines


def test_a_server_that_wants_credentials_is_not_reported_as_broken(typed: Typed) -> None:
    with checked(typed, Faulty(GetTask=(grpc.StatusCode.UNAUTHENTICATED, ""))) as lines:
        assert lines[-1].startswith("FAIL grpc 1.0 every operation: UNAUTHENTICATED, and the card names no way to ")


def test_a_package_of_another_version_than_the_card_says_is_found(typed: Typed) -> None:
    with checked(typed, Faulty(V03)) as lines:
        assert lines[-1] == (
            f"FAIL grpc 1.0 {V1} is not served there, but {V03} is: the card should say protocolVersion 0.3"
        )


def test_nobody_there_is_one_failure(typed: Typed) -> None:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    with carded(f"127.0.0.1:{port}") as base:
        ended = typed("doctor", base)
    assert ended.code == 1
    (failure,) = [line for line in lines_of(ended, "grpc 1.0") if line.startswith("FAIL")]
    assert failure.startswith(f"FAIL grpc 1.0 nobody answers at grpc://127.0.0.1:{port}")


def test_a_server_with_tls_whose_card_has_none_is_distinguished_from_one_that_is_not_there(
    typed: Typed, tmp_path: Path
) -> None:
    certificate = trustme.CA().issue_cert("127.0.0.1")
    pair = (certificate.private_key_pem.bytes(), certificate.cert_chain_pems[0].bytes())
    with answering(Faulty(), grpc.ssl_server_credentials([pair])) as port, carded(f"127.0.0.1:{port}") as base:
        lines = lines_of(typed("doctor", base), "grpc 1.0")
    assert lines[-1].startswith("FAIL grpc 1.0 ")
    assert lines[-1].endswith("serve the card over https too")


def test_where_grpc_is_not_installed_it_says_how_to_install_it(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    with carded("127.0.0.1:1") as base:
        (line,) = lines_of(typed("doctor", base), "grpc 1.0")
    assert line.startswith("warn grpc 1.0 at 127.0.0.1:1: not checked: gRPC needs the extra `grpc`: ")
    assert "install" in line


def test_a_server_that_is_given_by_its_grpc_address_is_checked_there(typed: Typed) -> None:
    with answering(Faulty()) as port:
        ended = typed("doctor", f"grpc://127.0.0.1:{port}")
    assert ended.code == 0, ended.out
    assert "ok grpc 1.0 GetTask of an unknown task: NOT_FOUND" in lines_of(ended, "grpc 1.0")
