"""What /proc says about a process: CPU time with all its threads, memory now and at its peak."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and its threads, ended ones too."""
    return cpu_of_stat(Path(f"/proc/{pid}/stat").read_text())


def cpu_exactly(pid: int) -> float:
    """The same of the threads that there are, to the nanosecond: for what takes but a few ticks of the clock."""
    return sum(int(file.read_text().split()[0]) for file in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def cpu_of_family(pid: int) -> float:
    """User and system time of a process and of all its children, ended ones too: of a PostgreSQL, for example."""
    total = _cpu_of_ended(Path(f"/proc/{pid}/stat").read_text()) + cpu_seconds(pid)
    for child in children(pid):
        try:
            total += cpu_seconds(child)
        except FileNotFoundError:
            continue  # ended meanwhile: its time is with the ended ones, from the next look on
    return total


def children(pid: int) -> list[int]:
    """The processes that a process with one thread has started."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def cpu_of_stat(text: str) -> float:
    """Read the CPU time out of a /proc/PID/stat line."""
    fields = _fields(text)
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _cpu_of_ended(text: str) -> float:
    fields = _fields(text)
    return (int(fields[13]) + int(fields[14])) / _TICKS


def _fields(text: str) -> list[str]:
    # The name may hold spaces and parentheses: the numbers begin after the last one.
    return text.rpartition(")")[2].split()


def peak_mb(pid: int) -> float:
    """The most memory a process ever had, in MB."""
    return _status_mb(Path(f"/proc/{pid}/status").read_text(), "VmHWM")


def resident_mb(pid: int) -> float:
    """The memory a process has now, in MB."""
    return _status_mb(Path(f"/proc/{pid}/status").read_text(), "VmRSS")


def _status_mb(text: str, key: str) -> float:
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name == key:
            return int(value.split()[0]) / 1024
    return 0.0
