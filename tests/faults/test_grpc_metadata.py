"""What a stranger repeats in the metadata of a gRPC call holds nobody up: it is refused before anything is built."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from support.http2_frames import (
    CONTINUATION,
    END_HEADERS,
    END_STREAM,
    FIRST_ADDED,
    GOAWAY,
    HEADERS,
    RST_STREAM,
    SETTINGS,
    Http2Connection,
    call_fields,
    field,
    frame,
)

pytestmark = pytest.mark.fault

SECONDS = 30
FRAMES = 100_000
# How long `/healthz` may take meanwhile, in seconds. On a busy machine anything may be slow once: the best one counts.
PATIENCE, ROUNDS = 0.3, 4
PATH = b"/lf.a2a.v1.A2AService/GetTask"
RESOURCE_EXHAUSTED = b"grpc-status\x018"
SMALL = field(b"x-repeated", b"y" * 130)

# One field in each frame, of about 150 bytes or of one byte that refers to such a field; and many in a few frames.
FLOODS = {
    "spelled out": (b"", SMALL, FRAMES),
    "referred to": (field(b"x-repeated", b"y" * 130, added=True), FIRST_ADDED, FRAMES),
    "many in a frame": (field(b"x-repeated", b"y" * 130, added=True), FIRST_ADDED * 10_000, FRAMES // 10_000),
}


@pytest.fixture
def server(launch: Callable[..., Any]) -> Any:
    return launch("--grpc", "0", "--auth", "bearer")


def grpc_port(server: Any) -> int:
    return int(server.until("  grpc ").rpartition(":")[2])


def flood(first: bytes, each: bytes, frames: int) -> Iterator[bytes]:
    """One call, whose head is in so many frames."""
    yield frame(HEADERS, END_STREAM, 1, call_fields(PATH, b"127.0.0.1") + first)
    again = frame(CONTINUATION, 0, 1, each)
    for _ in range(frames):
        yield again
    yield frame(CONTINUATION, END_HEADERS, 1)


def _waited(thread: str) -> float:
    """How long a thread has waited for a processor that others used, in seconds; 0 where the system does not tell."""
    try:
        return int(Path(f"/proc/{thread}/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except OSError:
        return 0.0


class Visitor:
    """Asks for `/healthz` again and again, and notes the longest that an answer took.

    For how long the server and this thread waited for a processor does not count: it says how busy the machine is.
    """

    def __init__(self, server: Any) -> None:
        self._port = urlsplit(server.url).port
        self._loop_thread = f"{server.pid}/task/{server.pid}"
        self.slowest = 0.0
        self.visits = 0
        self._stopped = threading.Event()

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=SECONDS)
        while not self._stopped.wait(0.01):
            began = self._now()
            connection.request("GET", "/healthz")
            assert connection.getresponse().read()
            self.slowest = max(self.slowest, self._now() - began)
            self.visits += 1
        connection.close()

    def _now(self) -> float:
        return time.monotonic() - _waited(self._loop_thread) - _waited("thread-self")

    @contextmanager
    def visiting(self) -> Iterator[None]:
        thread = threading.Thread(target=self.run)
        thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            thread.join(SECONDS)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", FLOODS)
def test_a_head_of_a_hundred_thousand_fields_is_refused_and_holds_nobody_up(server: Any, kind: str) -> None:
    port, slowest = grpc_port(server), []
    for _ in range(ROUNDS):
        visitor = Visitor(server)
        with visitor.visiting(), Http2Connection(port, SECONDS) as connection:
            connection.send(flood(*FLOODS[kind]))
            answer = connection.until(HEADERS, RST_STREAM, GOAWAY)
        assert answer is None or answer[0] != HEADERS or RESOURCE_EXHAUSTED in answer[2]
        assert visitor.visits
        slowest.append(visitor.slowest)
        if visitor.slowest < PATIENCE:
            break
    assert min(slowest) < PATIENCE, slowest


@pytest.mark.parametrize("confirmed", [False, True], ids=["settings open", "settings confirmed"])
def test_metadata_over_the_limit_are_refused_whether_or_not_the_caller_confirmed_the_settings(
    server: Any, confirmed: bool
) -> None:
    with Http2Connection(grpc_port(server), SECONDS) as connection:
        if confirmed:
            connection.until(SETTINGS)
        connection.send(flood(b"", SMALL, 500))
        kind, _, fields = connection.until(HEADERS, RST_STREAM, GOAWAY) or (None, 0, b"")
    assert kind == HEADERS
    assert RESOURCE_EXHAUSTED in fields


def test_metadata_below_the_limit_are_read_and_the_limit_is_a_setting(launch: Callable[..., Any]) -> None:
    server = launch("--grpc", "0", "--limits-headers", "20000")
    port = grpc_port(server)
    answers = []
    for fields in (60, 120):  # of 172 bytes each, with the 32 that a field counts
        with Http2Connection(port, SECONDS) as connection:
            connection.send(flood(b"", SMALL, fields))
            answer = connection.until(HEADERS, RST_STREAM, GOAWAY)
            assert answer is not None
            answers.append(answer[2])
    assert RESOURCE_EXHAUSTED not in answers[0]
    assert RESOURCE_EXHAUSTED in answers[1]
    assert b"may have 20000 bytes" in answers[1]
