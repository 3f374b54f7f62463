"""Names that nothing else has."""

from __future__ import annotations

import os
import re

from dragoman.model.error import InvalidParams

LONGEST_ID = 256
_UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.IGNORECASE)
_VARIANT = "89ab"


def new_id() -> str:
    """A UUID of version 4. Every task needs two, so this is the short way to one."""
    digits = os.urandom(16).hex()
    variant = _VARIANT[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


def is_uuid(text: str) -> bool:
    """True for a UUID of any version, with its dashes."""
    return len(text) == 36 and _UUID.fullmatch(text) is not None


def check_id(value: str | None, field: str) -> None:
    """See that an id a caller chose for something new can stand in a line of a log or a terminal.

    Raises:
        InvalidParams: it has more than 256 characters, or one that is not printable.
    """
    if value is not None and (len(value) > LONGEST_ID or not value.isprintable()):
        raise InvalidParams(f"{field} must be printable characters, {LONGEST_ID} of them at most", field=field)
