"""A PostgreSQL of one test, which is crashed, stopped and started again: it really writes to the disk."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from postgres_server import NoPostgres, PostgresServer
from support.ports import free_port

# Checkpoints come seldom, so that a crash leaves something to recover; statistics are made while nodes work.
CRASHABLE = {"fsync": "on", "checkpoint_timeout": "30min", "autovacuum_naptime": "5s"}


@contextmanager
def crashable_postgres() -> Iterator[PostgresServer]:
    """A server on a port that it keeps, and its end. Skips the test where there is no PostgreSQL."""
    # Not under pytest's folders, which only their owner may enter, and not in memory.
    folder = Path(tempfile.mkdtemp(prefix="dragoman-cluster-", dir="/var/tmp"))
    folder.chmod(0o755)
    try:
        server = PostgresServer(folder / "postgres", port=free_port(), **CRASHABLE)
        server.start()
    except NoPostgres as error:
        shutil.rmtree(folder, ignore_errors=True)
        pytest.skip(f"no PostgreSQL: {error}")
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def url_through(port: int, url: str) -> str:
    """The URL of a database, through a proxy on another port."""
    head, _, tail = url.rpartition("@127.0.0.1:")
    return f"{head}@127.0.0.1:{port}/{tail.partition('/')[2]}"
