"""A command on a terminal, and what a terminal shows of a text."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyte

from support.command import DRAGOMAN, clean_environment

SECONDS = 30.0
_PAUSE = 5.0  # before Ctrl-C is pressed once more


def screen_of(output: str, columns: int = 80, rows: int = 100) -> str:
    """What a terminal shows of an output: its lines without empty space at the right, down to the last with a text."""
    screen = pyte.Screen(columns, rows)
    pyte.Stream(screen).feed(output.replace("\n", "\r\n"))
    return "\n".join(line.rstrip() for line in screen.display).rstrip("\n") + "\n"


class Terminal:
    """A `dragoman` command, or another program, that runs on a terminal of its own from its construction on.

    With `piped`, stdout goes into a pipe and the rest to the terminal. `seen` is what it has printed since the text
    that was waited for last.
    """

    def __init__(
        self,
        args: Sequence[str],
        folder: Path,
        *,
        piped: bool = False,
        program: Sequence[str] = DRAGOMAN,
        **environ: str,
    ) -> None:
        self._master, slave = pty.openpty()
        self.initial_mode = self.mode  # before the program can change it
        self.seen = ""
        self.process: subprocess.Popen[bytes] = subprocess.Popen(
            [*program, *args],
            cwd=folder,
            env=clean_environment(folder, **{"TERM": "xterm", **environ}),
            stdin=slave,
            stdout=subprocess.PIPE if piped else slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)

    def until(self, text: str) -> str:
        """Wait until it prints this after what was waited for last, and return what came before it.

        Raises:
            AssertionError: it ended without, or did not print it in time.
        """
        deadline = time.monotonic() + SECONDS
        while text not in self.seen:
            assert self.read(deadline), f"it ended without {text!r}: {self.seen!r}"
        before, _, self.seen = self.seen.partition(text)
        return before

    @property
    def mode(self) -> list[Any]:
        """The mode of the terminal: whether it echoes, waits for whole lines, and so on."""
        return termios.tcgetattr(self._master)

    def resize(self, columns: int, rows: int) -> None:
        """Change the size of the window. The program is not told."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str | bytes) -> None:
        """Press keys."""
        os.write(self._master, text.encode() if isinstance(text, str) else text)

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def interrupt_until(self, text: str) -> str:
        """Ctrl-C at a prompt, repeated like `interrupted` until this is printed."""
        for _ in range(int(SECONDS / _PAUSE)):
            self.interrupt()
            deadline = time.monotonic() + _PAUSE
            while text not in self.seen and self.can_read(deadline) and self.read(deadline):
                pass
            if text in self.seen or self.process.poll() is not None:
                break
        return self.until(text)

    def interrupted(self) -> tuple[int, str]:
        """Ctrl-C at a prompt, and the end. One that comes between the prompt and the reading is lost: repeat."""
        for _ in range(int(SECONDS)):
            self.interrupt()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(1)
                break
        return self.ended()

    def ended(self) -> tuple[int, str]:
        """Wait for the end; returns the exit code and the rest of the output."""
        deadline = time.monotonic() + SECONDS
        while self.read(deadline):
            pass
        return self.process.wait(SECONDS), self.seen

    def hang_up(self) -> None:
        """Close the window."""
        os.close(self._master)
        self._master = -1

    def close(self) -> None:
        """Kill the program if it still runs, and close the window."""
        self.process.kill()
        self.process.wait(SECONDS)
        if self.process.stdout is not None:
            self.process.stdout.close()
        if self._master >= 0:
            os.close(self._master)

    def can_read(self, deadline: float) -> bool:
        """Wait until there is something to read, at most until then."""
        return bool(select.select([self._master], [], [], max(0.0, deadline - time.monotonic()))[0])

    def read(self, deadline: float) -> bool:
        """Wait for output, and append it to `seen`; False at the end of the program.

        Raises:
            AssertionError: there is none until then.
        """
        assert self.can_read(deadline), f"no more output: {self.seen!r}"
        # A terminal that nobody has open any more is an error on Linux.
        with suppress(OSError):
            if chunk := os.read(self._master, 4096):
                self.seen += chunk.decode("utf-8", "replace").replace("\r\n", "\n")
                return True
        return False
