"""The database file of a store: its one name, the locks that make it one server's, and whether it is still there."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shutil
import sqlite3
import struct
import sys
import threading
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

from dragoman.model.error import ConfigError, ServerError

if sys.platform == "win32":
    import msvcrt

    def try_lock(file: int, *, shared: bool = False) -> None:
        """Lock an open file, if nobody else has it. Raises OSError."""
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def try_lock(file: int, *, shared: bool = False) -> None:
        """Lock an open file, if nobody else has it. Raises OSError."""
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)


def is_same_file(name: str, opened: os.stat_result) -> bool:
    """True when the name leads to the file that was opened."""
    try:
        return os.path.samestat(os.stat(name), opened)  # noqa: PTH116 - it is asked with every commit
    except OSError:
        return False


class FileLock:
    """A lock that ends with the process, however that ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = str(path)
        self.file: int | None = None

    def acquire(self, subject: str) -> None:
        """Take the lock for `subject`.

        Raises:
            ConfigError: another process has it.
        """
        if not self.try_acquire() or self.file is None:
            holder = self.path.read_bytes()[:32].decode(errors="replace").strip()
            raise _in_use_error(subject, holder)
        os.ftruncate(self.file, 0)
        os.write(self.file, str(os.getpid()).encode())

    def is_in_place(self) -> bool:
        """True while the name leads to the file that is locked: who takes the lock now is refused."""
        return self.file is not None and is_same_file(self.name, os.fstat(self.file))

    def try_acquire(self) -> bool:
        """Take the lock if it is free."""
        file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try_lock(file)
        except OSError:
            os.close(file)
            return False
        self.file = file
        return True

    def release(self) -> None:
        """Let go."""
        if self.file is not None:
            os.close(self.file)
            self.file = None


if sys.platform == "linux":
    import fcntl

    def _lock_bytes(file: int) -> None:
        # Owned by the open file, unlike the POSIX locks of SQLite, which any `close` of the file in this process ends;
        # and far behind the bytes that SQLite locks.
        request = struct.pack("hhqqi0q", fcntl.F_WRLCK, os.SEEK_SET, _LOCKED_BYTE, 1, 0)
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, request)
else:

    def _lock_bytes(file: int) -> None:
        raise OSError(errno.ENOSYS, "not on this system")


logger = logging.getLogger("dragoman.store")
# With less than this on the disk a server is not ready, even if SQLite's log has room for a small write.
MIN_FREE_BYTES = 1_000_000
_LOCKED_BYTE = 2**62
_Identity = tuple[int, int]
# The files that stores of this process have open. Opening one of them again, and closing it, would end SQLite's locks.
_open_here: set[_Identity] = set()
_opening = threading.Lock()


def real_path(path: Path) -> Path:
    """The one name of a database file, for its locks and for SQLite, whose log lies beside the name it is opened by.

    Symbolic links are followed. Of several hard links it is the one that a server opened the file by.

    Raises:
        OSError: the links lead nowhere.
    """
    try:
        path = path.resolve()
    except RuntimeError:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None
    recorded = None
    with contextlib.suppress(OSError):
        if path.stat().st_nlink > 1:
            recorded = _recorded_path(path)
        if recorded is not None and recorded.samefile(path):
            return recorded
    return path


def _recorded_path(path: Path) -> Path | None:
    # Without SQLite's locks and log: under this name it has neither.
    with (
        contextlib.suppress(sqlite3.Error),
        closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as reader,
    ):
        row = reader.execute("SELECT path FROM home").fetchone()
        return None if row is None else Path(os.fsdecode(row[0]))
    return None


