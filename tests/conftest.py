"""What all tests need: no cards of servers that other tests had on the same port, and a Ctrl-C that counts."""

from __future__ import annotations

import signal
import sys
import threading

import pytest


def pytest_configure() -> None:
    # What a shell starts in the background ignores SIGINT, and so do all programs that it starts: commands of the
    # tests must not.
    is_ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if is_ignored and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def no_cards_of_others() -> None:
    module = sys.modules.get("dragoman.client.connect")
    if module is not None:
        module.CARDS.clear()
