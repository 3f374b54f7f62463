"""Stores in files for the commands that work on one: opened and closed again, or left behind by a killed server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from dragoman.stores.sqlite.store import SqliteStore

# A server on t.db that is killed as soon as a task is accepted.
KILLED = """
import asyncio, os, signal
from pathlib import Path
from dragoman.model.state import State
from dragoman.stores.sqlite.store import SqliteStore
from dragoman.testing.store_writes import create, row_of

async def main():
    store = SqliteStore(Path("t.db"))
    await store.open()
    await create(store, row_of(store, "a", state=State.WORKING))
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[SqliteStore]:
    """A store on a file, which a server has until the end of the block."""
    store = SqliteStore(path)
    await store.open()
    try:
        yield store
    finally:
        await store.close()
