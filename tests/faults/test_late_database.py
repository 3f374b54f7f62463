"""A node that starts before its database does waits for it, and says so."""

from __future__ import annotations

import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from postgres_server import NoPostgres, PostgresServer

pytestmark = [pytest.mark.fault, pytest.mark.timeout(90)]

SECONDS = 60
SECRET = "dk1_" + "s" * 43  # as if it were generated: no slow derivation
# Waits for one second instead of a minute, and then goes on as the command does.
IMPATIENT = "import sys, dragoman.stores.postgres.store as store; store.START_SECONDS = 1; " + (
    "from dragoman.cli.main import main; main(sys.argv[1:])"
)


class StartingNode:
    """`dragoman serve` with a store on PostgreSQL, and what it says on stderr."""

    def __init__(self, folder: Path, url: str, *python: str) -> None:
        words = python or ("-m", "dragoman.cli.main")
        self.process = subprocess.Popen(
            [sys.executable, *words, "serve", "dragoman.examples.demo", "--port", "0", "--store", url],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            env={"DRAGOMAN_SECRET": SECRET, "HOME": str(folder), "PATH": "/usr/bin:/bin"},
        )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.said = ""
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr:
            for line in self.process.stderr:
                self.said += line
                self._lines.put(line)
        self._lines.put(None)

    def until(self, text: str) -> str:
        while (line := self._lines.get(timeout=SECONDS)) is not None:
            if text in line:
                return line
        raise AssertionError(f"it did not say {text!r}:\n{self.said}")

    def end(self) -> int:
        code = self.process.wait(SECONDS)
        self._listener.join(SECONDS)
        return code


@pytest.fixture
def late() -> Iterator[PostgresServer]:
    """A PostgreSQL that has its port and its folder, and is not started yet."""
    folder = Path(tempfile.mkdtemp(prefix="dragoman-late-"))
    folder.chmod(0o755)
    try:
        server = PostgresServer(folder / "postgres")
    except NoPostgres as error:
        pytest.skip(f"no PostgreSQL: {error}")
    yield server
    server.stop()
    shutil.rmtree(folder, ignore_errors=True)


def test_a_node_waits_for_a_database_that_starts_after_it(late: PostgresServer, tmp_path: Path) -> None:
    node = StartingNode(tmp_path, late.url())
    try:
        warning = node.until("does not answer, waiting up to 60 s")
        assert "refuses connections: is PostgreSQL running there?" in warning
        late.start()
        node.until("  card ")
    finally:
        node.process.terminate()
        assert node.end() == 0, node.said


def test_a_node_whose_database_never_comes_ends_with_a_code_of_its_own(late: PostgresServer, tmp_path: Path) -> None:
    node = StartingNode(tmp_path, late.url(), "-c", IMPATIENT)
    assert node.end() == 3, node.said
    assert "dragoman: the database of --store does not answer" in node.said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_node_that_waits_can_be_stopped(late: PostgresServer, tmp_path: Path, number: signal.Signals) -> None:
    node = StartingNode(tmp_path, late.url())
    node.until("waiting up to 60 s")
    node.process.send_signal(number)
    assert node.process.wait(20) == (0 if number is signal.SIGTERM else 130), node.said
    assert "by force" not in node.said


def test_a_wrong_database_name_is_a_wrong_setting_and_not_waited_for(late: PostgresServer, tmp_path: Path) -> None:
    late.start()
    node = StartingNode(tmp_path, late.url("nothere"))
    assert node.end() == 2, node.said
    assert "waiting" not in node.said
