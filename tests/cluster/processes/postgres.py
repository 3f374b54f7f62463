"""A PostgreSQL of one test, which is crashed, stopped and started again: it really writes to the disk."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cluster.processes.ports import free_port

SECONDS = 60
# `fsync` stays on. Checkpoints come seldom, so that a crash leaves something to recover.
_SETTINGS = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = 80
shared_buffers = 32MB
checkpoint_timeout = 30min
logging_collector = off
log_min_messages = warning
autovacuum_naptime = 5s
"""


def find_binaries() -> Path:
    """The folder of PostgreSQL's programs. Skips the test where there is none."""
    on_path = shutil.which("pg_ctl")
    folders = [Path(on_path).resolve().parent] if on_path else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for folder in folders:
        if (folder / "initdb").exists() and (folder / "pg_ctl").exists():
            return folder
    pytest.skip("there is no PostgreSQL on this machine")


class CrashablePostgres:
    """A PostgreSQL server in a folder of its own, on a port that stays the same."""

    def __init__(self, folder: Path) -> None:
        self._binaries = find_binaries()
        self._data = folder / "data"
        self._log = folder / "postgres.log"
        # PostgreSQL refuses to run as root.
        self._user = "nobody" if os.geteuid() == 0 else None
        if self._user is not None:
            shutil.chown(folder, self._user)
        self.port = free_port()
        self._run("initdb", "-D", str(self._data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C")
        (self._data / "postgresql.auto.conf").write_text(f"{_SETTINGS}port = {self.port}\n")
        self.start()

    def dsn(self, port: int | None = None) -> str:
        """Where it is, or where a proxy in front of it is."""
        return f"postgresql://postgres@127.0.0.1:{port or self.port}/postgres"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._control("start")

    def stop(self, mode: str = "immediate") -> None:
        """Stop it: "immediate" is a crash."""
        self._control("stop", "-m", mode)

    def crash(self) -> None:
        """Let it crash and recover."""
        self._control("restart", "-m", "immediate")

    @property
    def is_running(self) -> bool:
        """Whether there is a postmaster."""
        return (self._data / "postmaster.pid").exists()

    def _control(self, *arguments: str) -> None:
        self._run("pg_ctl", "-D", str(self._data), "-l", str(self._log), "-w", "-t", str(SECONDS), *arguments)

    def _run(self, program: str, *arguments: str) -> None:
        # The postmaster inherits its output: into a file, or nobody sees the end of a pipe.
        with tempfile.TemporaryFile() as output:
            done = subprocess.run(
                [str(self._binaries / program), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                user=self._user,
                cwd="/",
                env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "TZ": "UTC"},
                timeout=SECONDS + 10,
                check=False,
            )
            if done.returncode:
                output.seek(0)
                log = self._log.read_text(errors="replace")[-2000:] if self._log.exists() else ""
                raise AssertionError(f"{program} {arguments}: {output.read().decode(errors='replace')}\n{log}")


@contextmanager
def crashable_postgres() -> Iterator[CrashablePostgres]:
    """A server, and its end."""
    # Not under pytest's folders: nobody but their owner may enter them.
    folder = Path(tempfile.mkdtemp(prefix="dragoman-cluster-"))
    folder.chmod(0o755)
    server: CrashablePostgres | None = None
    try:
        server = CrashablePostgres(folder)
        yield server
    finally:
        if server is not None and server.is_running:
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)
