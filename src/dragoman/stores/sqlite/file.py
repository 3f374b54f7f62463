"""The database file of a store: its canonical path, the locks that reserve it for one server, and checks that it is
still in place."""

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

logger = logging.getLogger("dragoman.store")

if sys.platform == "win32":
    import msvcrt

    def try_lock(file: int, *, shared: bool = False) -> None:
        """Lock an open file without waiting. Raises OSError when another process has locked it."""
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def try_lock(file: int, *, shared: bool = False) -> None:
        """Lock an open file without waiting. Raises OSError when another process has locked it."""
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)


def is_same_file(name: str, opened: os.stat_result) -> bool:
    """True when the path still leads to the file that was opened."""
    try:
        return os.path.samestat(os.stat(name), opened)  # noqa: PTH116 - fast, as it runs with every commit
    except OSError:
        return False


class StoreInUse(ConfigError):
    """Another server has the store open. `subject` is its file, and `holder` who uses it."""

    def __init__(self, subject: str, pid: str) -> None:
        self.subject = subject
        self.holder = f"pid {pid}" if pid else "another process"
        super().__init__(f"{subject} is in use by {self.holder}: use another --store")


class FileLock:
    """A lock file. The system releases the lock when the process ends, however it ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = str(path)
        self.file: int | None = None

    def acquire(self, subject: str) -> None:
        """Acquire the lock and write the pid into the file. `subject` is for the error text.

        Raises:
            ConfigError: another process has it.
            OSError: the file cannot be opened or written.
        """
        if not self.try_acquire() or self.file is None:
            holder = self.path.read_bytes()[:32].decode(errors="replace").strip()
            raise StoreInUse(subject, holder)
        os.ftruncate(self.file, 0)
        os.write(self.file, str(os.getpid()).encode())

    def is_in_place(self) -> bool:
        """True while the path leads to the locked file, so that others are refused the lock."""
        return self.file is not None and is_same_file(self.name, os.fstat(self.file))

    def try_acquire(self) -> bool:
        """Acquire the lock if it is free; return whether it was. Raises OSError when the file cannot be opened."""
        file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try_lock(file)
        except OSError:
            os.close(file)
            return False
        self.file = file
        return True

    def release(self) -> None:
        """Release the lock, if it is held."""
        if self.file is not None:
            os.close(self.file)
            self.file = None


if sys.platform == "linux":
    import fcntl

    def _lock_bytes(file: int) -> None:
        # An open-file-description lock: unlike the POSIX locks of SQLite, it is not dropped when any descriptor of the
        # file in this process is closed. Its byte is far behind those that SQLite locks.
        request = struct.pack("hhqqi0q", fcntl.F_WRLCK, os.SEEK_SET, _LOCKED_BYTE, 1, 0)
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, request)
else:

    def _lock_bytes(file: int) -> None:
        raise OSError(errno.ENOSYS, "not on this system")


# With less free space a server is not ready, even if SQLite's log has room for a small write.
MIN_FREE_BYTES = 1_000_000
_LOCKED_BYTE = 2**62
_Identity = tuple[int, int]
# The files that stores of this process have open. Opening and closing one of them again would drop SQLite's locks.
_open_here: set[_Identity] = set()
_opening = threading.Lock()


def real_path(path: Path) -> Path:
    """Return the canonical path of a database file, for its locks and for SQLite's log, which lies beside that path.

    Symbolic links are followed. Of several hard links it is the path by which a server has opened the file.

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
    # Immutable: under this path SQLite has neither locks nor a log.
    with (
        contextlib.suppress(sqlite3.Error),
        closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as reader,
    ):
        row = reader.execute("SELECT path FROM home").fetchone()
        return None if row is None else Path(os.fsdecode(row[0]))
    return None


