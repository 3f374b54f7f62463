"""Processes on this machine that need not be children, as /proc shows them."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

SECONDS = 60


def until_ended(pid: int) -> None:
    """Wait until a process has ended, whosever child it is.

    Raises:
        AssertionError: it has not ended in time.
    """
    with suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        try:
            assert select.select([descriptor], [], [], SECONDS)[0], f"process {pid} has not ended"
        finally:
            os.close(descriptor)


def parent_of(pid: int) -> int:
    """The parent of a process; 0 if it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(stat.rpartition(")")[2].split()[1])


def command_of(pid: int) -> tuple[str, ...]:
    """The command line of a process; empty if it has ended."""
    try:
        return tuple(Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1])
    except (FileNotFoundError, ProcessLookupError):
        return ()


def descendants(pid: int) -> Iterator[int]:
    """A process, its children, and theirs."""
    parents = {int(each.name): parent_of(int(each.name)) for each in Path("/proc").glob("[0-9]*")}
    family = {pid}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    yield from family
