"""Stopping in time."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, MutableMapping
from typing import Any

import pytest

from dragoman import Agent
from dragoman.engine.execute.runner import CANCEL_GRACE_SECONDS
from dragoman.server.listen.serve import GRACE, STORE_SECONDS, connection_seconds
from dragoman.server.listen.shutdown import FINAL_SECONDS, Shutdown


def test_runs_and_connections_leave_time_for_the_store() -> None:
    # Runs that did not end in time, and were canceled, leave less to connections.
    assert connection_seconds(FINAL_SECONDS) == GRACE
    left = FINAL_SECONDS - CANCEL_GRACE_SECONDS
    assert left - connection_seconds(left) >= STORE_SECONDS
    assert connection_seconds(0.5) == 0


def test_the_first_signal_is_noted_a_second_sigterm_changes_nothing_and_handlers_come_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with Shutdown(3600) as shutdown:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert shutdown.received == [signal.SIGTERM]
        assert not shutdown.interrupted
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_thousands_of_connections_get_more_time() -> None:
    with Shutdown(0) as shutdown:
        shutdown.allow(10)
        os.kill(os.getpid(), signal.SIGTERM)
        assert FINAL_SECONDS - 1 < shutdown.seconds_left <= FINAL_SECONDS
        shutdown.allow(10)
        assert FINAL_SECONDS + 9 < shutdown.seconds_left <= FINAL_SECONDS + 10
        shutdown.record_drained()
        assert FINAL_SECONDS + 9 < shutdown.seconds_left <= FINAL_SECONDS + 10
        assert connection_seconds(shutdown.seconds_left, more=10) == GRACE + 10


def test_another_thread_than_the_main_one_takes_no_signals() -> None:
    seen: list[Any] = []

    def use() -> None:
        with Shutdown(1):
            seen.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert seen == [before]


async def _nothing(_: Any) -> AsyncIterator[str]:
    yield "nothing"


@pytest.mark.parametrize("stops", [True, False])
async def test_a_request_that_is_ended_because_the_server_stops_gets_a_response(stops: bool) -> None:
    app = Agent("one", run=_nothing).app(store="memory:")
    await app.start()
    sent: list[MutableMapping[str, Any]] = []
    waits = asyncio.Event()

    async def receive() -> MutableMapping[str, Any]:
        waits.set()
        return await asyncio.Future[MutableMapping[str, Any]]()

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/json"), (b"content-length", b"2")]
    scope = {"type": "http", "method": "POST", "path": "/", "headers": headers, "query_string": b""}
    request = asyncio.ensure_future(app(scope, receive, send))
    await waits.wait()
    if stops:
        await app.drain()
    request.cancel()
    await asyncio.wait((request,))
    assert request.cancelled() is not stops
    assert [message.get("status") for message in sent] == ([503, None] if stops else [])
    await app.stop()
