"""What all tests need: no card or log level left behind by another test, and signals as in a terminal."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))
import postgres_server
import proofs
import warm_start

# Files with tests that take seconds of real time, whatever the machine: they begin first, so that the run does not wait
# for one of them at its end.
LONG = {
    *("test_long_streams.py", "test_crash.py", "test_team.py", "test_package.py", "test_failover.py"),
    *("test_client_faults.py", "test_node_thread.py"),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in LONG)


def pytest_collection_finish() -> None:
    # Thousands of tests are there until the end: no collection of garbage, of which some tests ask for one, looks at
    # them again.
    gc.freeze()
    # Nor is what a test makes looked at again and again while it runs: it is gone when the test is.
    gc.set_threshold(50_000, 20, 100)
    gc.enable()


def _keep_folders_in_memory() -> None:
    """Thousands of databases are made and thrown away: where there is memory for them, no disk is waited for."""
    memory = Path("/dev/shm")
    if not memory.is_dir() or not os.access(memory, os.W_OK) or os.statvfs(memory).f_flag & os.ST_NOEXEC:
        return
    if shutil.disk_usage(memory).free > 4 << 30:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))


def _reset_signals(*, is_worker: bool) -> None:
    """Let the programs of the tests handle all signals, also when a background job or `nohup` runs the suite.

    A shell starts background jobs with SIGINT and SIGQUIT ignored, `nohup` ignores SIGHUP, and programs inherit that.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGQUIT, signal.SIGHUP):
        if is_worker or signal.getsignal(number) is signal.SIG_IGN:
            # As good as ignored, but programs do not inherit it: the suite survives the end of the terminal.
            signal.signal(number, lambda _number, _frame: None)


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # until all tests are collected: they are no garbage
    _reset_signals(is_worker=hasattr(config, "workerinput"))
    # To load the authorities of the world takes an HTTP client 25 ms, each time, and no test calls out into it. Here,
    # and in all programs that tests start, one counts: of a key that nobody has.
    os.environ["SSL_CERT_FILE"] = str(Path(__file__).with_name("nobody.pem"))
    os.environ.pop("SSL_CERT_DIR", None)
    # Every run tries other examples, so that few of them are enough; `make soak` tries many.
    settings.register_profile("few", max_examples=30, deadline=None)
    settings.register_profile("many", max_examples=2000, deadline=None)
    settings.load_profile("few")
    _keep_folders_in_memory()
    # Thousands of tests share a process, whose garbage takes its time, and a machine that may be busy: that a loop was
    # late is no fault of the code under test. The tests of the monitor of loops turn its log on.
    logging.getLogger("dragoman.loop").setLevel(logging.ERROR)
    warm_start.install()
    if getattr(config.option, "numprocesses", None):  # this is the process that starts those in which tests run
        warm_start.share()
    postgres_server.install()
    proofs.install(config)


def pytest_itemcollected(item: pytest.Item) -> None:
    proofs.note_claims(item)


def pytest_unconfigure() -> None:
    warm_start.close()
    postgres_server.close()


@pytest.fixture(autouse=True, scope="session")
def no_state_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> None:
    # Commands remember the tasks they have sent to. Here and in all programs that tests start, not in the real home.
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="session")
def postgres_databases() -> postgres_server.Databases:
    """The real PostgreSQL of this run, which the first test that needs it starts."""
    try:
        return postgres_server.Databases.open()
    except postgres_server.NoPostgres as error:
        pytest.skip(f"no PostgreSQL: {error}")


@pytest.fixture
def postgres_url(postgres_databases: postgres_server.Databases) -> Iterator[str]:
    """The URL of a database of PostgreSQL with all tables and no rows."""
    url = postgres_databases.create()
    yield url
    postgres_databases.drop(url)


@pytest.fixture
def empty_postgres_url(postgres_databases: postgres_server.Databases) -> Iterator[str]:
    """The URL of a database of PostgreSQL without any table."""
    url = postgres_databases.create(empty=True)
    yield url
    postgres_databases.drop(url)


@pytest.fixture(autouse=True)
def no_cards_of_others() -> None:
    module = sys.modules.get("dragoman.client.connect")
    if module is not None:
        module.SHARED_CARDS.clear()


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    # A command that runs in this process sets up logging, as in its own.
    root, loggers = logging.getLogger(), [logging.getLogger(name) for name in ("", "uvicorn", "dragoman.audit")]
    handlers, levels = list(root.handlers), [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, levels, strict=True):
        if logger.level != level:
            logger.setLevel(level)
    if root.handlers != handlers:
        root.handlers[:] = handlers
        sys.modules["dragoman.telemetry.log_context"].LOG_CONTEXT.enable(on=False)
