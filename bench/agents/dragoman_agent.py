"""The agent that is measured on Dragoman: it uses only what `dragoman` exports, so any version can serve it.

With BENCH_TOGGLES_METRICS, a signal turns the recording of metrics off and on again.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator

from bench.agents.words import CARD_NAME, QUESTION, chunk_text
from dragoman import Agent, Context

TOGGLE = signal.SIGUSR2
agent = Agent(CARD_NAME, description="Echoes, counts, asks")
_gate: list[asyncio.Event] = []


@agent.skill(default=True)
async def echo(text: str) -> str:
    """Say it again: task, working, artifact, completed."""
    return text


@agent.skill
async def count(n: int) -> AsyncIterator[str]:
    """Stream n chunks."""
    for number in range(n):
        yield chunk_text(number)
        await asyncio.sleep(0)


@agent.skill
async def ask(ctx: Context) -> str:
    """Park the task."""
    return await ctx.ask(QUESTION)


@agent.skill
async def tick(n: int, pace: float) -> AsyncIterator[str]:
    """Stream the time n times, by the clock that all processes of the machine share."""
    for _ in range(n):
        yield f"{time.monotonic_ns()} "
        await asyncio.sleep(pace)


@agent.skill
async def parade(n: int, pace: float) -> AsyncIterator[str]:
    """Wait for `go`, then stream n chunks, one every `pace` seconds."""
    gate = asyncio.Event()
    _gate.append(gate)
    await gate.wait()
    for number in range(n):
        yield chunk_text(number)
        await asyncio.sleep(pace)


@agent.skill
async def go() -> None:
    """Let the parades begin."""
    while _gate:
        _gate.pop().set()


def _toggle(*_: object) -> None:
    from dragoman.telemetry.metrics import METRICS

    METRICS.on = not METRICS.on


if os.environ.get("BENCH_TOGGLES_METRICS"):
    signal.signal(TOGGLE, _toggle)
