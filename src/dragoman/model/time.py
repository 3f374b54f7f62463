"""Milliseconds since 1970 and the spelling A2A gives them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_SECOND: tuple[int, str] = (-1, "")


def timestamp(ms: int) -> str:
    """Spell milliseconds as `2026-11-15T10:00:00.000Z`."""
    global _LAST_SECOND  # noqa: PLW0603 - formatting a second costs 2 µs and hundreds of events share it
    second, rest = divmod(ms, 1000)
    known, text = _LAST_SECOND
    if known != second:
        text = (_EPOCH + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%S")
        _LAST_SECOND = (second, text)
    return f"{text}.{rest:03d}Z"


def milliseconds(text: str) -> int:
    """Read an ISO 8601 time; one without a zone is UTC.

    Raises:
        ValueError: the text is not a time.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round((moment - _EPOCH) / timedelta(milliseconds=1))
