"""Servers for the tests of the console: real processes, as a person starts them."""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

HERE = Path(__file__).parent
SRC = HERE.parents[1] / "src"
COMMAND = [sys.executable, "-m", "dragoman.cli.main"]
AGENTS = f"{HERE / 'agents.py'}:server"
GUARDED = f"{HERE / 'agents.py'}:guarded"
HOSTILE = f"{HERE / 'hostile_agents.py'}:server"

_BASE = re.compile(r"^serving .* at (http\S+)$", re.MULTILINE)
_CONSOLE = re.compile(r"(http\S+/\?token=[^\s\"']+)")
# The last line that a server prints before it waits for callers.
_LAST = re.compile(r"^  try ", re.MULTILINE)
_START_SECONDS = 15.0
_STOP_SECONDS = 10.0


def environment(folder: Path, **more: str) -> dict[str, str]:
    """The environment of a command: none of the user's settings, its state in a folder."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "XDG_STATE_HOME": str(folder / "state"),
        "PYTHONPATH": str(SRC),
        **more,
    }


class ServedConsole:
    """A `dragoman serve` that listens on a free port; its store is in its folder, as always."""

    def __init__(self, folder: Path, *words: str | Path, **variables: str) -> None:
        """Start it in a folder, with arguments after `serve`, and wait until it listens.

        Raises:
            AssertionError: it did not start; the message is what it printed.
        """
        self.folder = folder
        self._words = [str(word) for word in words]
        self._variables = variables
        self._output = ""
        self.port = 0
        self._start()

    def _start(self) -> None:
        self._process: subprocess.Popen[str] = subprocess.Popen(
            [*COMMAND, "serve", *self._words, "--port", str(self.port)],
            cwd=self.folder,
            env=environment(self.folder, **self._variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
        )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            printed = self._read_start()
        except BaseException:
            self.kill()
            raise
        base = _BASE.search(printed)
        assert base is not None, printed
        self.url: str = base[1]
        self.port = int(self.url.rpartition(":")[2])
        console = _CONSOLE.search(printed)
        self.console: str = console[1] if console else f"{self.url}/"
        self.has_token = console is not None

    def _read_start(self) -> str:
        printed = ""
        while not _LAST.search(printed):
            try:
                line = self._lines.get(timeout=_START_SECONDS)
            except queue.Empty:
                raise AssertionError(f"the server did not start in time:\n{printed}") from None
            assert line is not None, f"the server did not start:\n{printed}"
            printed += line
        return printed

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout:
            for line in self._process.stdout:
                self._output += line
                self._lines.put(line)
        self._lines.put(None)

    @property
    def output(self) -> str:
        """All that it has printed so far, also before a restart."""
        return self._output

    def address(self, fragment: str = "") -> str:
        """The address of a view, with the token: `address("#/tasks")`."""
        return f"{self.console}{fragment}"

    def users(self, *words: str, typed: str | None = None) -> str:
        """Run `dragoman users` on the store of this server, and return what it prints."""
        done = subprocess.run(
            [*COMMAND, "users", *words],
            cwd=self.folder,
            env=environment(self.folder),
            input=typed,
            capture_output=True,
            text=True,
            timeout=_START_SECONDS,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def stop(self) -> None:
        """Stop it as Ctrl-C does."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """Kill it as a crash does."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Start it again after `stop` or `kill`, on the same port and store; it prints another token."""
        self._start()

    def _end(self, number: int) -> None:
        if self._process.poll() is None:
            self._process.send_signal(number)
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(_STOP_SECONDS)
        self._reader.join(_STOP_SECONDS)
