"""A client under test: a process of its own on the last core, which measures itself.

    python -m bench.call            an order comes on stdin, the outcome of each case goes to stdout
    python -m bench.call MODULE URL says "answered" after the first answer

It runs in the environment of the client, so it imports nothing but that and the standard library. The garbage
collector is as Python leaves it, for everybody.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any, Protocol

from bench import cores, proc
from bench.agents.words import chunk_text, echo_text

ANSWERED = "answered"
# Enough to have every line run before anything is measured.
WARM_UP_CHUNKS = 200

Operation = Callable[[], Awaitable[None]]


class Caller(Protocol):
    """A client that calls the agent; it connects with the first call. Wrong states are raised as ValueError."""

    async def echo(self, text: str) -> str:
        """Send a text and read the text of the completed task."""
        ...

    async def count(self, chunks: int) -> tuple[str, int]:
        """Stream, reading every event and the text in it: the text in the end, and the number of events."""
        ...

    async def close(self) -> None:
        """Let go."""
        ...


class Count:
    """What happened in one case."""

    def __init__(self) -> None:
        self.latencies: list[float] = []
        self.events = 0
        self.errors = 0
        self.first_error = ""

    def wrong(self, why: object) -> None:
        """Count an error and keep the first."""
        self.errors += 1
        self.first_error = self.first_error or str(why) or type(why).__name__


def caller_of(module: str, url: str) -> Caller:
    """The caller a module makes."""
    return importlib.import_module(module).caller(url)


async def measure(order: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Measure every case with one client; the outcome of each, as `Outcome` has it."""
    caller = caller_of(order["module"], order["url"])
    # Some clients must be opened and closed by one and the same task.
    opening = getattr(caller, "open", None)
    if opening is not None:
        await opening()
    try:
        return {name: await _case(caller, order, **case) for name, case in order["cases"].items()}
    finally:
        await caller.close()


async def _case(caller: Caller, order: dict[str, Any], *, concurrency: int, chunks: int) -> dict[str, Any]:
    warm, found = Count(), Count()
    await _work(warm, _operation(caller, warm, min(chunks, WARM_UP_CHUNKS)), concurrency, order["warmup"])
    server, own, began = proc.cpu_seconds(order["pid"]), time.process_time(), time.perf_counter()
    await _work(found, _operation(caller, found, chunks), concurrency, order["seconds"])
    seconds, own = time.perf_counter() - began, time.process_time() - own
    server = proc.cpu_seconds(order["pid"]) - server
    ordered = sorted(found.latencies) or [0.0]
    p50, p95, p99 = (ordered[int(len(ordered) * share)] * 1000 for share in (0.5, 0.95, 0.99))
    return {
        "requests": len(found.latencies),
        "events": found.events,
        "seconds": seconds,
        "cpu_seconds": own,
        "generator_cpu_seconds": server,
        "errors": warm.errors + found.errors,
        "first_error": warm.first_error or found.first_error,
        "peak_mb": proc.peak_mb(os.getpid()),
        "p50_ms": p50,
        "p95_ms": p95,
        "p99_ms": p99,
    }


async def _work(found: Count, operation: Operation, concurrency: int, seconds: float) -> None:
    """Repeat an operation until the time is up and what has begun is over, at least once."""
    until = time.perf_counter() + seconds

    async def repeat() -> None:
        while True:
            began = time.perf_counter()
            try:
                await operation()
            except Exception as error:  # noqa: BLE001 - whatever it is, it is no answer
                found.wrong(error)
            else:
                found.latencies.append(time.perf_counter() - began)
            if time.perf_counter() >= until:
                return

    await asyncio.gather(*(repeat() for _ in range(concurrency)))


def _operation(caller: Caller, found: Count, chunks: int) -> Operation:
    numbers = count(1)
    whole = "".join(chunk_text(number) for number in range(chunks))

    async def echo() -> None:
        text = echo_text(next(numbers))
        if await caller.echo(text) != text:
            raise ValueError("the echo is not what was said")

    async def stream() -> None:
        text, events = await caller.count(chunks)
        if text != whole or events < chunks:
            raise ValueError(f"{len(text)} characters in {events} events, not {len(whole)} in {chunks} or more")
        found.events += chunks

    return stream if chunks else echo


async def answer_once(module: str, url: str) -> None:
    """Ask once, and say so when the answer is there."""
    caller = caller_of(module, url)
    try:
        text = echo_text(1)
        if await caller.echo(text) != text:
            raise ValueError("the echo is not what was said")
        print(ANSWERED, flush=True)
    finally:
        await caller.close()


def main() -> None:
    """Take the order, do it, write what came of it."""
    cores.pin(cores.load_core())
    if len(sys.argv) > 1:
        asyncio.run(answer_once(*sys.argv[1:]))
        return
    order = json.load(sys.stdin)
    if order["loop"] == "uvloop":
        import uvloop

        outcomes = uvloop.run(measure(order))
    else:
        outcomes = asyncio.run(measure(order))
    json.dump(outcomes, sys.stdout)


if __name__ == "__main__":
    main()
