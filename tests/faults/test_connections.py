"""Servers that stand still or run out of files, readers that stall, callers that vanish."""

from __future__ import annotations

import http.client
import json
import os
import resource
import signal
import socket
import struct
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from faults.conftest import text_of
from support.polling import until

pytestmark = pytest.mark.fault
linux = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and prlimit")

COMPLETED, WORKING = "TASK_STATE_COMPLETED", "TASK_STATE_WORKING"
SECONDS = 30
HALVES = "".join(f"{number} " for number in range(28))
VERSION = {"A2A-Version": "1.0"}


def call(server: Any, method: str, params: dict[str, Any], *, window: int | None = None) -> http.client.HTTPConnection:
    """Send a request over a connection of its own, and do not read the answer. `window` is how much may wait unread."""
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=SECONDS)
    if window is not None:
        sock = socket.socket()
        sock.settimeout(SECONDS)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        sock.connect(("127.0.0.1", urlsplit(server.url).port))
        connection.sock = sock
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    connection.request("POST", "/", body, {"Content-Type": "application/json", **VERSION})
    return connection


def listed(server: Any, state: str) -> list[dict[str, Any]]:
    return server.rpc("ListTasks", {"status": state})["result"]["tasks"]


# A server that stands still


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


@linux
def test_a_stream_goes_on_when_a_server_that_stood_still_goes_on(launch: Any, pipe: Path) -> None:
    server = launch()
    with (
        ThreadPoolExecutor(2) as callers,
        server.stream("SendStreamingMessage", server.params("halves", pipe.name)) as events,
    ):
        seen = list(islice(events, 10))
        os.kill(server.pid, signal.SIGSTOP)
        try:
            until(lambda: state_of(server.pid) == "T")
            telling = callers.submit(pipe.write_text, "go on")
            asking = callers.submit(server.send, "echo", "are you there?")
            assert not asking.done()
        finally:
            os.kill(server.pid, signal.SIGCONT)
        seen += events
        assert asking.result(SECONDS)["status"]["state"] == COMPLETED
        telling.result(SECONDS)
    assert [event.id for event in seen] == list(range(1, 32))
    assert "".join(event.text for event in seen[:30]) == HALVES
    assert seen[-1].state == COMPLETED


# Callers that vanish


def vanish(connection: http.client.HTTPConnection, response: http.client.HTTPResponse | None = None) -> None:
    """Break a connection off as a machine does that loses its power and comes back: with a reset."""
    assert connection.sock is not None
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
    if response is not None:
        response.close()


@pytest.mark.parametrize("method", ["SendMessage", "SendStreamingMessage"])
def test_a_task_completes_although_its_caller_vanished(launch: Any, pipe: Path, method: str) -> None:
    server = launch()
    connection = call(server, method, server.params("halves", pipe.name))
    (task,) = until(lambda: listed(server, WORKING))
    if method == "SendStreamingMessage":
        response = connection.getresponse()
        assert response.readline() == b"id: 1\n"
        vanish(connection, response)
    else:
        vanish(connection)
    assert server.get(task["id"])["status"]["state"] == WORKING
    pipe.write_text("go on")
    assert server.follow(task["id"], 0)[-1].state == COMPLETED
    assert text_of(server.get(task["id"])) == HALVES
    assert "Traceback" not in "".join(server.output)


def test_a_hundred_readers_who_vanish_leave_nothing_behind(launch: Any) -> None:
    server = launch()
    with server.stream("SendStreamingMessage", server.params("hang")) as events:
        task_id = next(events).result["task"]["id"]
    before = open_files(server.pid) if sys.platform == "linux" else 0
    connections = [call(server, "SubscribeToTask", {"id": task_id}) for _ in range(100)]
    responses = [connection.getresponse() for connection in connections]
    assert all(response.readline().startswith(b"id: ") for response in responses)
    for connection, response in zip(connections, responses, strict=True):
        vanish(connection, response)
    if sys.platform == "linux":
        until(lambda: open_files(server.pid) <= before + 2)
    assert server.rpc("CancelTask", {"id": task_id})["result"]["status"]["state"] == "TASK_STATE_CANCELED"
    assert "Traceback" not in "".join(server.output)


# A reader that stalls


def memory_of(pid: int) -> int:
    """The megabytes a process has in memory."""
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) // 1024


@linux
def test_a_reader_that_stalls_delays_nobody_costs_little_memory_and_gets_everything(launch: Any) -> None:
    server = launch("--no-push")  # what webhooks need is loaded beside the first requests, and is no reader's
    words = 20_000
    server.send("chatter", parts=[{"data": {"words": 2000}}])  # whatever grows once has grown
    before = memory_of(server.pid)
    params = server.params("chatter", parts=[{"data": {"words": words}}])
    connection = call(server, "SendStreamingMessage", params, window=4096)
    response = connection.getresponse()
    assert response.readline() == b"id: 1\n"  # and now it stalls
    most = 0

    def ended() -> bool:
        nonlocal most
        most = max(most, memory_of(server.pid))
        return len(listed(server, COMPLETED)) == 2

    until(ended)
    assert most - before < 30, f"grew by {most - before} MB"
    rest = response.read().decode()
    numbers = [1, *(int(line.removeprefix("id: ")) for line in rest.splitlines() if line.startswith("id: "))]
    assert numbers == list(range(1, words + 4))
    assert f"{words - 1:>9} " in rest
    assert rest.count(COMPLETED) == 1
    connection.close()


# No more files


def open_files(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


@linux
def test_a_server_without_free_file_descriptors_goes_on_and_recovers(launch: Any, pipe: Path) -> None:
    server = launch()
    port = urlsplit(server.url).port
    rpc = {"jsonrpc": "2.0", "id": 1}
    with (
        server.stream("SendStreamingMessage", server.params("halves", pipe.name)) as events,
        httpx2.Client(timeout=SECONDS, headers=VERSION) as caller,
    ):
        seen = list(islice(events, 16))
        assert caller.post(server.url, json={**rpc, "method": "ListTasks", "params": {}}).status_code == 200
        _, hard = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
        # The pipe is open already.
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (open_files(server.pid) + 5, hard))
        with ExitStack() as stack:
            for _ in range(50):
                with suppress(OSError):
                    stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=SECONDS))
            with suppress(httpx2.HTTPError):
                httpx2.get(f"{server.url}/healthz", timeout=2)
            # Who is connected is served, also when much is written: the log is taken into the file meanwhile.
            params = server.params("chatter", parts=[{"data": {"words": 15_000}}])
            for _ in range(2):
                answer = caller.post(server.url, json={**rpc, "method": "SendMessage", "params": params}).json()
                assert answer["result"]["task"]["status"]["state"] == COMPLETED
            pipe.write_text("go on")
            seen += events
            assert server.process.poll() is None
        assert [event.id for event in seen] == list(range(1, 32))
        assert seen[-1].state == COMPLETED
        # Room again, without any change of the limit: the next caller is served.
        until(lambda: is_served(server))
        assert server.send("echo", "hello")["status"]["state"] == COMPLETED
        answer = caller.post(server.url, json={**rpc, "method": "SendMessage", "params": params}).json()
        assert answer["result"]["task"]["status"]["state"] == COMPLETED


def is_served(server: Any) -> bool:
    try:
        return httpx2.get(f"{server.url}/readyz", timeout=5).status_code == 200
    except httpx2.HTTPError:
        return False
