"""Callers who are slow are waited for, for a while."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, MutableMapping
from typing import Any

import pytest

from dragoman.testing import Clock
from dragoman.transports.http import CHUNK_BYTES, Request, SharedResources, TooSlow, error_headers, rpc_http_status
from dragoman.transports.limits import ArrivalTimer

LIMIT = 10_000_000


class Body:
    """A request whose body comes in pieces, when the test says so."""

    def __init__(self, clock: Clock, seconds: float = 8, timer: ArrivalTimer | None = None, **scope: Any) -> None:
        self.pieces: asyncio.Queue[MutableMapping[str, Any]] = asyncio.Queue()
        scope = {"method": "POST", "headers": [], "path": "/", **scope}
        self.request = Request(
            scope, self.pieces.get, [], shared=SharedResources(arrival_timer=timer or ArrivalTimer(clock, seconds))
        )

    def put(self, body: bytes, *, more: bool = True) -> None:
        self.pieces.put_nowait({"type": "http.request", "body": body, "more_body": more})


@pytest.fixture
async def clock() -> AsyncIterator[Clock]:
    yield Clock()


async def test_a_body_that_is_there_sets_no_timer(clock: Clock) -> None:
    body = Body(clock)
    for _ in range(3):
        body.put(b"{}", more=False)
        assert await body.request.body(LIMIT) == b"{}"
    assert clock.pending == 0


async def test_bodies_that_are_not_there_set_one_timer_for_all(clock: Clock) -> None:
    timer = ArrivalTimer(clock, 8)
    bodies = [Body(clock, timer=timer) for _ in range(3)]
    reading = [asyncio.create_task(body.request.body(LIMIT)) for body in bodies]
    await asyncio.sleep(0)
    assert clock.pending == 1
    for body in bodies:
        body.put(b"{}", more=False)
    assert await asyncio.gather(*reading) == [b"{}"] * 3
    await clock.advance(10)
    assert clock.pending == 0


async def test_a_body_that_never_comes_is_given_up(clock: Clock) -> None:
    body = Body(clock)
    reading = asyncio.create_task(body.request.body(LIMIT))
    await clock.advance(8)
    assert not reading.done()
    await clock.advance(2)
    with pytest.raises(TooSlow, match="within 8 seconds") as caught:
        await reading
    assert not reading.cancelled()
    assert rpc_http_status(caught.value) == 408
    assert error_headers(caught.value) == [(b"connection", b"close")]
    assert clock.pending == 0


async def test_a_body_that_trickles_is_given_up_as_soon(clock: Clock) -> None:
    body = Body(clock)
    reading = asyncio.create_task(body.request.body(LIMIT))
    for _ in range(10):
        body.put(b"x")
        await clock.advance(1)
    with pytest.raises(TooSlow):
        await reading


async def test_a_large_body_has_time_for_every_piece(clock: Clock) -> None:
    body = Body(clock)
    reading = asyncio.create_task(body.request.body(LIMIT))
    for _ in range(10):
        body.put(b"x" * CHUNK_BYTES)
        await clock.advance(7)
    body.put(b"end", more=False)
    assert len(await reading) == 10 * CHUNK_BYTES + 3


async def test_each_is_given_up_in_its_own_time(clock: Clock) -> None:
    timer = ArrivalTimer(clock, 8)
    bodies = [Body(clock, timer=timer) for _ in range(3)]
    tasks: list[asyncio.Task[bytes]] = []
    for body in bodies:
        tasks.append(asyncio.create_task(body.request.body(LIMIT)))
        await clock.advance(2)
    ended: list[list[bool]] = []
    for _ in range(6):
        await clock.advance(1)
        ended.append([task.done() for task in tasks])
    assert ended == sorted(ended)
    assert ended[2] == [False, False, False]  # nine seconds after the first
    assert ended[3] == [True, False, False]
    assert ended[5] == [True, True, False]
    bodies[2].put(b"just in time", more=False)
    assert await tasks[2] == b"just in time"
    for task in tasks[:2]:
        with pytest.raises(TooSlow):
            await task


async def test_a_server_that_stops_a_request_is_not_taken_for_a_slow_caller(clock: Clock) -> None:
    body = Body(clock)
    reading = asyncio.create_task(body.request.body(LIMIT))
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    # Neither when both happen at once.
    reading = asyncio.create_task(body.request.body(LIMIT))
    await asyncio.sleep(0)
    clock.move(10)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading


async def test_later_versions_of_http_get_no_connection_header(clock: Clock) -> None:
    body = Body(clock, http_version="2")
    reading = asyncio.create_task(body.request.body(LIMIT))
    await clock.advance(10)
    with pytest.raises(TooSlow) as caught:
        await reading
    assert error_headers(caught.value) == []
