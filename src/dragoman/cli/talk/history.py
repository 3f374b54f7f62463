"""The messages typed in chats, kept across sessions in the user's state folder."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from dragoman.cli.state import open_privately

_MAX_MESSAGES = 1_000
_MAX_CHARS = 10_000  # of one message


class MessageHistory:
    """A file with one message per line, as a JSON string, because a message may have several lines.

    Only its owner can read it. Where it cannot be read or written, there is no history, and that is no error.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last: str | None = None

    def load(self) -> list[str]:
        """Return the newest messages, the oldest first. A file that has grown to twice its bound is cut down."""
        messages: list[str] = []
        with suppress(OSError):
            lines = self._path.read_text(encoding="utf-8", errors="replace").splitlines()
            for line in lines[-_MAX_MESSAGES:]:
                with suppress(ValueError):
                    message = json.loads(line)
                    messages += [message] if isinstance(message, str) else []
            if len(lines) > 2 * _MAX_MESSAGES:
                self._write(messages, "w")
        self._last = messages[-1] if messages else None
        return messages

    def append(self, message: str) -> bool:
        """Append a message, and return whether it belongs into the history.

        A repeat of the last one does not, nor does one that begins with a space, nor a very long one.
        """
        if message.startswith(" ") or message == self._last or len(message) > _MAX_CHARS:
            return False
        self._last = message
        with suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._write([message], "a")
        return True

    def _write(self, messages: list[str], mode: str) -> None:
        path = self._path if mode == "a" else self._path.with_suffix(f".{os.getpid()}")
        with open(path, mode, encoding="utf-8", opener=open_privately) as file:
            file.writelines(f"{json.dumps(each)}\n" for each in messages)
        if path != self._path:
            path.replace(self._path)
