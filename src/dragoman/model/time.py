"""Milliseconds since 1970 and the spelling A2A gives them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@lru_cache(maxsize=8)  # the events of a short run share a millisecond
def timestamp(ms: int) -> str:
    """Spell milliseconds as `2026-11-15T10:00:00.000Z`."""
    second, rest = divmod(ms, 1000)
    return f"{_second(second)}.{rest:03d}Z"


@lru_cache(maxsize=4)  # hundreds of events share a second, and formatting one costs 2 µs
def _second(second: int) -> str:
    return (_EPOCH + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%S")


def milliseconds(text: str) -> int:
    """Read an ISO 8601 time; one without a zone is UTC.

    Raises:
        ValueError: the text is not a time.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round((moment - _EPOCH) / timedelta(milliseconds=1))
