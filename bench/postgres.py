"""A PostgreSQL for stores that need one: started for a scenario, with the durability that it has by default."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from bench.server import CannotStart

_SECONDS = 60
_SETTINGS = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = 100
shared_buffers = 128MB
"""


def binaries() -> Path | None:
    """The folder of PostgreSQL's programs; None where it is not installed."""
    on_path = shutil.which("pg_ctl")
    folders = [Path(on_path).resolve().parent] if on_path else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in folders if (folder / "initdb").exists()), None)


def missing() -> str | None:
    """What has to be installed before anything can be measured on PostgreSQL, as a note; None when nothing is."""
    if binaries() is None:
        return "PostgreSQL is not installed: nothing was measured"
    if importlib.util.find_spec("asyncpg") is None:
        return "asyncpg is not installed: nothing was measured"
    return None


class Postgres:
    """A running server. Every burst gets a database of its own."""

    def __init__(self, programs: Path, port: int, folder: Path) -> None:
        self._programs = programs
        self._port = port
        self._numbers = count(1)
        self.folder = folder

    @property
    def pid(self) -> int:
        """The process that all its others are children of."""
        return int((self.folder / "data" / "postmaster.pid").read_text().split()[0])

    def empty_database(self) -> str:
        """Create a database, and return its URL."""
        name = f"bench{next(self._numbers)}"
        _run(self._programs / "createdb", "-h", "127.0.0.1", "-p", str(self._port), "-U", "postgres", name)
        return f"postgresql://postgres@127.0.0.1:{self._port}/{name}"


@contextmanager
def postgres() -> Generator[Postgres, None, None]:
    """Start a PostgreSQL in a folder of its own, and stop it at the end.

    Raises:
        CannotStart: it is not installed, or does not start.
    """
    programs = binaries()
    if programs is None:
        raise CannotStart("PostgreSQL is not installed: there is no pg_ctl")
    folder = Path(tempfile.mkdtemp(prefix="dragoman-bench-postgres-"))
    data = folder / "data"
    if os.geteuid() == 0:
        shutil.chown(folder, "nobody")  # PostgreSQL refuses to run as root
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    control = ["-D", str(data), "-l", str(folder / "log"), "-w", "-t", str(_SECONDS)]
    try:
        _run(programs / "initdb", "-N", "-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C")
        (data / "postgresql.auto.conf").write_text(f"{_SETTINGS}port = {port}\n")
        _run(programs / "pg_ctl", *control, "start")
        try:
            yield Postgres(programs, port, folder)
        finally:
            _run(programs / "pg_ctl", *control, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(program: Path, *arguments: str) -> None:
    with tempfile.TemporaryFile() as output:
        done = subprocess.run(
            [program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,  # a file: the server inherits it, and a pipe would never end
            stderr=subprocess.STDOUT,
            user="nobody" if os.geteuid() == 0 else None,
            cwd="/",
            env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"},
            timeout=_SECONDS + 10,
            check=False,
        )
        if done.returncode:
            output.seek(0)
            raise CannotStart(f"{program.name} failed: {output.read().decode(errors='replace')[-2000:]}")
