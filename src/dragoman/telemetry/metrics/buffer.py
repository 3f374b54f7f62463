"""The memory of metrics: a list of series, each with its name, its labels and its numbers.

It belongs to this process, or is a file, which others can read at any time. Nothing is lost when the process that
writes a file is killed: the kernel has the pages.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

# A slot is eight bytes: a number, or a part of a description. Memory and disk are used as slots are.
SLOTS = 1 << 19
# A file is extended by so many slots at a time.
_STEP = 1 << 13
_MAGIC = 0x6472_6167_6F6D_0001
# Before the first series: the magic number, and how many slots are used.
_FIRST = 2
# Longer descriptions, in bytes, are refused: labels are names.
_MAX_TEXT = 2048


class SeriesReading(NamedTuple):
    """A series as it was at one moment."""

    name: str
    labels: tuple[str, ...]
    values: Sequence[float]


class SeriesBuffer:
    """The series of a process. A new one is written first and counted then, so that readers see whole ones only."""

    def __init__(self, path: Path | None = None) -> None:
        """Make an empty one: in memory, or in a new file.

        Raises:
            OSError: the file cannot be made, or the disk has no room.
        """
        self._file: int | None = None
        self._reserved = SLOTS
        if path is None:
            # A fork must not write into the numbers of its parent.
            private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
            self._memory = mmap.mmap(-1, SLOTS * 8, **private)
        else:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                os.truncate(self._file, SLOTS * 8)
                self._reserved = 0
                self._reserve(_STEP)
                self._memory = mmap.mmap(self._file, SLOTS * 8)
            except OSError:
                os.close(self._file)
                raise
        self.values: memoryview[float] = memoryview(self._memory).cast("d")
        self._words: memoryview[int] = memoryview(self._memory).cast("Q")
        self._words[0], self._words[1] = _MAGIC, _FIRST

    @property
    def used(self) -> int:
        """How many slots are used."""
        return self._words[1]

    def has_room(self, labels: Sequence[str], slots: int, spare: int) -> bool:
        """True when there is room for a series, and for `spare` slots beyond it."""
        text = sum(len(label.encode(errors="replace")) for label in labels)
        end = self.used + (_MAX_TEXT + 16) // 8 + slots + spare
        if text > _MAX_TEXT // 2 or end > SLOTS:
            return False
        try:
            self._reserve(end)
        except OSError:
            return False
        return True

    def _reserve(self, end: int) -> None:
        """Take room of the disk: a page of a file that the disk has no room for would end the process (SIGBUS)."""
        if self._file is not None and end > self._reserved:
            reserved = min(-(-end // _STEP) * _STEP, SLOTS)
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._file, 0, reserved * 8)
            else:  # macOS: nothing is there yet that zeros could overwrite
                os.pwrite(self._file, bytes((reserved - self._reserved) * 8), self._reserved * 8)
            self._reserved = reserved

    def allocate(self, name: str, labels: Sequence[str], slots: int) -> int:
        """Add a series of zeros, and return the first of its slots. There must be room for it."""
        # In ASCII, as JSON is by default: a label may have half of a surrogate pair.
        text = json.dumps([name, *labels]).encode()
        start = self.used + 1 + -(-len(text) // 8)
        where = self.used * 8
        self._memory[where : where + 8] = struct.pack("=II", len(text), slots)
        self._memory[where + 8 : where + 8 + len(text)] = text
        self._words[1] = start + slots
        return start

    def copy_of(self, other: SeriesBuffer) -> None:
        """Take over all that another one has. Raises OSError when the disk has no room."""
        self._reserve(other.used)
        end = other.used * 8
        self._memory[_FIRST * 8 : end] = other._memory[_FIRST * 8 : end]
        self._words[1] = other.used

    def close(self) -> None:
        """Write to the file no more. What is in it stays."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def read_series(path: Path) -> Iterator[SeriesReading]:
    """Yield the series of a file, which another process may be writing. A file that is none has none."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as memory:
            content = memory[:16]
            if len(content) < 16:
                return
            magic, used = struct.unpack("=QQ", content)
            content = memory[: used * 8] if magic == _MAGIC else b""
    except (OSError, ValueError):  # it is not there yet, or empty
        return
    at = _FIRST * 8
    while at + 8 <= len(content):
        length, slots = struct.unpack_from("=II", content, at)
        text = content[at + 8 : at + 8 + length]
        at += 8 + -(-length // 8) * 8
        try:
            name, *labels = json.loads(text)
            values = struct.unpack_from(f"={slots}d", content, at)
        except (ValueError, struct.error):
            return  # another processor's memory may lag behind; the next reader sees it
        at += slots * 8
        yield SeriesReading(name, tuple(labels), values)
