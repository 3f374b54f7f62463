"""The tasks of a filled store: each is known from its number, so that a generator can ask for it."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from uuid import UUID

AGENT = "bench"
PER_CONTEXT = 10
PAGE = 50
# One task in twenty failed, one waits for input; the others are completed.
ONE_IN = 20
# In the year 2100: a server compacts tasks that ended more than a day ago, and must not do so while it is measured.
_BASE_MS = 4_102_444_800_000
_STEP_MS = 1000


def task_id(number: int) -> str:
    """The id of a task."""
    return _uuid(f"task {number}")


def context_id(number: int) -> str:
    """The context of a task; neighbors share one."""
    return _uuid(f"context {number // PER_CONTEXT}")


def text(number: int) -> str:
    """What was said, and echoed."""
    return f"stored {number:08d}"


def state(number: int) -> str:
    """The state a task ended in."""
    return {0: "TASK_STATE_FAILED", 1: "TASK_STATE_INPUT_REQUIRED"}.get(number % ONE_IN, "TASK_STATE_COMPLETED")


def status_ms(number: int) -> int:
    """When a task got its last status."""
    return _BASE_MS + number * _STEP_MS


def timestamp(number: int) -> str:
    """The same time as A2A spells it."""
    return datetime.fromtimestamp(status_ms(number) / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def recent_from(count: int) -> int:
    """The first task of the newest hundredth."""
    return count - count // 100


def _uuid(seed: str) -> str:
    digest = bytearray(hashlib.md5(seed.encode(), usedforsecurity=False).digest())
    digest[6] = digest[6] & 0x0F | 0x40
    digest[8] = digest[8] & 0x3F | 0x80
    return str(UUID(bytes=bytes(digest)))
