"""What all tests need: no card or log level left behind by another test, and a Ctrl-C that counts."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import warm_start


def pytest_configure() -> None:
    warm_start.install()
    # What a shell starts in the background ignores SIGINT, and so do all programs that it starts: commands of the
    # tests must not.
    is_ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if is_ignored and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_unconfigure() -> None:
    warm_start.close()


@pytest.fixture(autouse=True)
def no_cards_of_others() -> None:
    module = sys.modules.get("dragoman.client.connect")
    if module is not None:
        module.SHARED_CARDS.clear()


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    # A command that runs in this process sets up logging, as in its own.
    root, uvicorn = logging.getLogger(), logging.getLogger("uvicorn")
    before = (root.level, list(root.handlers), uvicorn.level)
    yield
    if (root.level, root.handlers, uvicorn.level) != before:
        root.setLevel(before[0])
        root.handlers[:] = before[1]
        uvicorn.setLevel(before[2])
