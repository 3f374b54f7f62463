"""Which core does what: servers on the first, the load generator on the last. A database is where there is room.

python -m bench.cores CORE COMMAND...   becomes the command, kept on that core
"""

from __future__ import annotations

import os
import sys


def server_core() -> int | None:
    """The core servers run on; None where processes cannot be pinned."""
    return _allowed()[0] if _allowed() else None


def load_core() -> int | None:
    """The core the load generator runs on; None where processes cannot be pinned."""
    return _allowed()[-1] if _allowed() else None


def pin(core: int | None) -> None:
    """Keep this process, its threads and its children on one core."""
    if core is not None:
        os.sched_setaffinity(0, {core})


def _allowed() -> list[int]:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


if __name__ == "__main__":
    pin(int(sys.argv[1]) if sys.argv[1] else None)
    os.execv(sys.argv[2], sys.argv[2:])
