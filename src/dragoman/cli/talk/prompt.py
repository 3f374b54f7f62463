"""Reads what the user types in a chat: with editing, history and Tab on a terminal, line by line from a pipe."""

from __future__ import annotations

import io
import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragoman.cli.printing import CLEAR, out, say

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

CONTINUED = "... "
_WORD_ENDS = " \t\n"
_NEEDS_ESCAPE = re.compile(r"([\s\\'\"])")


def is_interactive() -> bool:
    """True when somebody can answer: stdin is a terminal. A shell may have closed it, as `<&-` does."""
    return sys.stdin is not None and sys.stdin.isatty()


def read_line(prompt: str) -> str | None:
    """Ask for a line on the terminal, and read it from stdin, without its line break; None at the end of the input.

    Raises:
        KeyboardInterrupt: Ctrl-C.
    """
    accept_any_bytes()
    try:
        out(prompt, nl=False, err=True)
        line = sys.stdin.readline()
    except KeyboardInterrupt:
        say()  # what is printed next begins a line
        raise
    if not line:
        say()
        return None
    return line.rstrip("\r\n")


def accept_any_bytes() -> None:
    """Have stdin replace what is not valid in its encoding: a message is valid Unicode."""
    stdin: object = sys.stdin
    # Once something has been read, it cannot be set any more.
    if isinstance(stdin, io.TextIOWrapper) and stdin.errors != "replace":
        stdin.reconfigure(errors="replace")


class Prompt:
    """The input of a chat, message by message.

    On a terminal a line that ends with a backslash continues on the next line, and pasted text is one message, whatever
    line breaks it has. `commands` are those that Tab completes; those in `with_paths` are followed by a path.
    """

    def __init__(self, commands: Sequence[str], with_paths: Sequence[str]) -> None:
        self._commands = commands
        self._with_paths = with_paths
        self.interactive = is_interactive()
        accept_any_bytes()
        # input() edits lines only where both are terminals.
        self._readline = _import_readline() if self.interactive and sys.stdout.isatty() else None
        if self._readline is not None:
            self._set_up(self._readline)

    def read(self, prompt: str, *, interrupted: bool = False) -> str | None:
        """Read the next message; None at the end of the input.

        Ctrl-C clears what has been typed, and says that another one leaves. With `interrupted` that has been said.

        Raises:
            KeyboardInterrupt: Ctrl-C for the second time, with nothing typed since the first.
        """
        while True:
            pieces: list[str] = []
            try:
                message = self._read_message(prompt, pieces)
            except KeyboardInterrupt:
                if not self.interactive or (interrupted and not pieces and not self._typed()):
                    raise
                interrupted = True
                say()
                say("press Ctrl-C again to quit")
                continue
            if message is not None and message.strip() and self._readline is not None and self._history.append(message):
                with suppress(ValueError):
                    self._readline.add_history(message)
            return message

    def _read_message(self, prompt: str, pieces: list[str]) -> str | None:
        while (line := self._read_line(CONTINUED if pieces else prompt)) is not None:
            if not self.interactive or not line.endswith("\\"):
                return "\n".join([*pieces, line.rstrip("\n")])
            pieces.append(line[:-1])
        return "\n".join(pieces) if pieces else None

    def _read_line(self, prompt: str) -> str | None:
        try:
            if self._readline is not None:
                return input(prompt)
            if self.interactive:
                out(prompt, nl=False, err=True)
            line = sys.stdin.readline() if sys.stdin is not None else ""
        except EOFError:
            line = ""
        if not line and self.interactive:
            # Some versions of readline end the line themselves.
            out(CLEAR, nl=False, err=True)
        return line.rstrip("\r\n") if line else None

    def _typed(self) -> str:
        return self._readline.get_line_buffer() if self._readline is not None else ""

    # -- readline ----------------------------------------------------------------------------------------------------

    def _set_up(self, readline: Any) -> None:
        from dragoman.cli.state import state_folder
        from dragoman.cli.talk.history import MessageHistory

        self._history = MessageHistory(state_folder() / "chat_history")
        readline.set_auto_history(False)  # a message of several lines is one entry
        for message in self._history.load():
            with suppress(ValueError):  # it has characters that this terminal does not have
                readline.add_history(message)
        readline.set_completer(self._complete)
        readline.set_completer_delims(_WORD_ENDS)
        if "libedit" in (readline.__doc__ or ""):
            readline.parse_and_bind("bind ^I rl_complete")
        else:
            readline.parse_and_bind("tab: complete")
            readline.parse_and_bind("set enable-bracketed-paste on")

    def _complete(self, word: str, index: int) -> str | None:
        assert self._readline is not None
        line = self._readline.get_line_buffer()[: self._readline.get_endidx()]
        matches = self._matches(line, len(line) - len(word))
        return matches[index] if index < len(matches) else None

    def _matches(self, line: str, start: int) -> list[str]:
        """Return what the word that begins at `start` can become. Errors of the file system complete nothing."""
        if start == 0:
            found = [each for each in self._commands if each.startswith(line)] if line.startswith("/") else []
            return [f"{each} " if each in self._with_paths else each for each in found]
        command, _, typed = line.partition(" ")
        if command not in self._with_paths:
            return []
        typed = typed.lstrip()
        # A space in a path is escaped, and readline takes it for the end of a word all the same.
        offset = start - (len(line) - len(typed))
        with suppress(OSError):
            return [each[offset:] for each in _paths(typed) if offset >= 0]
        return []


def _paths(typed: str) -> list[str]:
    """Return the paths that begin as typed, escaped; a folder ends with a slash."""
    path = re.sub(r"\\(.)", r"\1", typed)
    head, slash, name = path.rpartition("/")
    folder = Path(head + slash or ".").expanduser()
    entries = [entry for entry in os.scandir(folder) if entry.name.startswith(name)]
    names = sorted(
        entry.name + ("/" if entry.is_dir() else "") for entry in entries if name or not entry.name.startswith(".")
    )
    return [_NEEDS_ESCAPE.sub(r"\\\1", head + slash + each) for each in names]


def _import_readline() -> ModuleType | None:
    try:
        import readline
    except ImportError:  # on Windows, and in some builds of Python; then input is as the terminal gives it
        return None
    return readline
