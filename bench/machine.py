"""On what it was measured."""

from __future__ import annotations

import os
import platform
import sqlite3
import time
from datetime import UTC, datetime
from pathlib import Path

# More than this part of the machine in use by others is noted.
_BUSY = 0.2


def describe() -> dict[str, str]:
    """What a reader wants to know about this machine."""
    return {
        "cpu": _cpu(),
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        "memory": f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GB",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
    }


def now() -> str:
    """The time, to the minute."""
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def load() -> float:
    """How many processes wanted a core during the last minute."""
    return os.getloadavg()[0]


def busy(used: float) -> list[str]:
    """A note when other programs use a good part of the machine: then rates say little, also beside each other.

    A server that lacks CPU time loses another part of its rate than one that waits for the disk.
    """
    if used <= _BUSY:
        return []
    part = f"{used:.0%}".replace("%", " %")
    return [f"other programs used {part} of the machine when this began: compare CPU times, not rates"]


def used() -> float:
    """The part of all cores that is in use now, over a second. Asked while nothing of ours runs."""
    before = _times()
    time.sleep(1)
    total, idle = (after - earlier for after, earlier in zip(_times(), before, strict=True))
    return 1 - idle / total if total else 0.0


def _times() -> tuple[int, int]:
    """All time of all cores so far, and the idle part of it."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    return sum(fields[:8]), fields[3] + fields[4]


def _cpu() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or "unknown"
    for line in text.splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
