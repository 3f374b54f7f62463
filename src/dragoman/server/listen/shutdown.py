"""Shutdown on a signal, within a deadline.

The process ends whatever agents' code does: it may swallow the cancellation, block a thread, or block the event loop
itself. Nothing that was acknowledged is lost, and the next start reports what became of the tasks.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import sys
import threading
import time
from queue import Empty, SimpleQueue
from typing import Any, NoReturn

logger = logging.getLogger("dragoman.server")
# How long everything else may take after the runs have been drained, in seconds.
FINAL_SECONDS = 5.0
# The part of that for ending the process itself.
_MARGIN = 0.5


def stop_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that stop a server: SIGTERM, and SIGINT unless this process was started with it ignored.

    A shell without job control ignores SIGINT for its background jobs, so that a Ctrl-C for a script leaves them alone.
    """
    is_ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    return (signal.SIGTERM,) if is_ignored else (signal.SIGINT, signal.SIGTERM)


class Shutdown:
    """Turns the first SIGINT or SIGTERM into a graceful stop, and ends the process when that takes too long.

    The process ends at the latest `drain` plus five seconds after the signal, or five seconds after the runs have ended
    if that is sooner, and at once with a second Ctrl-C; `allow` adds to the five seconds. With `final` the deadline
    also covers the time after the server has stopped: threads of agents may keep the process alive.
    """

    def __init__(self, drain: float, *, final: bool = False) -> None:
        self._drain = min(drain, 1e7)  # timers overflow beyond that
        self._final = final
        # SimpleQueue.put is reentrant, so a signal handler may call it.
        self._steps: SimpleQueue[bool] = SimpleQueue()
        self._previous_handlers: dict[signal.Signals, Any] = {}
        self._devnull = -1
        self._until = float("inf")  # when the process ends, on the monotonic clock
        self._more = 0.0
        self.received: list[int] = []

    def __enter__(self) -> Shutdown:
        """Install the signal handlers, if this is the main thread: others cannot."""
        if threading.current_thread() is threading.main_thread():
            self._devnull = os.open(os.devnull, os.O_WRONLY)
            threading.Thread(target=self._watch, name="dragoman-shutdown", daemon=True).start()
            self._previous_handlers = {number: signal.signal(number, self._receive) for number in stop_signals()}
        return self

    def __exit__(self, *error: object) -> None:
        """Restore the signal handlers and stop the deadline."""
        if not self._previous_handlers or (self._final and self.received):
            return
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)
        self._steps.put(False)
        faulthandler.cancel_dump_traceback_later()
        os.close(self._devnull)

    @property
    def interrupted(self) -> bool:
        """True when SIGINT stopped the server."""
        return signal.SIGINT in self.received

    @property
    def seconds_left(self) -> float:
        """How long the process has until it ends whatever happens."""
        return max(0.0, self._until - time.monotonic())

    def allow(self, seconds: float) -> None:
        """Allow so many seconds more: there is much to end. For once, after the signal."""
        if self.received and seconds > 0:
            self._more = seconds
            self._until += seconds
            self._steps.put(True)
            if self._previous_handlers:
                faulthandler.dump_traceback_later(self.seconds_left + _MARGIN, exit=True, file=self._devnull)

    def record_drained(self) -> None:
        """Record that the runs have ended or were given up: the rest has five seconds."""
        self._end_within(FINAL_SECONDS + self._more)

    def exit_process(self) -> NoReturn:
        """End the process now, without waiting for anything."""
        # In another thread, because writing may block: perhaps nobody reads the pipe.
        last = threading.Thread(target=_log_forced_stop, daemon=True)
        last.start()
        last.join(_MARGIN / 2)
        os._exit(130 if self.interrupted else 0)

    def _receive(self, number: int, _: object) -> None:
        if self.received:
            if number == signal.SIGINT:
                os._exit(130)
            return
        self.received.append(number)
        self._end_within(self._drain + FINAL_SECONDS)
        # For code that never releases the GIL, as some regular expressions: this timer is a C thread.
        faulthandler.dump_traceback_later(self._drain + FINAL_SECONDS, exit=True, file=self._devnull)

    def _end_within(self, seconds: float) -> None:
        self._until = min(self._until, time.monotonic() + seconds - _MARGIN)
        self._steps.put(True)

    def _watch(self) -> None:
        if not self._steps.get():
            return
        while True:
            try:
                if not self._steps.get(timeout=self.seconds_left):
                    return
            except Empty:
                self.exit_process()


def _log_forced_stop() -> None:
    logger.error("stopped by force: the code of an agent, or the store, did not end in time")
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
