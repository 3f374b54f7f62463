"""A server is killed while programs run that are hard to end: what is left of them, and what their tasks say."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from faults import odd_programs as odd
from faults import program_server as at

from dragoman import Client

AGENTS = {"patient": odd.PATIENT, "stubborn": odd.STUBBORN, "family": odd.FAMILY, "daemon": odd.DAEMON}


class Report(NamedTuple):
    """How the tasks ended, how many processes there were, and how soon after the kill there was none."""

    ended: Counter[tuple[Any, str | None]]
    processes: int
    seconds: float


async def kill(folder: Path, programs: int) -> Report:
    """Kill a server with that many running programs, and start it again."""
    names = [name for name, _ in zip(_endless(), range(programs), strict=False)]
    leash = at.Leash(folder)
    with at.served(folder, AGENTS) as server:
        tasks = await asyncio.gather(*(begin(server, name, leash) for name in names))
        await leash.ready(lines_of(names))
        processes = [at.Watched(pid) for pid in at.descendants(server.guard)]
        guard = at.Watched(server.guard)
        assert len(processes) > programs
        killed = time.monotonic()
        server.kill()
        assert await leash.free() == ""
        for process in (*processes, guard):
            await process.gone()
        seconds = time.monotonic() - killed
    leash.close()
    with at.served(folder, AGENTS) as server:
        ended = await asyncio.gather(*(outcome(server, name, task) for name, task in zip(names, tasks, strict=True)))
    return Report(Counter(ended), len(processes), seconds)


def _endless() -> Iterable[str]:
    while True:
        yield from AGENTS


def lines_of(names: Iterable[str]) -> int:
    """How much these programs say when they are ready."""
    return sum(2 if name == "daemon" else 1 for name in names)


async def begin(server: Any, name: str, leash: Any) -> Any:
    """Begin a task of a program."""
    async with Client(f"{server.url}/agents/{name}") as client:
        return await client.send(str(leash.path), wait=False)


async def outcome(server: Any, name: str, task: Any) -> tuple[Any, str | None]:
    """How a task stands, and why."""
    async with Client(f"{server.url}/agents/{name}") as client:
        found = await client.get_task(task)
    return found.state, found.error
