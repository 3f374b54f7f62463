"""The tasks that a user's commands have sent to last, by address: a small file of ids in the user's own folder."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from dragoman.cli.state import open_privately, state_folder

_MAX_ADDRESSES = 30
_MAX_TASKS = 20
# Longer ids are not kept: an agent may send anything.
_MAX_ID = 256
_LOCK_SECONDS = 0.5


class RecentTask(NamedTuple):
    """A task and its conversation. `task_id` is empty for an answer without a task."""

    task_id: str
    context_id: str
    time: str

    @property
    def key(self) -> str:
        """What makes it another one."""
        return self.task_id or self.context_id


class RecentTasks:
    """The recent tasks, in a file that only its owner can read; none where it cannot be read or written."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or state_folder() / "recent.json"

    def at(self, url: str) -> list[RecentTask]:
        """Return the tasks at an address, the newest first."""
        return self._read().get(_key(url), [])

    def addresses(self) -> list[str]:
        """Return the addresses, the one used last first."""
        return [*reversed(self._read())]

    def add(self, url: str, task_id: str, context_id: str) -> bool:
        """Make a task the newest at an address. False when it cannot be kept."""
        if not (task_id or context_id) or max(len(task_id), len(context_id)) > _MAX_ID:
            return False
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _locked(self._path.with_suffix(".lock")):
                self._write(self._with(_key(url), RecentTask(task_id, context_id, datetime.now(UTC).isoformat()[:19])))
        except (OSError, ValueError):  # no room, no right, or text that is no UTF-8
            return False
        return True

    def _with(self, key: str, newest: RecentTask) -> dict[str, list[RecentTask]]:
        tasks = self._read()
        others = [each for each in tasks.pop(key, []) if each.key != newest.key]
        tasks[key] = [newest, *others][:_MAX_TASKS]
        return dict([*tasks.items()][-_MAX_ADDRESSES:])

    def _read(self) -> dict[str, list[RecentTask]]:
        try:
            content: dict[str, Any] = json.loads(self._path.read_bytes())
            return {
                str(url): [RecentTask(*map(str, each)) for each in tasks] for url, tasks in content["tasks"].items()
            }
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return {}

    def _write(self, tasks: Mapping[str, list[RecentTask]]) -> None:
        temporary = self._path.with_suffix(f".{os.getpid()}")
        try:
            with open(temporary, "w", encoding="utf-8", opener=open_privately) as file:
                json.dump({"tasks": tasks}, file)
            temporary.replace(self._path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def _key(url: str) -> str:
    """Return an address in one form for all its spellings, without what may be secret: user, password, query."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2].lower().removesuffix({"http": ":80", "https": ":443"}.get(parts.scheme, ":"))
    if host.partition(":")[0] == "localhost":
        host = host.replace("localhost", "127.0.0.1")
    return f"{parts.scheme}://{host}{parts.path.rstrip('/')}"


@contextmanager
def _locked(path: Path) -> Generator[None]:
    """Hold a lock against other commands. Raises OSError when somebody else holds it too long."""
    try:
        import fcntl
    except ImportError:  # Windows: the last writer wins
        yield
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        deadline = time.monotonic() + _LOCK_SECONDS
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if time.monotonic() > deadline:
                raise BlockingIOError(path)
            time.sleep(0.01)
        yield
    finally:
        os.close(descriptor)
