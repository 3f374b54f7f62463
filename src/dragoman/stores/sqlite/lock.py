"""One file, one server."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from dragoman.model.error import ConfigError

if sys.platform == "win32":
    import msvcrt

    def _try_lock(file: int) -> None:
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _try_lock(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_still(name: str, opened: os.stat_result) -> bool:
    """True when the name leads to the file that was opened."""
    try:
        return os.path.samestat(os.stat(name), opened)  # noqa: PTH116 - it is asked with every commit
    except OSError:
        return False


class FileLock:
    """A lock that ends with the process, however that ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._name = str(path)
        self._file: int | None = None

    def take(self, subject: str) -> None:
        """Take the lock for `subject`.

        Raises:
            ConfigError: another process has it.
        """
        file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _try_lock(file)
        except OSError:
            holder = os.read(file, 32).decode(errors="replace").strip()
            os.close(file)
            who = f"pid {holder}" if holder else "another process"
            raise ConfigError(f"{subject} is in use by {who}: use another --store") from None
        os.ftruncate(file, 0)
        os.write(file, str(os.getpid()).encode())
        self._file = file

    def is_in_place(self) -> bool:
        """True while the name leads to the file that is locked: who takes the lock now is refused."""
        return self._file is not None and is_still(self._name, os.fstat(self._file))

    def try_take(self) -> bool:
        """Take the lock if it is free."""
        file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _try_lock(file)
        except OSError:
            os.close(file)
            return False
        self._file = file
        return True

    def release(self) -> None:
        """Let go."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