class StoreFile:
    """The database file of one store, locked while it is open.

    On Linux the lock is on the file itself, so that it holds under every path and in every container. FILE.lock beside
    it holds the pid, and is the only lock on other systems.
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
        """Return the path of a file that belongs to this one, such as its log."""
        return self.path.with_name(self.path.name + suffix)

    def open(self) -> None:
        """Resolve links, create the file if it is missing, and lock it. SQLite must not have it open yet.

        Raises:
            ConfigError: another server uses it.
            OSError: it cannot be opened.
        """
        self.path = real_path(self._requested_path)
        self._name = str(self.path)
        self._lock = FileLock(self.sibling(".lock"))
        self._lock_is_lost = False
        _make_folder(self.path.parent)
        with _opening:
            if _identity(self.path) in _open_here:
                raise StoreInUse(self._requested_path.name, str(os.getpid()))
            # Created with mode 600, before anything is in it: tasks are private.
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                self._identity = _identity_of_stat(os.fstat(self._file))
                self._is_locked = self._lock_file(self._file)
                # Second, so that a server that is refused above has not touched the lock file of the other one.
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
                raise StoreInUse(self._requested_path.name, _find_lock_holder(os.fstat(file))) from None
            return False  # this system or file system has no such locks
        return True

    def watch(self) -> None:
        """Remember which files SQLite has open. Called once it has opened them."""
        self._log_files = {str(path): path.stat() for path in (self.sibling("-wal"), self.sibling("-shm"))}
        self._remember_files()

    def _remember_files(self) -> None:
        """Remember the identity of each file, so that `check` is quick."""
        opened = {self._name: self._file, self._lock.name: self._lock.file}
        stats = {name: os.fstat(file) for name, file in opened.items() if file is not None}
        self._expected_files = [(name, stat.st_dev, stat.st_ino) for name, stat in (stats | self._log_files).items()]

    def close(self) -> None:
        """Release the locks. SQLite must have closed the file: closing it here earlier would drop SQLite's locks."""
        self._lock.release()
        if self._file is not None:
            os.close(self._file)
            self._file = None
        if self._identity is not None:
            _open_here.discard(self._identity)
            self._identity = None
        self._log_files, self._expected_files = {}, []

    def check(self) -> None:
        """Check that SQLite writes into the files that the next start will read. Takes microseconds.

        Raises:
            ServerError: the file or its log was moved, deleted or replaced, or another server may be writing.
        """
        if self._file is None:
            return
        with contextlib.suppress(OSError):
            for name, device, number in self._expected_files:
                stat = os.stat(name)  # noqa: PTH116 - fast, as it runs with every commit
                if stat.st_ino != number or stat.st_dev != device:
                    break
            else:
                if self._expected_files and not self._lock_is_lost:
                    return
        self._raise_changed(self._file)

    def _raise_changed(self, file: int) -> None:
        """Raise ServerError for the file that has changed; recreate FILE.lock if only that was removed."""
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
        """Recreate a removed FILE.lock. Safe where the file itself is locked: no other server can have opened it."""
        if not self._is_locked:
            return False
        lock = FileLock(self._lock.path)
        try:
            lock.acquire(self.path.name)
        except ConfigError:  # a server of an older version, which uses this lock only
            return False
        except OSError:  # perhaps a full disk: it is tried again later
            return True
        logger.warning("%s was removed while the server was running: it has been created again", lock.path)
        self._lock.release()
        self._lock = lock
        self._remember_files()
        return True

    def check_room(self) -> None:
        """Raise ServerError when the disk is full or nearly full."""
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


def read_agents(path: Path) -> frozenset[str]:
    """Return the agents whose tasks a store holds, also while a server uses it; none when that cannot be read."""
    with contextlib.suppress(sqlite3.Error, OSError):
        if path.exists():
            with closing(sqlite3.connect(f"{real_path(path).as_uri()}?mode=ro", uri=True)) as reader:
                return frozenset(name for (name,) in reader.execute("SELECT DISTINCT agent FROM scopes"))
    return frozenset()


def is_in_use(path: Path) -> bool:
    """True when a server uses a store, or that cannot be found out."""
    try:
        file = os.open(path.with_name(f"{path.name}.lock"), os.O_RDONLY)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        try_lock(file, shared=True)
    except OSError:
        return True
    finally:
        os.close(file)
    return False


def _find_lock_holder(stat: os.stat_result) -> str:
    """Return the pid of the process that has locked a file; "" when it cannot be found out."""
    for process in _entries(Path("/proc")):
        if process.name.isdecimal():
            for opened in _entries(process / "fd"):
                if is_same_file(str(opened), stat) and _holds_lock(process / "fdinfo" / opened.name):
                    return process.name
    return ""


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:  # the process has ended, or belongs to another user
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
    """One short write transaction from another process: committed at the end, rolled back on an error. Blocks.

    It holds the lock FILE.ckpt until the connection is closed: a write and a checkpoint must never overlap, and the
    last connection to close makes a checkpoint. The modification time of FILE.ckpt tells readers about the change.

    Raises:
        ServerError: the lock is not free within five seconds.
        OSError: the lock file cannot be opened.
        sqlite3.Error: a statement fails.
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
        uri = f"{path.as_uri()}?mode=rw"  # rw: a missing file is not created
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
    # Strictly increasing, also when two writes fall into one tick of the clock.
    now = max(time.time_ns(), path.stat().st_mtime_ns + 1)
    os.utime(path, ns=(now, now))
