"""A node that starts before its database does waits for it, and says so."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from postgres_server import NoPostgres, PostgresServer
from support.server_process import ServerProcess

pytestmark = [pytest.mark.fault, pytest.mark.timeout(90)]

SECONDS = 60
SECRET = "dk1_" + "s" * 43  # as if it were generated: no slow derivation
# Waits for one second instead of a minute, and then goes on as the command does.
IMPATIENT = "import sys, dragoman.stores.postgres.store as store; store.START_SECONDS = 1; " + (
    "from dragoman.cli.main import main; main(sys.argv[1:])"
)


def starting_node(folder: Path, url: str, *python: str) -> ServerProcess:
    """`dragoman serve` with a store on PostgreSQL, which it may have to wait for."""
    words = python or ("-m", "dragoman.cli.main")
    return ServerProcess(
        [sys.executable, *words, "serve", "dragoman.examples.demo", "--port", "0", "--store", url],
        folder,
        environment={"DRAGOMAN_SECRET": SECRET, "HOME": str(folder), "PATH": "/usr/bin:/bin"},
        seconds=SECONDS,
    )


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
    node = starting_node(tmp_path, late.url())
    try:
        warning = node.until("does not answer, waiting up to 60 s")
        assert "refuses connections: is PostgreSQL running there?" in warning
        late.start()
        node.until("  card ")
    finally:
        assert node.end() == 0, node.text


def test_a_node_whose_database_never_comes_ends_with_a_code_of_its_own(late: PostgresServer, tmp_path: Path) -> None:
    node = starting_node(tmp_path, late.url(), "-c", IMPATIENT)
    assert node.wait() == 3, node.text
    assert "dragoman: the database of --store does not answer" in node.text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_node_that_waits_can_be_stopped(late: PostgresServer, tmp_path: Path, number: signal.Signals) -> None:
    node = starting_node(tmp_path, late.url())
    node.until("waiting up to 60 s")
    assert node.end(number) == (0 if number is signal.SIGTERM else 130), node.text
    assert "by force" not in node.text


def test_a_wrong_database_name_is_a_wrong_setting_and_not_waited_for(late: PostgresServer, tmp_path: Path) -> None:
    late.start()
    node = starting_node(tmp_path, late.url("nothere"))
    assert node.wait() == 2, node.text
    assert "waiting" not in node.text
