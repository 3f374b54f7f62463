"""Ids: new UUIDs, and validation of those that callers choose."""

from __future__ import annotations

import os
import re

from dragoman.model.error import InvalidParams

MAX_ID_LENGTH = 256
_UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.IGNORECASE)
_VARIANT = "89ab"


_BLOCK = 128
_pool: list[str] = []


def new_id() -> str:
    """Return a UUID of version 4. They are generated in blocks, so that few tasks need a system call."""
    try:
        return _pool.pop()
    except IndexError:
        ids = _generate_ids()
        one = ids.pop()
        _pool.extend(ids)
        return one


def _generate_ids() -> list[str]:
    block = os.urandom(16 * _BLOCK).hex()
    return [_uuid(block[start : start + 32]) for start in range(0, len(block), 32)]


def _uuid(digits: str) -> str:
    variant = _VARIANT[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


if hasattr(os, "register_at_fork"):  # a forked process would hand out the same ids again
    os.register_at_fork(after_in_child=_pool.clear)


def is_uuid(text: str) -> bool:
    """True for a UUID of any version, with dashes."""
    return len(text) == 36 and _UUID.fullmatch(text) is not None


def check_id(value: str, field: str) -> None:
    """Validate an id that a caller chose: it must be safe to print in a log or a terminal.

    Raises:
        InvalidParams: it has more than 256 characters, or unprintable ones.
    """
    if len(value) > MAX_ID_LENGTH or not value.isprintable():
        raise InvalidParams(f"{field} must be printable characters, {MAX_ID_LENGTH} of them at most", field=field)
