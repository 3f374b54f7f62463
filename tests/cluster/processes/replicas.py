"""Two PostgreSQL servers, one of which is the standby of the other; the roles change with every promotion."""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cluster.processes.postgres import CRASHABLE
from postgres_server import NoPostgres, PostgresServer
from support.ports import free_port

SECONDS = 60
# By default, a standby that has lost its primary may notice only after 5 seconds that it is promoted.
_SETTINGS = {**CRASHABLE, "wal_retrieve_retry_interval": "100ms"}


class PostgresPair:
    """A primary with a standby. Each keeps its port, whatever its role is."""

    def __init__(self, folder: Path) -> None:
        self.primary = PostgresServer(folder / "one", port=free_port(), **_SETTINGS)
        self.standby = PostgresServer(folder / "two", port=free_port(), **_SETTINGS)
        self._hosts = f"127.0.0.1:{self.primary.port},127.0.0.1:{self.standby.port}"

    @property
    def url(self) -> str:
        """The URL with both hosts. The one that is the primary at first comes first."""
        return f"postgresql://postgres@{self._hosts}/postgres?target_session_attrs=read-write"

    def start(self) -> None:
        """Start the primary, and the standby as its copy. Raises NoPostgres."""
        self.primary.start()
        self.attach()

    def stop(self) -> None:
        """End both."""
        for server in (self.standby, self.primary):
            if server.is_running:
                server.kill()

    def attach(self) -> None:
        """Make the standby anew, as a copy of the primary that follows it."""
        if self.standby.is_running:
            self.standby.kill()
        shutil.rmtree(self.standby.data, ignore_errors=True)
        self.standby.prepare()
        self.standby.program("pg_basebackup", "-R", "-c", "fast", "-D", self.standby.data, "-d", self.primary.url())
        # The configuration of the primary came with the copy: a promoted one must not wait for a standby.
        self._configure(self.standby, "")
        self.standby.start()
        self._until("SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'")

    def synchronize(self) -> None:
        """Let every commit of the primary wait for the standby, from now on."""
        self._configure(self.primary, "*")
        self.primary.program("pg_ctl", "reload", "-D", self.primary.data)
        self._until("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'")

    def kill(self) -> None:
        """End the primary as a power failure does."""
        self.primary.kill()

    def freeze(self) -> None:
        """Let the primary fall silent, as a machine does that has lost its network: no connection breaks."""
        self.primary.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let the server go on that was frozen as the primary and has been replaced: it believes to be one."""
        self.standby.send_signal(signal.SIGCONT)

    def promote(self) -> None:
        """Make the standby the primary. What was the primary is the next standby, once it is attached."""
        self.standby.program("pg_ctl", "promote", "-w", "-D", self.standby.data)
        self.primary, self.standby = self.standby, self.primary

    def _configure(self, server: PostgresServer, standbys: str) -> None:
        with (server.data / "postgresql.auto.conf").open("a") as file:
            file.write(f"synchronous_standby_names = '{standbys}'\n")

    def _until(self, query: str) -> None:
        """Wait until a query of the primary finds something."""
        for _ in range(SECONDS * 20):
            if self.primary.program("psql", "-X", "-A", "-t", "-d", self.primary.url(), "-c", query).strip():
                return
            time.sleep(0.05)
        raise AssertionError(f"not within {SECONDS} s: {query}")


@contextmanager
def replicated_postgres() -> Iterator[PostgresPair]:
    """A pair, and its end. Skips the test where there is no PostgreSQL."""
    folder = Path(tempfile.mkdtemp(prefix="dragoman-pair-", dir="/var/tmp"))
    folder.chmod(0o755)
    pair = PostgresPair(folder)
    try:
        try:
            pair.start()
        except NoPostgres as error:
            pytest.skip(f"no PostgreSQL: {error}")
        yield pair
    finally:
        pair.stop()
        shutil.rmtree(folder, ignore_errors=True)
