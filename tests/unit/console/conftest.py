from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from unit.console.looking import Console

from dragoman import Agent
from dragoman.stores.memory import MemoryStore
from dragoman.stores.sqlite.store import SqliteStore
from dragoman.testing import Clock

StartConsole = Callable[[Agent], Awaitable[Console]]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["memory", "sqlite"])
async def look_at(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> AsyncIterator[StartConsole]:
    """Start an agent on a store, with a console that looks at it."""
    consoles: list[Console] = []

    async def start(agent: Agent) -> Console:
        store = MemoryStore(clock) if request.param == "memory" else SqliteStore(tmp_path / "tasks.db", clock)
        console = Console(agent, store, clock)
        await console.connection.open()
        consoles.append(console)
        return console

    yield start
    for console in consoles:
        await console.connection.close()
