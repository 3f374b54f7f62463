"""The first hour of a newcomer, without the reading: from a clean clone to an agent of one's own.

Everything happens in two real terminals. Every command is one that the README or a guide shows: another one is refused.
`make first-hour` runs it; it needs the package index, and at most five minutes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from examples import PAGES, ROOT, Block, blocks_of
from terminal import Terminal

MOST = 300
PROMPT = "ready$ "
# What is not ours to explain: one goes into the folders that one has made, and clones what one has found.
SHELL_WORDS = ("cd ", "git clone ")


def shown_commands() -> set[str]:
    """Every command of the documentation, from its blocks and from its sentences."""
    found: set[str] = set()
    for page in PAGES:
        for block in blocks_of(page):
            if block.language == "sh":
                lines = block.text.replace("\\\n", " ").splitlines()
                found |= {" ".join(line.partition("    #")[0].split()) for line in lines}
        found |= {" ".join(code.split()) for code in re.findall(r"`([^`]+)`", page.read_text(encoding="utf-8"))}
    return found - {""}


class Newcomer:
    """Somebody with two terminals who types what the documentation shows."""

    def __init__(self, folder: Path) -> None:
        kept = {name: os.environ[name] for name in ("LANG", "PIP_INDEX_URL", "PIP_CONFIG_FILE") if name in os.environ}
        environment = kept | {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "PS1": PROMPT,
            "TERM": "xterm-256color",
        }
        self._folder = folder
        self._shown = shown_commands()
        self.server = Terminal(folder, environment, columns=100, rows=40)
        self.caller = Terminal(folder, environment, columns=100, rows=40)
        for terminal in (self.server, self.caller):
            terminal.wait_for(PROMPT, 10)

    def type(self, terminal: Terminal, command: str) -> int:
        """Type a command. Returns where its output begins. Raises AssertionError if no page shows it."""
        if command not in self._shown and not command.startswith(SHELL_WORDS):
            raise AssertionError(f"neither the README nor a guide shows: {command}")
        start = len(terminal.output)
        print(f"{time.monotonic() - START:6.1f} s  {command}", flush=True)
        terminal.press(f"{command}\n")
        return start

    def run(self, command: str, *, expect: str = "", seconds: float = 60, terminal: Terminal | None = None) -> str:
        """Run a command to its end. Returns its output, without escape sequences."""
        terminal = terminal or self.caller
        start = self.type(terminal, command)
        terminal.wait_for(PROMPT, seconds, start=start)
        output = plain(terminal.output[start:])
        assert expect in output, f"{command} did not print {expect!r}:\n\n{output}"
        return output

    def save(self, path: str, text: str) -> None:
        """Save a file of the documentation."""
        print(f"{time.monotonic() - START:6.1f} s  (saves {path})", flush=True)
        (self._folder / path).write_text(text, encoding="utf-8")

    @contextmanager
    def serving(self, command: str, *, seconds: float = 30) -> Iterator[None]:
        """Serve with this command; Ctrl-C ends it."""
        start = self.type(self.server, command)
        self.server.wait_for("dragoman ", seconds, start=start + len(command) + 2)
        yield
        start = len(self.server.output)
        self.server.press("\x03")
        self.server.wait_for(PROMPT, 20, start=start)
        end = plain(self.server.output[start:])
        assert "***" not in end, end
        assert "Traceback" not in end, end

    def close(self) -> None:
        """Close both terminals."""
        self.caller.close()
        self.server.close()


def plain(text: str) -> str:
    """Remove escape sequences."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r\n", "\n")


def block(page: str, title: str) -> Block:
    """Return the file with this title on a page."""
    return next(each for each in blocks_of(ROOT / page) if each.title == title)
