"""Requests that trickle in, never end or are far too large hold nobody up, and are given up in time."""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from faults.raw_requests import CHUNKED, HEAD, SECONDS, answer_of, connected, request_of, until_closed

pytestmark = pytest.mark.fault

TIMEOUT = 1.0
REST_HEAD = HEAD.replace(b"POST / ", b"POST /message:send ")


def trickled(connection: socket.socket, next_byte: Callable[[int], bytes]) -> bytes:
    """Send a byte whenever a tenth of a second has passed without an answer, until the server closes."""
    connection.settimeout(0.1)
    received = b""
    for number in range(10 * SECONDS):
        try:
            connection.sendall(next_byte(number))
            chunk = connection.recv(65536)
        except TimeoutError:
            continue
        except ConnectionError:
            return received
        if not chunk:
            return received
        received += chunk
    raise AssertionError("the server waits for ever")


@pytest.fixture
def server(launch: Callable[..., Any]) -> Any:
    return launch("--limits-request-timeout", str(TIMEOUT), "--limits-body", "200000")


def test_a_body_that_never_comes_is_answered_and_its_connection_closed(server: Any) -> None:
    with connected(server) as connection:
        began = time.monotonic()
        connection.sendall(HEAD + b"Content-Length: 100\r\n\r\n{")
        received = until_closed(connection)
        took = time.monotonic() - began
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 408 ")
    assert b"connection: close" in head.lower()
    assert json.loads(body)["error"]["code"] == -32600
    assert took > TIMEOUT * 0.9
    assert server.send("echo", "hello")["status"]["state"] == "TASK_STATE_COMPLETED"


TRICKLES: dict[str, tuple[bytes, Callable[[int], bytes]]] = {
    "body": (HEAD + b"Content-Length: 100000\r\n\r\n", lambda _: b"x"),
    "body over REST": (REST_HEAD + b"Content-Length: 100000\r\n\r\n", lambda _: b"x"),
    "chunks": (CHUNKED, lambda _: b"1\r\nx\r\n"),
    "headers": (HEAD, lambda number: b"X-%d: y\r\n" % number),
}


@pytest.mark.parametrize("kind", TRICKLES)
def test_a_request_that_trickles_without_end_is_given_up(server: Any, kind: str) -> None:
    start, next_byte = TRICKLES[kind]
    with connected(server) as connection:
        connection.sendall(start)
        received = trickled(connection, next_byte)
    assert received.startswith(b"HTTP/1.1 408 ")
    assert b'"limit":"request_timeout"' in received or "body" not in kind


def test_a_connection_that_says_nothing_is_closed(server: Any) -> None:
    with connected(server) as connection:
        assert until_closed(connection) == b""


def test_a_second_request_that_trickles_is_given_up_too(server: Any) -> None:
    with connected(server) as connection:
        connection.sendall(request_of(server))
        assert answer_of(connection)[0].startswith(b"HTTP/1.1 200 ")
        received = trickled(connection, lambda number: HEAD[number % len(HEAD) : number % len(HEAD) + 1])
    assert received.startswith((b"HTTP/1.1 408 ", b"HTTP/1.1 400 "))


def test_the_rest_of_a_body_that_was_refused_is_not_taken_for_ever(server: Any) -> None:
    with connected(server) as connection:
        connection.sendall(HEAD + b"Content-Length: 100000000\r\n\r\n")
        assert answer_of(connection)[0].startswith(b"HTTP/1.1 413 ")
        trickled(connection, lambda _: b"x")


def test_chunks_that_become_too_much_are_refused_in_the_middle(server: Any) -> None:
    with connected(server) as connection:
        connection.sendall(CHUNKED)
        for _ in range(4):
            connection.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")
        assert answer_of(connection)[0].startswith(b"HTTP/1.1 413 ")
    assert server.send("echo", "hello")["status"]["state"] == "TASK_STATE_COMPLETED"


def slow_callers(server: Any, stack: ExitStack) -> list[socket.socket]:
    """Many who begin to say something, and do not go on."""
    callers: list[socket.socket] = []
    for number in range(300):
        caller = stack.enter_context(connected(server))
        caller.sendall(HEAD + (b"X-Slow: y\r\n" if number % 2 else b"Content-Length: 1000\r\n\r\n{"))
        callers.append(caller)
    return callers


def test_hundreds_of_slow_callers_hold_nobody_up(launch: Callable[..., Any]) -> None:
    server = launch("--limits-request-timeout", "600")  # none of them is given up before the test is over
    with ExitStack() as stack:
        slow_callers(server, stack)
        assert server.send("echo", "hello")["status"]["state"] == "TASK_STATE_COMPLETED"


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_hundreds_of_slow_callers_leave_nothing_behind(server: Any) -> None:
    def open_files() -> int:
        return sum(1 for _ in Path(f"/proc/{server.pid}/fd").iterdir())

    server.send("echo", "hello")
    before = open_files()
    with ExitStack() as stack:
        callers = slow_callers(server, stack)
        assert all(until_closed(caller).startswith(b"HTTP/1.1 408 ") for caller in callers)
        end = time.monotonic() + SECONDS
        while open_files() > before + 2:
            assert time.monotonic() < end, "connections are left over"
    assert "Traceback" not in "".join(server.output)


def test_running_tasks_and_readers_are_not_taken_for_slow(server: Any) -> None:
    with server.stream("SendStreamingMessage", server.params("hang")) as events:
        task_id = next(events).result["task"]["id"]
        with connected(server) as idle:
            until_closed(idle)  # longer than anybody may take to ask
        assert server.rpc("CancelTask", {"id": task_id})["result"]["status"]["state"] == "TASK_STATE_CANCELED"
        assert [event.state for event in events if event.state][-1] == "TASK_STATE_CANCELED"
