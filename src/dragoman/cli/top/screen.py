"""A terminal that shows one page at a time: its alternate screen, its size, its keys. It is left as it was."""

from __future__ import annotations

import importlib.util
import os
import re
import select
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, NoReturn

from dragoman.cli.printing import StyledText, out_live

# The alternate screen, without a cursor and without wrapping.
_ENTER = StyledText("\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J")
_LEAVE = StyledText("\x1b[?7h\x1b[?25h\x1b[?1049l")

# Terminals that know these show what is between them at once; others pass over them.
_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"
# Arrows and the like, which nothing is bound to.
_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|O.|.)?")


class Screen:
    """The screen, within a `with` block on the main thread. Terminals only: see `can_open`."""

    def __init__(self) -> None:
        self._has_keys = sys.stdin is not None and sys.stdin.isatty()
        self._saved_mode: list[Any] | None = None
        self._saved_handlers: dict[signal.Signals, Any] = {}
        self._shall_stop = False
        # Whatever happens writes a byte here: a signal, or another thread.
        self._bell, self._ringer = socket.socketpair()

    @staticmethod
    def can_open() -> bool:
        """True when stdout is a terminal that can be drawn on."""
        if not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
            return False
        # Windows has none.
        return importlib.util.find_spec("termios") is not None

    def __enter__(self) -> Screen:
        for end in (self._bell, self._ringer):
            end.setblocking(False)
        signal.set_wakeup_fd(self._ringer.fileno(), warn_on_full_buffer=False)
        self._handle(signal.SIGWINCH, _wake_only)
        self._handle(signal.SIGTSTP, self._stop_soon)
        for number in (signal.SIGTERM, signal.SIGHUP):
            self._handle(number, _end)
        self._enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A window that was closed cannot be put back.
        with suppress(OSError):
            self._leave()
        signal.set_wakeup_fd(-1)
        for number, handler in self._saved_handlers.items():
            signal.signal(number, handler)
        self._bell.close()
        self._ringer.close()

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows, now."""
        with suppress(OSError):
            return os.get_terminal_size(sys.stdout.fileno())
        return shutil.get_terminal_size()

    def draw(self, lines: Sequence[StyledText]) -> None:
        """Draw the page anew, in one write, so that it does not flicker."""
        # A line is cleared before it is written: afterwards, its last column would be cleared too.
        body = "\r\n".join(f"\x1b[2K{line}" for line in lines)
        out_live(StyledText(f"{_BEGIN}\x1b[H{body}{_END}"))

    def wait(self, seconds: float | None) -> str:
        """Wait for a key, for `wake` or a signal such as a new size, at most so long. Returns the keys, or nothing.

        Raises:
            EOFError: the terminal is gone.
        """
        sources: list[Any] = [self._bell]
        if self._has_keys:
            sources.append(sys.stdin.fileno())
        ready, _, _ = select.select(sources, [], [], seconds)
        if self._bell in ready:
            with suppress(BlockingIOError):
                self._bell.recv(4096)
        if self._shall_stop:
            self._suspend()
        if len(ready) == (self._bell in ready):
            return ""
        keys = os.read(sys.stdin.fileno(), 1024)
        if not keys:
            raise EOFError
        return _SEQUENCE.sub("", keys.decode("utf-8", "replace"))

    def wake(self) -> None:
        """Have `wait` return; from any thread."""
        with suppress(OSError):
            self._ringer.send(b"\0")

    # -- the state of the terminal -------------------------------------------------------------------------------

    def _enter(self) -> None:
        import termios
        import tty

        if self._has_keys:
            self._saved_mode = termios.tcgetattr(sys.stdin.fileno())
            # Keys at once and not echoed; Ctrl-C is still a signal.
            tty.setcbreak(sys.stdin.fileno())
        out_live(_ENTER)

    def _leave(self) -> None:
        import termios

        try:
            out_live(_LEAVE)
        finally:
            if self._saved_mode is not None:
                # What was typed meanwhile is not for the shell.
                with suppress(termios.error):
                    termios.tcsetattr(sys.stdin.fileno(), termios.TCSAFLUSH, self._saved_mode)
                self._saved_mode = None

    def _handle(self, number: signal.Signals, handler: Callable[[int, FrameType | None], object]) -> None:
        self._saved_handlers[number] = signal.signal(number, handler)

    def _stop_soon(self, _: int, __: FrameType | None) -> None:
        # Not here: the signal may have come while something is written.
        self._shall_stop = True

    def _suspend(self) -> None:
        """Ctrl-Z: give the terminal back to the shell, and take it again when the shell says so."""
        self._shall_stop = False
        self._leave()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._stop_soon)
        self._enter()


def _wake_only(_: int, __: FrameType | None) -> None:
    """What is handled wakes `wait`; that is all that is wanted."""


def _end(_: int, __: FrameType | None) -> NoReturn:
    sys.exit(0)
