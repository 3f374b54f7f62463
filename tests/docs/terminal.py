"""A shell in a real terminal, for scripts that do what a person does."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from pathlib import Path

import pyte


def plain(text: str) -> str:
    """Remove escape sequences."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r\n", "\n")


class Terminal:
    """A bash in a terminal of its own, with an emulator for its screen."""

    def __init__(self, folder: Path, environment: dict[str, str], *, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self.screen = pyte.HistoryScreen(columns, rows, history=10_000)
        self.output = ""
        self._stream = pyte.ByteStream(self.screen)
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execvpe("bash", ["bash", "--norc", "--noprofile"], environment)
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self, seconds: float) -> bool:
        """Read what there is within this time; False when there is nothing."""
        if not select.select([self._fd], [], [], seconds)[0]:
            return False
        piece = os.read(self._fd, 65536)
        self.output += piece.decode("utf-8", "replace")
        # The emulator knows no dim text.
        self._stream.feed(piece.replace(b"\x1b[2m", b"\x1b[90m"))
        return True

    def press(self, keys: str) -> None:
        """Press keys."""
        os.write(self._fd, keys.encode())

    @property
    def text(self) -> str:
        """What is on the screen."""
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip("\n")

    def wait_for(self, text: str, seconds: float, *, start: int = 0) -> None:
        """Wait until a text has been printed after the first `start` characters. Raises TimeoutError."""
        end = time.monotonic() + seconds
        while text not in plain(self.output[start:]):
            if time.monotonic() > end:
                raise TimeoutError(f"no {text!r} within {seconds:g} s:\n\n{self.text}")
            self.read(0.2)

    def close(self) -> None:
        """End the shell and what runs in it."""
        os.kill(self.pid, signal.SIGHUP)
        os.close(self._fd)
        os.waitpid(self.pid, 0)
