"""Session folders: where programs run, leave their files, and get the files of messages."""

from __future__ import annotations

import logging
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from itertools import count
from pathlib import Path
from uuid import UUID

from dragoman.model.part import File, Part, safe_filename

logger = logging.getLogger("dragoman.process")
# Bounds the scan for changed files; a program with more results can send them as artifacts.
_MAX_FILES = 2000
# Subfolder for the files of messages: in its working folder, a program might execute or trust them.
INBOX = "inbox"
FileStamp = tuple[int, int]


class SessionFolders:
    """One private folder per session. Without a root they are temporary and removed on close."""

    def __init__(self, root: Path | None) -> None:
        self._configured_root = root
        self._root: Path | None = None

    @property
    def root(self) -> Path:
        """The folder that contains all session folders. Raises OSError if it cannot be created."""
        if self._root is None:
            if self._configured_root is None:
                self._root = Path(tempfile.mkdtemp(prefix="dragoman-sessions-"))
            else:
                self._configured_root.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._root = self._configured_root
        return self._root

    def folder_of(self, session_id: str) -> Path:
        """Return the folder of a session, creating it if needed. Raises OSError if it cannot be created."""
        folder = self.root / session_id
        folder.mkdir(mode=0o700, exist_ok=True)
        os.utime(folder)  # counts as used, even if its program changes no file
        return folder

    def remove_if_empty(self, folder: Path) -> None:
        """Remove a session folder that holds no files."""
        with suppress(OSError):
            (folder / INBOX).rmdir()
        with suppress(OSError):
            folder.rmdir()

    def sweep(self, seconds: float) -> int:
        """Remove the session folders that were not used for that many seconds (0 keeps all). Return their number.

        Temporary folders are not removed here.
        """
        if not seconds or self._configured_root is None or not self._configured_root.is_dir():
            return 0
        before, removed = time.time() - seconds, 0
        for folder in self._configured_root.iterdir():
            with suppress(OSError):
                if _is_session(folder) and _last_change(folder) < before:
                    shutil.rmtree(folder)
                    removed += 1
        return removed

    def close(self) -> None:
        """Remove the folders if they are temporary."""
        if self._configured_root is None and self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)
        self._root = None


def _is_session(folder: Path) -> bool:
    """Return True for a folder named like a session: others may have put folders there, too."""
    try:
        return str(UUID(folder.name)) == folder.name and stat.S_ISDIR(folder.lstat().st_mode)
    except ValueError:
        return False


def _last_change(folder: Path) -> float:
    return max([folder.stat().st_mtime, *(mtime / 1e9 for mtime, _ in scan(folder).values())])


def scan(folder: Path) -> dict[str, FileStamp]:
    """Return the stamps (mtime and size) of the files in a folder, by relative path, at most 2,000 of them.

    Links, and hidden files and folders, are skipped.
    """
    files: dict[str, FileStamp] = {}
    folders = [folder]
    while folders:
        paths: list[Path] = []
        with suppress(OSError):
            paths = sorted(folders.pop(0).iterdir())
        for path in paths:
            if path.name.startswith("."):
                continue
            if len(files) >= _MAX_FILES:
                return files
            with suppress(OSError):  # it may vanish during the scan
                status = path.lstat()
                if stat.S_ISDIR(status.st_mode):
                    folders.append(path)
                elif stat.S_ISREG(status.st_mode):
                    files[str(path.relative_to(folder))] = (status.st_mtime_ns, status.st_size)
    return files


def changed_files(folder: Path, before: dict[str, FileStamp], limit: int) -> tuple[list[str], dict[str, FileStamp]]:
    """Return the names of new or changed files, up to `limit` bytes in total, and the stamps of all files."""
    now = scan(folder)
    names: list[str] = []
    size = 0
    for name, stamp in now.items():
        if before.get(name) == stamp:
            continue
        if limit and size + stamp[1] > limit:
            logger.warning("%s is not taken as a result: the files of this task are larger than %d bytes", name, limit)
            continue
        names.append(name)
        size += stamp[1]
    return names, now


def file_stamps(folder: Path, names: Iterable[str]) -> dict[str, FileStamp]:
    """Return the current stamps of some files; missing files are left out."""
    stamps: dict[str, FileStamp] = {}
    for name in names:
        with suppress(OSError, ValueError):
            status = (folder / name).lstat()
            stamps[name] = (status.st_mtime_ns, status.st_size)
    return stamps


def file_part(folder: Path, name: str, media_type: str | None = None, max_bytes: int = 0) -> Part:
    """Read a file of the folder into a part that is named by its relative path.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no regular file, is outside of the folder (a program may repeat a path that its caller wrote),
            or is larger than `max_bytes`.
    """
    home = folder.resolve()
    path = (home / name).resolve()
    if not path.is_relative_to(home) or (home / name).is_symlink() or not path.is_file():
        raise ValueError(f"{name} is no file of the session's folder")
    data = _read(path, max_bytes)
    if max_bytes and len(data) > max_bytes:
        raise ValueError(f"{name} is larger than {max_bytes} bytes")
    return File(data, name=as_text(str(path.relative_to(home))), media_type=media_type).part()


def _read(path: Path, max_bytes: int) -> bytes:
    # The file may have been replaced since the check: a pipe must not block, and a link must not be followed.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError(f"{path.name} is no file")
        return file.read(max_bytes + 1) if max_bytes else file.read()


def as_text(name: str) -> str:
    """Replace the undecodable bytes of a file name."""
    return name.encode(errors="replace").decode()


def save_files(folder: Path, files: list[Part]) -> list[str]:
    """Write the files of a message into the inbox of a folder, and return their relative paths. Links are not fetched.

    Raises:
        OSError: a file cannot be written.
    """
    names: list[str] = []
    inbox = _inbox(folder) if any(part.raw is not None for part in files) else folder
    for number, part in enumerate(files, 1):
        if part.raw is None:
            continue
        name = safe_filename(part.filename) or f"file-{number}"
        # Never overwrite another file of this message, nor write into a link or a pipe that a program has left.
        while name in names or not _is_writable(inbox / name):
            name = f"{number}-{name}"
        (inbox / name).write_bytes(part.raw)
        names.append(name)
    return [f"{inbox.name}/{name}" for name in names]


def _inbox(folder: Path) -> Path:
    """Return the inbox of a folder, creating it if needed. Anything else that has its name is left alone."""
    for number in count(1):
        inbox = folder / (INBOX if number == 1 else f"{INBOX}-{number}")
        with suppress(FileExistsError):
            inbox.mkdir(mode=0o700)
        if stat.S_ISDIR(inbox.lstat().st_mode):
            return inbox
    raise AssertionError("there is always a next number")


def _is_writable(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:
        return True
