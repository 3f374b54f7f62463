"""Writing into a store beside the server that has it open."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

from dragoman.model.error import ServerError
from dragoman.stores.sqlite.file import FileLock, real_path

WAIT = 5.0
_STEP = 0.005


@contextmanager
def short_write(path: Path) -> Generator[sqlite3.Connection]:
    """One short transaction, committed at the end of the block, taken back when it raises. Blocks.

    It holds FILE.ckpt from before the first byte until the connection is closed: a write and a checkpoint must never
    meet, and the last connection to close makes one. The time on FILE.ckpt tells readers that something has changed.

    Raises:
        ServerError: others have written for five seconds without a pause.
        sqlite3.Error: the database refuses.
    """
    path = real_path(path)
    beside = path.with_name(path.name + ".ckpt")
    lock = FileLock(beside)
    end = time.monotonic() + WAIT
    while not lock.try_take():
        if time.monotonic() > end:
            raise ServerError(f"the store {path.name} is busy: try again")
        time.sleep(_STEP)
    try:
        uri = f"{path.as_uri()}?mode=rw"  # which does not make a file that is missing
        with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
            connection.execute("PRAGMA busy_timeout = 5000")
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            _mark(beside)
    finally:
        lock.release()


def _mark(path: Path) -> None:
    # Always another time than before, also when two writes fall into one tick of the clock.
    now = max(time.time_ns(), path.stat().st_mtime_ns + 1)
    os.utime(path, ns=(now, now))
