"""Stopping in time."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

from dragoman.engine.execute.runner import CANCEL_GRACE_SECONDS
from dragoman.server.listen.serve import GRACE, STORE_SECONDS, connection_seconds
from dragoman.server.listen.shutdown import FINAL_SECONDS, Shutdown


def test_runs_and_connections_leave_time_for_the_store() -> None:
    # Runs that did not end in time, and were canceled, leave less to connections.
    assert connection_seconds(FINAL_SECONDS) == GRACE
    left = FINAL_SECONDS - CANCEL_GRACE_SECONDS
    assert left - connection_seconds(left) >= STORE_SECONDS
    assert connection_seconds(0.5) == 0


def test_the_first_signal_is_noted_a_second_sigterm_changes_nothing_and_handlers_come_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with Shutdown(3600) as shutdown:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert shutdown.received == [signal.SIGTERM]
        assert not shutdown.interrupted
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_ctrl_c_counts_where_it_was_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Shutdown(1e300) as shutdown:
            os.kill(os.getpid(), signal.SIGINT)
            assert shutdown.interrupted
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_another_thread_than_the_main_one_takes_no_signals() -> None:
    seen: list[Any] = []

    def use() -> None:
        with Shutdown(1):
            seen.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert seen == [before]
