"""Many sessions at once on one server: what they cost, and what they leave."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

from faults import odd_programs as odd
from faults import program_server as at

from dragoman import Client

# What is made once, such as connections and threads, is there before anything is measured.
_WARM = 20
_MANY = {"quiet": 0.5, "sessions": 10_000}
_AGENTS = {
    "patient": odd.sh(
        'read number path; exec 9>"$path"; echo ready >&9; read line <"$path.go"; echo "done: $number"',
        limits=_MANY,
    ),
    "asks": odd.sh(
        'read first; printf "What is it? "; read second; echo "$first is $second"', input="interactive", limits=_MANY
    ),
    "cat": {"command": "cat"},
}


class Report(NamedTuple):
    """What was seen: how often each answer came, and what the server had with all sessions and with none.

    `log` is what the server said.
    """

    answers: Counter[str]
    at_once: int
    per_session: float
    guard_per_session: float
    left: int
    descriptors_left: int
    log: str

    def __str__(self) -> str:
        return (
            f"{self.at_once} sessions: {self.per_session / 1000:.1f} KB each in the server, "
            f"{self.guard_per_session / 1000:.1f} KB in the guard"
        )


class _Look(NamedTuple):
    memory: int
    guard: int
    programs: int


def _look(server: Any) -> _Look:
    return _Look(at.memory(server.pid), at.memory(server.guard), len(server.programs))


async def gather(folder: Path, sessions: int) -> Report:
    """Run programs that all wait until every one of them is there."""

    async def together(server: Any, number: int) -> tuple[_Look, Counter[str]]:
        leash = at.Leash(folder, f"leash-{number}")
        async with Client(f"{server.url}/agents/patient") as client:
            texts = [f"{each} {leash.path}" for each in range(number)]
            tasks = await asyncio.gather(*(client.send(text, wait=False) for text in texts))
            await leash.ready(number)
            seen = _look(server)
            leash.release(number)
            ended: list[Any] = await asyncio.gather(*(client.wait(task) for task in tasks))
            await leash.free()
        leash.close()
        return seen, Counter(task.text for task in ended)

    return await _measured(folder, sessions, together)


async def ask(folder: Path, sessions: int) -> Report:
    """Run programs that ask, and answer none of them until all have asked."""

    async def together(server: Any, number: int) -> tuple[_Look, Counter[str]]:
        async with Client(f"{server.url}/agents/asks") as client:
            asked: list[Any] = await asyncio.gather(*(client.send(str(each)) for each in range(number)))
            assert {task.question for task in asked} == {"What is it?"}
            seen = _look(server)
            answering = (client.send(str(each), task=task) for each, task in enumerate(asked))
            ended: list[Any] = await asyncio.gather(*answering)
        return seen, Counter(task.text for task in ended)

    return await _measured(folder, sessions, together)


async def pass_through(folder: Path, sessions: int) -> Report:
    """Run programs that end at once, fifty at a time."""

    async def together(server: Any, number: int) -> tuple[_Look, Counter[str]]:
        places = asyncio.Semaphore(50)
        async with Client(f"{server.url}/agents/cat") as client:

            async def one(each: int) -> str:
                async with places:
                    return (await client.send(f"{each} is {each}")).text

            texts = await asyncio.gather(*(one(each) for each in range(number)))
        return _look(server), Counter(texts)

    return await _measured(folder, sessions, together)


async def _measured(
    folder: Path, sessions: int, together: Callable[[Any, int], Awaitable[tuple[_Look, Counter[str]]]]
) -> Report:
    with at.served(folder, _AGENTS, "--no-push") as server:
        alone = server.sockets + 1  # to its guard
        await together(server, _WARM)
        # Callers have gone when their connections are closed at the server, too.
        await _until(lambda: server.sockets == alone and not server.programs)
        files, before = server.descriptors, _look(server)
        seen, answers = await together(server, sessions)
        await _until(lambda: server.descriptors <= files and not server.programs)
        return Report(
            answers,
            seen.programs,
            (seen.memory - before.memory) / sessions,
            (seen.guard - before.guard) / sessions,
            len(server.programs),
            server.descriptors - files,
            "".join(server.output),
        )


async def _until(done: Callable[[], bool]) -> None:
    """Wait until something is so, or for as long as it is worth waiting: nothing tells when it is."""
    end = time.monotonic() + at.SECONDS
    while not done() and time.monotonic() < end:
        await asyncio.to_thread(os.sched_yield)
