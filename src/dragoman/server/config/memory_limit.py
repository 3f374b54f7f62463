"""The memory that requests may take: from the cgroup, the process limits and the machine's memory."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dragoman.server.config.settings import Limits

# Requests get one third of the memory that is available at startup. The rest is for what they cause: the store,
# responses, the agents themselves.
REQUEST_SHARE = 3
# Assumed where the available memory cannot be determined, in bytes.
ASSUMED_MEMORY = 1_000_000_000
# The memory of the largest request as a multiple of its size: one must always fit.
LARGEST_REQUEST = 8


# Names from glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_LARGE_BLOCK = 1_000_000


def return_memory() -> None:
    """Make the C library return large blocks to the system as soon as they are free.

    By default glibc keeps ever larger blocks for reuse, in each of its arenas: a server that received some messages of
    ten megabytes would keep hundreds of them. On other platforms this does nothing.
    """
    if sys.platform != "linux":
        return
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for name, value in ((_M_ARENA_MAX, 2), (_M_MMAP_THRESHOLD, _LARGE_BLOCK), (_M_TRIM_THRESHOLD, _LARGE_BLOCK)):
            mallopt(name, value)


def memory_for(limits: Limits, root: Path = Path("/"), workers: int = 1) -> tuple[int, int]:
    """Return the memory for requests in bytes, of the server and of one caller.

    The server's default is a third of the available memory, or its part of that if it is one of several workers; a
    caller's is half of the server's.
    """
    minimum = LARGEST_REQUEST * limits.body
    server = limits.memory or max(
        minimum, (ASSUMED_MEMORY if (free := available_memory(root)) is None else free) // REQUEST_SHARE // workers
    )
    return server, limits.caller_memory or max(minimum, server // 2)


def available_memory(root: Path = Path("/")) -> int | None:
    """Return how many bytes this process may still allocate; None where that is unknown."""
    used, resident = _used(root / "proc/self/statm")
    available = [limit - resident for limit in (*_cgroup_limits(root), *_machine_memory())]
    available += [limit - used for limit in _process_limits()]
    return max(0, min(available)) if available else None


def _used(statm: Path) -> tuple[int, int]:
    """Return the virtual and the resident size of this process."""
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
    """Yield the limits of this process's cgroup and its parents, of either cgroup version."""
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
    # In a container the path may be that of the host, while the group itself is mounted at the top.
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
