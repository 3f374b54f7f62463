"""What a request says beside its body is bounded, whoever sends it and however it arrives."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any

import pytest
from faults.raw_requests import CHUNKED, HEAD, answer_of, body_of, connected, request_of, until_closed

pytestmark = pytest.mark.fault

LIMIT = 65_536
# What fits into the buffers of both ends of a connection that nobody reads any more.
IN_FLIGHT = 20_000_000
ANSWER = re.compile(rb"HTTP/1\.1 (\d+)")


def poured(connection: socket.socket, pieces: Iterator[bytes]) -> bytes:
    """Send pieces until the server takes no more, and give what it said."""
    sent = 0
    try:
        for piece in pieces:
            connection.sendall(piece)
            sent += len(piece)
            assert sent < IN_FLIGHT, "the server takes all of it"
    except ConnectionError:
        pass
    return until_closed(connection)


@pytest.fixture
def server(shared: Any) -> Any:
    return shared


OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAA\r\n"


@pytest.mark.parametrize("split", [None, 0, 40, -1], ids=["at once", "after the head", "in the head", "in the body"])
def test_an_offer_to_upgrade_is_ignored_and_its_request_answered(server: Any, split: int | None) -> None:
    """Every request of Java's own client has one, over plain HTTP."""
    request = request_of(server, OFFER)
    at = request.index(b"\r\n\r\n") + 4 if split == 0 else len(request) - 1 if split == -1 else split
    with connected(server) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(2):  # the connection is kept
            for piece in (request,) if at is None else (request[:at], request[at:]):
                connection.sendall(piece)
            assert b'"task"' in answer_of(connection)[1]


def test_requests_that_offer_an_upgrade_may_follow_each_other(server: Any) -> None:
    with connected(server) as connection:
        last = request_of(server, OFFER.replace(b"Upgrade, ", b"close, Upgrade, "))
        connection.sendall(request_of(server, OFFER) * 3 + request_of(server) + last)
        assert until_closed(connection).count(b'"task"') == 5


def test_too_many_requests_that_offer_an_upgrade_end_as_too_many_others_do(server: Any) -> None:
    answers = []
    for extra in (b"", OFFER):
        with connected(server) as connection:
            connection.sendall((b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + extra + b"\r\n") * 150)
            answers.append(until_closed(connection).count(b"HTTP/1.1 200 "))
    assert answers[0] == answers[1] > 100


FLOODS = {
    "a header": (HEAD + b"X-Long: ", b"x" * 50_000),
    "a header's name": (HEAD, b"x" * 50_000),
    "header lines": (HEAD, b"X-One: y\r\n" * 500),
    "empty header lines": (HEAD, b"X:\r\n" * 500),
    "the address": (b"GET /", b"x" * 50_000),
    "blank lines": (b"", b"\r\n" * 5_000),
    "chunk extension": (CHUNKED + b"1;x=", b"x" * 50_000),
    "a trailer": (CHUNKED + b"1\r\n{\r\n0\r\nX-Long: ", b"x" * 50_000),
    "trailer lines": (CHUNKED + b"1\r\n{\r\n0\r\n", b"X-One: y\r\n" * 500),
}


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
def test_a_head_without_end_is_refused_and_its_connection_closed(server: Any, flood: tuple[bytes, bytes]) -> None:
    start, piece = flood
    with connected(server) as connection:
        connection.sendall(start)
        received = poured(connection, repeat(piece))
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 431 ")
    assert b"connection: close" in head
    assert str(LIMIT) in json.loads(body)["error"]
    assert server.send("echo", "hello")["status"]["state"] == "TASK_STATE_COMPLETED"


def test_a_head_just_below_the_limit_is_read_however_many_pieces_it_comes_in(server: Any) -> None:
    request = request_of(server, b"X-Long: " + b"x" * (LIMIT - 2_000) + b"\r\n")
    with connected(server) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(0, len(request), 250):
            connection.sendall(request[start : start + 250])
        assert answer_of(connection)[0].startswith(b"HTTP/1.1 200 ")


def test_the_limit_is_a_setting_and_counts_for_each_request_of_a_connection_anew(launch: Callable[..., Any]) -> None:
    server = launch("--limits-headers", "2000")
    request = request_of(server, b"X-Long: " + b"x" * 1_500 + b"\r\n")
    with connected(server) as connection:
        for _ in range(3):
            connection.sendall(request)
            assert answer_of(connection)[0].startswith(b"HTTP/1.1 200 ")
        connection.sendall(request.replace(b"X-Long: ", b"X-Long: " + b"x" * 500))
        assert until_closed(connection).startswith(b"HTTP/1.1 431 ")


def test_requests_before_one_with_too_large_a_head_are_answered_first(server: Any) -> None:
    with connected(server) as connection:
        connection.sendall(request_of(server) * 2 + HEAD + b"X-Long: ")
        received = poured(connection, repeat(b"x" * 50_000))
    assert ANSWER.findall(received)[:2] == [b"200", b"200"]
    assert received.count(b"TASK_STATE_COMPLETED") == 2


def test_requests_that_follow_each_other_without_waiting_are_all_answered(server: Any) -> None:
    with connected(server) as connection:
        connection.sendall(request_of(server) * 20 + request_of(server, b"Connection: close\r\n"))
        assert ANSWER.findall(until_closed(connection)) == [b"200"] * 21


def test_more_requests_than_may_wait_end_the_connection_after_their_answers(server: Any) -> None:
    with connected(server) as connection:
        received = poured(connection, repeat(b"GET /healthz HTTP/1.1\r\n\r\n" * 1_000, 200))
    answers = ANSWER.findall(received)
    assert set(answers) == {b"200"}
    assert len(answers) < 20_000


def test_a_trailer_does_not_pass_for_a_header(server: Any) -> None:
    body = body_of(server)
    chunked = CHUNKED + b"%x\r\n%b\r\n0\r\nOrigin: http://elsewhere.example\r\n\r\n" % (len(body), body)
    with connected(server) as connection:
        # The second waits for the first: by then its trailers are there.
        connection.sendall(request_of(server) + chunked + request_of(server, b"Connection: close\r\n"))
        assert ANSWER.findall(until_closed(connection)) == [b"200"] * 3
