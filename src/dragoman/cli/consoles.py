"""The consoles of this user's servers: one file each, with the address and its token, while the server runs.

Beside it may be a page that leads a browser there: all users of a machine see the arguments of its processes, so that a
browser must not be started with the token.
"""

from __future__ import annotations

import json
import os
import re
import sys
from contextlib import suppress
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from dragoman.cli.state import open_privately, state_folder

if TYPE_CHECKING:
    from dragoman.console.access import ConsoleAddress

_PORTS = {"http": 80, "https": 443}
_UNFIT = re.compile(r"[^a-z0-9.-]+")
_PAGE = ".html"
_REDIRECT = """<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={0}">
<title>The console of Dragoman</title>
<p><a href="{0}">Open the console</a></p>
"""


class RunningConsole(NamedTuple):
    """The console of a server that runs: its address with the token, and the process that printed it."""

    url: str
    pid: int


class ConsoleFiles:
    """The files, in a folder that only their owner can read; none where it cannot be read or written."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or state_folder() / "consoles"
        self._added: set[Path] = set()

    def add(self, address: ConsoleAddress) -> None:
        """Write the file of a server that listens. What servers that were killed have left is removed."""
        path = self._path(address.local)
        with suppress(OSError, ValueError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for other in self._folder.glob("*.json"):
                if _read(other) is None:
                    _remove(other)
            _write(path, json.dumps({"url": address.url, "pid": os.getpid()}))
            self._added.add(path)

    def find(self, url: str) -> RunningConsole | None:
        """Return the console of the server at an address; None if this user started none there that still runs."""
        return _read(self._path(url))

    def addresses(self) -> list[str]:
        """Return the addresses of the servers that run, as `dragoman open` takes them, without their tokens."""
        found = [_read(path) for path in sorted(self._folder.glob("*.json"))]
        return [console.url.partition("?")[0].rstrip("/") for console in found if console is not None]

    def redirect(self, server: str, url: str) -> str:
        """Write a page that leads to a URL of a server, for this user's browser. Returns the URL of that page.

        It is removed with the file of the server. Raises OSError when it cannot be written.
        """
        page = self._path(server).with_suffix(_PAGE)
        _write(page, _REDIRECT.format(escape(url)))
        return page.absolute().as_uri()

    def close(self) -> None:
        """Remove the files that were added here, unless another process has taken over their addresses."""
        for path in self._added:
            found = _read(path)
            if found is None or found.pid == os.getpid():
                with suppress(OSError):
                    _remove(path)
        self._added.clear()

    def _path(self, url: str) -> Path:
        """Return the file of an address, for all its spellings."""
        parts = urlsplit(url)
        host = "127.0.0.1" if parts.hostname in ("localhost", None) else parts.hostname
        port = parts.port or _PORTS.get(parts.scheme, 0)
        return self._folder / f"{_UNFIT.sub('_', f'{parts.scheme}-{host}')}-{port}.json"


def _write(path: Path, text: str) -> None:
    """Write a file that only this user can read, in one step."""
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.unlink(missing_ok=True)
    with open(temporary, "x", encoding="utf-8", opener=open_privately) as file:
        file.write(text)
    temporary.replace(path)


def _remove(path: Path) -> None:
    """Remove the file of a server, and the page that leads there."""
    path.unlink(missing_ok=True)
    path.with_suffix(_PAGE).unlink(missing_ok=True)


def _read(path: Path) -> RunningConsole | None:
    """Read the file of a server that runs."""
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
        console = RunningConsole(str(content["url"]), int(content["pid"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return console if _runs(console.pid) else None


def _runs(pid: int) -> bool:
    if sys.platform == "win32":  # there, a signal would end the process
        return True
    try:
        os.kill(pid, 0)
    except (OSError, OverflowError):  # it has ended, and perhaps its number is now that of another user's process
        return False
    return True
