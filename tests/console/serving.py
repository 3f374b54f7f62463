"""Servers for the tests of the console: real processes, as a person starts them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

from support.command import DRAGOMAN, SOURCE, dragoman
from support.server_process import LAST_LINE, ServerProcess

HERE = Path(__file__).parent
AGENTS = f"{HERE / 'agents.py'}:server"
GUARDED = f"{HERE / 'agents.py'}:guarded"
HOSTILE = f"{HERE / 'hostile_agents.py'}:server"

_BASE = r"^serving .* at (http\S+)$"
_CONSOLE = re.compile(r"(http\S+/\?token=[^\s\"']+)")


def environment(folder: Path, **more: str) -> dict[str, str]:
    """The environment of a command: none of the user's settings, its state in a folder."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "XDG_STATE_HOME": str(folder / "state"),
        "PYTHONPATH": str(SOURCE),
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
        self._before = ""
        self.port = 0
        self._start()

    def _start(self) -> None:
        self._process = ServerProcess(
            [*DRAGOMAN, "serve", *self._words, "--port", str(self.port)],
            self.folder,
            environment=environment(self.folder, **self._variables),
            address=_BASE,
            merged=True,
        )
        self._process.ready().find(LAST_LINE)
        self.url = self._process.url
        self.port = int(self.url.rpartition(":")[2])
        console = _CONSOLE.search(self._process.text)
        self.console: str = console[1] if console else f"{self.url}/"
        self.has_token = console is not None

    @property
    def output(self) -> str:
        """All that it has printed so far, also before a restart."""
        return self._before + self._process.text

    def address(self, fragment: str = "") -> str:
        """The address of a view, with the token: `address("#/tasks")`."""
        return f"{self.console}{fragment}"

    def users(self, *words: str, typed: str | None = None) -> str:
        """Run `dragoman users` on the store of this server, and return what it prints."""
        done = dragoman(self.folder, "users", *words, environment=environment(self.folder), typed=typed)
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
        self._before = self.output
        self._start()

    def _end(self, number: signal.Signals) -> None:
        try:
            self._process.end(number)
        except subprocess.TimeoutExpired:
            self._process.kill()
