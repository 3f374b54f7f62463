"""The load generator against real servers, for a moment."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

import pytest
from bench.agents import dragoman_echo, floor
from bench.job import Job
from bench.load import run

from dragoman.testing import served

TARGETS = {"dragoman": dragoman_echo.app, "floor": floor.app}


@pytest.mark.parametrize("name", list(TARGETS))
@pytest.mark.parametrize(
    "options",
    [
        {"kind": "send"},
        {"kind": "send", "ids": "typed"},
        {"kind": "stream", "chunks": 60, "numbered": True},
        {"kind": "fanout", "chunks": 5, "numbered": True, "pace": 0.01},
    ],
    ids=["uuid", "typed", "stream", "fanout"],
)
async def test_every_answer_is_right_and_counted(name: str, options: dict[str, Any]) -> None:
    with served(TARGETS[name]("memory")) as url:
        port = urlsplit(url).port
        assert port is not None
        times = {"seconds": 0.2, "warmup": 0.05, "limit": 10.0}
        outcome = await run(Job(port=port, pid=os.getpid(), concurrency=3, **times, **options))
    assert (outcome.errors, outcome.first_error, outcome.unfinished) == (0, "", 0)
    assert outcome.requests > 0
    if options["kind"] != "send":
        assert outcome.events == outcome.requests * options["chunks"]


async def test_parked_tasks_are_counted() -> None:
    with served(dragoman_echo.app("memory")) as url:
        outcome = await run(Job("park", urlsplit(url).port or 0, os.getpid(), concurrency=3, tasks=20))
    assert (outcome.errors, outcome.requests) == (0, 20)


async def test_the_age_of_events_is_measured_from_when_they_were_written() -> None:
    with served(dragoman_echo.app("memory")) as url:
        port = urlsplit(url).port or 0
        times = {"seconds": 0.2, "warmup": 0.05, "limit": 10.0}
        outcome = await run(Job("cross", port, os.getpid(), writer_port=port, chunks=25, pace=0.01, **times))
    assert (outcome.errors, outcome.first_error, outcome.unfinished) == (0, "", 0)
    assert 0 < outcome.events <= 25
    assert 0 < outcome.p50_ms < 1000


async def test_the_floor_answers_with_as_many_bytes_as_we_do() -> None:
    sizes: dict[str, float] = {}
    for name, app in TARGETS.items():
        with served(app("memory")) as url:
            port = urlsplit(url).port or 0
            outcome = await run(Job("fanout", port, os.getpid(), concurrency=2, chunks=20, pace=0.0, limit=10.0))
            assert outcome.errors == 0
            sizes[name] = outcome.received_bytes
    assert sizes["floor"] == pytest.approx(sizes["dragoman"], rel=0.05)


async def test_an_answer_that_is_wrong_is_an_error() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        await receive()
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"{}"})

    with served(app) as url:
        outcome = await run(Job("send", urlsplit(url).port or 0, os.getpid(), concurrency=1, seconds=0.05, warmup=0.01))
    assert outcome.errors > 0
    assert "result" in outcome.first_error
