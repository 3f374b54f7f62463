"""How much memory this process may use: what its cgroup, its own limits and the machine leave it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dragoman.server.config.settings import Limits

# Of the memory that is left at the start, the part that requests get. The rest is for what they cause: the store,
# answers, the agents themselves.
REQUEST_SHARE = 3
# What is taken where nobody can say how much there is, in bytes.
ASSUMED_MEMORY = 1_000_000_000
# How many times its size the largest request takes: one must always fit.
LARGEST_REQUEST = 8


# glibc's names for them, from malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_LARGE_BLOCK = 1_000_000


def return_memory() -> None:
    """Have the C library give large blocks back to the system as soon as they are free.

    By itself glibc keeps ever larger blocks for the next time, for each of its arenas: a server that was sent some
    messages of ten megabytes would keep hundreds of them. Elsewhere this does nothing.
    """
    if sys.platform != "linux":
        return
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for name, value in ((_M_ARENA_MAX, 2), (_M_MMAP_THRESHOLD, _LARGE_BLOCK), (_M_TRIM_THRESHOLD, _LARGE_BLOCK)):
            mallopt(name, value)


def memory_for(limits: Limits, root: Path = Path("/")) -> tuple[int, int]:
    """The memory for requests: of the server, and of one caller. What is not set is a share of what there is."""
    minimum = LARGEST_REQUEST * limits.body
    server = limits.memory or max(
        minimum, (ASSUMED_MEMORY if (free := available_memory(root)) is None else free) // REQUEST_SHARE
    )
    return server, limits.caller_memory or max(minimum, server // 2)


def available_memory(root: Path = Path("/")) -> int | None:
    """How many bytes this process may still take; None where that is not known."""
    used, resident = _used(root / "proc/self/statm")
    available = [limit - resident for limit in (*_cgroup_limits(root), *_machine_memory())]
    available += [limit - used for limit in _process_limits()]
    return max(0, min(available)) if available else None


def _used(statm: Path) -> tuple[int, int]:
    """How large this process is: its addresses, and what of them is in memory."""
    try:
        size, resident, *_ = map(int, statm.read_text().split())
    except (OSError, ValueError):
        return 0, 0
    page = os.sysconf("SC_PAGE_SIZE")
    return size * page, resident * page


def _machine_memory() -> Iterator[int]:
    try:
        yield os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on Windows
        return


def _process_limits() -> Iterator[int]:
    try:
        import resource
    except ImportError:  # not on Windows
        return
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY:
        yield limit


def _cgroup_limits(root: Path) -> Iterator[int]:
    """The limits of this process's cgroup and of those around it, in either version."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield from _read_limits(root / "sys/fs/cgroup", path, ("memory.max", "memory.high"))
        elif "memory" in controllers.split(","):
            yield from _read_limits(root / "sys/fs/cgroup/memory", path, ("memory.limit_in_bytes",))


def _read_limits(top: Path, path: str, names: tuple[str, ...]) -> Iterator[int]:
    # In a container the path may be one of the machine's, and the group itself stands at the top.
    group = top / path.lstrip("/")
    for folder in (group, *group.parents):
        for name in names:
            try:
                text = (folder / name).read_text().strip()
            except OSError:
                continue
            if text.isdecimal():  # `max` is no limit
                yield int(text)
        if folder == top:
            return
