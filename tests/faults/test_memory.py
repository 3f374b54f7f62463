"""Large messages take no more memory than there is, and leave room for everybody else."""

from __future__ import annotations

import http.client
import json
import select
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

# Callers are told apart by their addresses: all of 127.0.0.0/8 is this machine's.
pytestmark = [pytest.mark.fault, pytest.mark.skipif(sys.platform != "linux", reason="needs 127.0.0.2 and RLIMIT_AS")]

SECONDS = 30
MB = 2**20
HEADERS = {"Content-Type": "application/json", "A2A-Version": "1.0"}
ANN, BOB, EVE = "127.0.0.2", "127.0.0.3", "127.0.0.4"


class Answer(NamedTuple):
    status: int
    retry_after: str | None
    body: Any


def body_of(server: Any, skill: str, size: int, **configuration: Any) -> bytes:
    params = {**server.params(skill, "x" * size), "configuration": configuration}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}).encode()


def connected(server: Any, address: str, **options: Any) -> http.client.HTTPConnection:
    place = urlsplit(server.url).netloc
    return http.client.HTTPConnection(place, timeout=SECONDS, source_address=(address, 0), **options)


def answered(connection: http.client.HTTPConnection) -> Answer:
    response = connection.getresponse()
    return Answer(response.status, response.getheader("retry-after"), json.loads(response.read()))


def post(server: Any, address: str, body: bytes) -> Answer:
    """Send a body as long as the server has not answered: it need not take all of what it refuses."""
    connection = connected(server, address)
    connection.putrequest("POST", "/")
    for name, value in {**HEADERS, "Content-Length": str(len(body))}.items():
        connection.putheader(name, value)
    connection.endheaders()
    for start in range(0, len(body), 65536):
        if select.select([connection.sock], [], [], 0)[0]:
            break
        connection.send(body[start : start + 65536])
    try:
        return answered(connection)
    finally:
        connection.close()


def begin(server: Any, address: str, size: int) -> Answer:
    """Send a message whose task goes on for ever."""
    return post(server, address, body_of(server, "idle", size, returnImmediately=True))


def get(server: Any, address: str, task_id: str) -> Answer:
    rpc = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": task_id}}
    return post(server, address, json.dumps(rpc).encode())


def test_more_large_messages_than_there_is_memory_for_are_refused_and_the_server_lives(launch: Any) -> None:
    # Of addresses, not of memory: stacks of threads and arenas of glibc take over 400 MB of these before any request.
    server = launch(memory=704 * MB)
    body = body_of(server, "idle", 9_000_000, returnImmediately=True)
    with ThreadPoolExecutor(8) as callers:
        answers = list(callers.map(lambda number: post(server, f"127.0.0.{2 + number % 8}", body), range(80)))
    statuses = Counter(answer.status for answer in answers)
    assert set(statuses) <= {200, 429, 503}
    assert statuses[200] >= 2
    assert statuses[503] > 40
    assert all(answer.retry_after == "1" for answer in answers if answer.status != 200)
    assert server.process.poll() is None
    assert server.send("echo", "hello")["status"]["state"] == "TASK_STATE_COMPLETED"
    assert "Traceback" not in "".join(server.output)


@pytest.fixture
def small(launch: Callable[..., Any]) -> Any:
    """A server with room for two large messages of 600 KB, each of which counts twice."""
    return launch("--limits-memory", "4000000", "--limits-caller-memory", "2000000")


LARGE = 600_000


def test_a_caller_has_its_share_and_the_server_its_limit(small: Any) -> None:
    first = begin(small, ANN, LARGE)
    assert first.status == 200
    again = begin(small, ANN, LARGE)
    assert (again.status, again.retry_after) == (429, "1")
    assert again.body["error"]["data"][0]["metadata"]["limit"] == "caller_memory"
    assert begin(small, BOB, LARGE).status == 200
    full = begin(small, EVE, LARGE)
    assert (full.status, full.retry_after) == (503, "1")
    assert full.body["error"]["data"][0]["metadata"]["limit"] == "memory"
    # Small ones still find room, and what has ended makes room for large ones.
    assert begin(small, EVE, 10_000).status == 200
    assert small.send("echo", "hello")["status"]["state"] == "TASK_STATE_COMPLETED"
    small.rpc("CancelTask", {"id": first.body["result"]["task"]["id"]})
    assert begin(small, EVE, LARGE).status == 200


def test_rest_callers_get_the_same_refusal(small: Any) -> None:
    begin(small, ANN, LARGE)
    begin(small, BOB, LARGE)
    connection = connected(small, EVE)
    message = {**small.params("idle", "x" * LARGE), "configuration": {"returnImmediately": True}}
    connection.request("POST", "/message:send", json.dumps(message), HEADERS)
    answer = answered(connection)
    connection.close()
    assert (answer.status, answer.retry_after) == (503, "1")
    assert answer.body["error"]["code"] == 503


def test_bodies_take_their_room_while_they_arrive(small: Any) -> None:
    head = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 700000\r\n\r\n"
    port = urlsplit(small.url).port
    with socket.create_connection(("127.0.0.1", port)) as one, socket.create_connection(("127.0.0.1", port)) as other:
        one.sendall(head + b"{")
        other.sendall(head + b"{")
        # Two of 700 KB are more than one caller may have: one is refused before its body has come.
        (refused,), _, _ = select.select([one, other], [], [], SECONDS)
        assert refused.recv(65536).startswith(b"HTTP/1.1 429 ")
    end = time.monotonic() + SECONDS
    while begin(small, "127.0.0.1", LARGE).status != 200:  # as soon as it is noticed that they have left
        assert time.monotonic() < end


def test_a_body_without_a_length_is_refused_in_the_middle(small: Any) -> None:
    connection = connected(small, ANN)
    pieces = [b" " * 65536] * 20
    connection.request("POST", "/", iter(pieces), HEADERS, encode_chunked=True)
    answer = answered(connection)
    connection.close()
    assert (answer.status, answer.retry_after) == (429, "1")


def test_answers_that_nobody_reads_count_and_are_given_up(launch: Callable[..., Any]) -> None:
    server = launch(
        "--limits-memory", "80000000", "--limits-caller-memory", "25000000", "--limits-request-timeout", "1"
    )
    task = begin(server, ANN, 9_000_000).body["result"]["task"]["id"]
    server.rpc("CancelTask", {"id": task})
    rpc = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": task}})
    with ExitStack() as stack:
        for _ in range(2):
            connection = connected(server, BOB)
            stack.callback(connection.close)
            connection.connect()
            assert connection.sock is not None
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.request("POST", "/", rpc, HEADERS)
            connection.sock.recv(1)  # it is being answered, and is not read any further
        assert get(server, BOB, task).status == 429
        assert get(server, ANN, task).status == 200
        end = time.monotonic() + SECONDS
        while get(server, BOB, task).status != 200:
            assert time.monotonic() < end, "they are waited for without end"


def test_tiny_values_are_refused_however_they_are_dressed(launch: Callable[..., Any]) -> None:
    server = launch("--limits-values", "1000", "--limits-parts", "100")

    def limit_of(*parts: Any) -> str | None:
        params = server.params("echo", parts=list(parts))
        answer = server.rpc("SendMessage", params)
        return answer["error"]["data"][0]["metadata"]["limit"] if "error" in answer else None

    assert limit_of({"data": [1] * 2000}) == "values"
    assert limit_of({"data": [[]] * 1000}) == "values"
    assert limit_of(*[{"text": ""}] * 200) == "parts"
    assert limit_of({"text": "1,2,3\n" * 10_000}) is None
