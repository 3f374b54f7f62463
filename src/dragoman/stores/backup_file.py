"""The file of a backup: it appears under its name once it is complete and on disk."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from dragoman.keys.ring import sync_folder
from dragoman.model.error import ConfigError, DragomanError
from dragoman.stores.administration import BackupResult


def part_of(target: Path) -> Path:
    """Return the name of a backup while it is incomplete."""
    return target.with_name(target.name + ".part")


def check_target(target: Path, example: str, *, force: bool) -> None:
    """Raise ConfigError unless a backup can be written to `target`. `example` is a file name for a hint."""
    if not target.absolute().parent.is_dir():
        raise ConfigError(f"{target}: there is no folder {target.parent}: make it first")
    if target.is_dir():
        raise ConfigError(f"{target} is a folder: name a file in it, as in {target / example}")
    _refuse_existing(target, force=force)


def write_backup(target: Path, copy: Callable[[Path], int], *, force: bool) -> BackupResult:
    """Call `copy` to fill an empty file that only this user may read, and rename it to `target`.

    `copy` returns how many tasks it has copied. `force` replaces an existing `target` and the leftover of an
    interrupted backup. When anything fails, nothing is left.

    Raises:
        ConfigError: the file cannot be written, or another backup to `target` is running.
        DragomanError: another backup to `target` was forced meanwhile.
    """
    part = part_of(target)
    if force:
        part.unlink(missing_ok=True)
    try:
        file = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ConfigError(
            f"{part} is there: another backup is running, or one was interrupted: remove it, or use --force"
        ) from None
    except OSError as error:
        raise ConfigError(f"{part} cannot be written: {error.strerror}") from None
    opened = os.fstat(file)
    try:
        try:
            tasks = copy(part)
            os.fsync(file)
            size = os.fstat(file).st_size
            _refuse_existing(target, force=force)
            if not _is_same(part, opened):
                raise FileNotFoundError
        finally:
            os.close(file)
        part.replace(target)
    except BaseException as error:
        if isinstance(error, Exception) and not _is_same(part, opened):
            raise DragomanError(f"another backup to {target} was forced meanwhile: this one is not kept") from error
        _delete_part(part, opened)
        raise
    sync_folder(target.absolute().parent)
    return BackupResult(tasks, size)


def _refuse_existing(target: Path, *, force: bool) -> None:
    if not force and (target.exists() or target.is_symlink()):
        raise ConfigError(f"{target} is there already: use another name, or --force to replace it")


def _delete_part(part: Path, opened: os.stat_result) -> None:
    if _is_same(part, opened):
        for suffix in ("", "-journal", "-wal", "-shm"):
            part.with_name(part.name + suffix).unlink(missing_ok=True)


def _is_same(path: Path, opened: os.stat_result) -> bool:
    """True when a path still leads to the file that was opened."""
    try:
        return os.path.samestat(path.stat(), opened)
    except OSError:
        return False
