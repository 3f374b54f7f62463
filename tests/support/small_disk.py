"""A small disk for tests: a tmpfs of its own, which can be filled, freed and made read-only."""

from __future__ import annotations

import subprocess
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

SECONDS = 30


class SmallDisk:
    """A disk that is mounted at `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def fill(self) -> None:
        """Take all the room that is left."""
        with suppress(OSError), self._filler.open("ab", buffering=0) as filler:
            while filler.write(b"\0" * 4096):
                pass

    def free(self) -> None:
        """Give that room back."""
        self._filler.unlink()


def mounts(*arguments: str) -> bool:
    """Run `mount`; False where that is not permitted."""
    try:
        done = subprocess.run(["mount", *arguments], capture_output=True, timeout=SECONDS, check=False)
    except OSError:
        return False
    return done.returncode == 0


@contextmanager
def small_disk(folder: Path, size: str, *options: str) -> Generator[SmallDisk]:
    """A new disk of that size, mounted at a new folder during the block. Skips where that is not permitted."""
    folder.mkdir()
    if not mounts("-t", "tmpfs", "-o", ",".join((f"size={size}", *options)), "none", str(folder)):
        pytest.skip("mounting is not permitted here, and only a disk can be full of other files")
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], timeout=SECONDS, check=True)