class StoreFile:
    """The file of one store, locked while it is open.

    On Linux the lock is on the file itself, so that it holds under every name and in every container. FILE.lock beside
    it tells others the pid, and is the only lock elsewhere.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._name = str(path)
        self._requested_path = path
        self._lock = FileLock(self.sibling(".lock"))
        self._file: int | None = None
        self._identity: _Identity | None = None
        self._is_locked = False
        self._lock_is_lost = False
        self._log_files: dict[str, os.stat_result] = {}
        self._expected_files: list[tuple[str, int, int]] = []

    def sibling(self, suffix: str) -> Path:
        """The name of a file that belongs to this one."""
        return self.path.with_name(self.path.name + suffix)

    def open(self) -> None:
        """Find the file by whatever link, make it when it is not there, and lock it. SQLite must not have it open yet.

        Raises:
            ConfigError: another server has it.
            OSError: it cannot be opened.
        """
        self.path = real_path(self._requested_path)
        self._name = str(self.path)
        self._lock = FileLock(self.sibling(".lock"))
        self._lock_is_lost = False
        _make_folder(self.path.parent)
        with _opening:
            if _identity(self.path) in _open_here:
                raise _in_use_error(self._requested_path.name, str(os.getpid()))
            # Tasks are nobody else's business: the file is ours alone before anything is in it.
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                self._identity = _identity_of_stat(os.fstat(self._file))
                self._is_locked = self._lock_file(self._file)
                # After the file itself: who is refused there has not touched the lock that another one holds.
                self._lock.acquire(self._requested_path.name)
            except BaseException:
                self.close()
                raise
            _open_here.add(self._identity)

    def _lock_file(self, file: int) -> bool:
        try:
            _lock_bytes(file)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise _in_use_error(self._requested_path.name, _find_lock_holder(os.fstat(file))) from None
            return False  # this system or this disk has no such locks
        return True

    def watch(self) -> None:
        """Remember which files SQLite has open, now that it has them open."""
        self._log_files = {str(path): path.stat() for path in (self.sibling("-wal"), self.sibling("-shm"))}
        self._remember_files()

    def _remember_files(self) -> None:
        """Remember what each name has to lead to, so that a look at all of them is short."""
        opened = {self._name: self._file, self._lock.name: self._lock.file}
        stats = {name: os.fstat(file) for name, file in opened.items() if file is not None}
        self._expected_files = [(name, stat.st_dev, stat.st_ino) for name, stat in (stats | self._log_files).items()]

    def close(self) -> None:
        """Let go, when SQLite has closed the file: closing it here too would end the locks that SQLite has."""
        self._lock.release()
        if self._file is not None:
            os.close(self._file)
            self._file = None
        if self._identity is not None:
            _open_here.discard(self._identity)
            self._identity = None
        self._log_files, self._expected_files = {}, []

    def check(self) -> None:
        """Make sure that what SQLite writes is what the next start will read. This takes microseconds.

        Raises:
            ServerError: the file or its log was moved, deleted or replaced, or another server may be writing.
        """
        if self._file is None:
            return
        with contextlib.suppress(OSError):
            for name, device, number in self._expected_files:
                stat = os.stat(name)  # noqa: PTH116 - it is asked with every commit
                if stat.st_ino != number or stat.st_dev != device:
                    break
            else:
                if self._expected_files and not self._lock_is_lost:
                    return
        self._raise_changed(self._file)

    def _raise_changed(self, file: int) -> None:
        """Say which of them it is that has changed. Raises ServerError."""
        if not is_same_file(self._name, os.fstat(file)):
            raise ServerError(
                f"the file of the store, {self.path.name}, was moved, deleted or replaced: put it back, "
                "or restore a backup and restart the server"
            )
        for name, opened in self._log_files.items():
            if not is_same_file(name, opened):
                what = f"the log of the store, {Path(name).name}, was deleted or replaced"
                raise ServerError(f"{what}: restart the server")
        if self._lock_is_lost or not (self._lock.is_in_place() or self._reacquire_lock()):
            self._lock_is_lost = True
            raise ServerError(
                f"the lock of the store, {self._lock.path.name}, was removed and another server may have it: "
                "stop that one and restart this one"
            )

    def _reacquire_lock(self) -> bool:
        """Replace a FILE.lock that somebody has removed. Where the file itself is locked, nobody came in meanwhile."""
        if not self._is_locked:
            return False
        lock = FileLock(self._lock.path)
        try:
            lock.acquire(self.path.name)
        except ConfigError:  # a server of an older version, which knows this lock only
            return False
        except OSError:  # no room, perhaps: it can wait
            return True
        logger.warning("%s was removed while the server was running: it is there again", lock.path)
        self._lock.release()
        self._lock = lock
        self._remember_files()
        return True

    def check_room(self) -> None:
        """Raise ServerError when the disk is full, or nearly."""
        with contextlib.suppress(OSError):
            if shutil.disk_usage(self.path.parent).free < MIN_FREE_BYTES:
                raise ServerError("the disk of the store is full: make room")


def _identity_of_stat(stat: os.stat_result) -> _Identity:
    return stat.st_dev, stat.st_ino


def _identity(path: Path) -> _Identity | None:
    try:
        return _identity_of_stat(path.stat())
    except FileNotFoundError:
        return None


def _in_use_error(subject: str, pid: str) -> ConfigError:
    who = f"pid {pid}" if pid else "another process"
    return ConfigError(f"{subject} is in use by {who}: use another --store")


def _find_lock_holder(stat: os.stat_result) -> str:
    """The process that has our lock on a file; empty where the system does not tell."""
    for process in _entries(Path("/proc")):
        if process.name.isdecimal():
            for opened in _entries(process / "fd"):
                if is_same_file(str(opened), stat) and _holds_lock(process / "fdinfo" / opened.name):
                    return process.name
    return ""


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:  # it has ended meanwhile, or is another user's
        return []


def _holds_lock(fdinfo: Path) -> bool:
    try:
        return f" {_LOCKED_BYTE} {_LOCKED_BYTE}\n" in fdinfo.read_text()
    except OSError:
        return False


def _make_folder(folder: Path) -> None:
    if folder.exists():
        return
    folder.mkdir(parents=True)
    if folder.name == ".dragoman":
        (folder / ".gitignore").write_text("*\n")


LOCK_TIMEOUT = 5.0
_LOCK_POLL = 0.005


@contextmanager
def short_write(path: Path) -> Generator[sqlite3.Connection]:
    """One short transaction, committed at the end of the block, taken back when it raises. Blocks.

    It holds FILE.ckpt from before the first byte until the connection is closed: a write and a checkpoint must never
    meet, and the last connection to close makes one. The time on FILE.ckpt tells readers that something has changed.

    Raises:
        ServerError: others have written for five seconds without a pause.
        sqlite3.Error: the database refuses.
    """
    path = real_path(path)
    lock_path = path.with_name(path.name + ".ckpt")
    lock = FileLock(lock_path)
    deadline = time.monotonic() + LOCK_TIMEOUT
    while not lock.try_acquire():
        if time.monotonic() > deadline:
            raise ServerError(f"the store {path.name} is busy: try again")
        time.sleep(_LOCK_POLL)
    try:
        uri = f"{path.as_uri()}?mode=rw"  # which does not make a file that is missing
        with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
            connection.execute("PRAGMA busy_timeout = 5000")
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            _touch(lock_path)
    finally:
        lock.release()


def _touch(path: Path) -> None:
    # Always another time than before, also when two writes fall into one tick of the clock.
    now = max(time.time_ns(), path.stat().st_mtime_ns + 1)
    os.utime(path, ns=(now, now))
