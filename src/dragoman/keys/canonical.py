"""Canonical JSON (RFC 8785), so that equal values have equal signatures."""

from __future__ import annotations

import json
from decimal import Decimal
from math import isfinite
from typing import Any, cast

MAX_DEPTH = 128
# Beyond this, a double cannot hold every integer: two numbers would have the same canonical form.
_SAFE = 2**53 - 1
_quoted = json.JSONEncoder(ensure_ascii=False).encode


def canonical(value: Any) -> bytes:
    """Return the canonical form of decoded JSON.

    Raises:
        ValueError: it has none: a number that is no finite double, a lone surrogate, a key that is not text, a value
            that is not JSON, or more than 128 levels.
    """
    pieces: list[str] = []
    _write(value, pieces, 0)
    return "".join(pieces).encode()


def _write(value: Any, pieces: list[str], depth: int) -> None:
    match value:
        case None:
            pieces.append("null")
        case bool():
            pieces.append("true" if value else "false")
        case str():
            pieces.append(_quoted(value))
        case int():
            if abs(value) > _SAFE:
                raise ValueError("a whole number beyond 2^53 - 1 has no canonical form")
            pieces.append(str(int(value)))
        case float():
            pieces.append(format_number(value))
        case dict() | list() | tuple():
            if depth == MAX_DEPTH:
                raise ValueError(f"more than {MAX_DEPTH} levels have no canonical form")
            _write_many(cast("dict[Any, Any] | list[Any] | tuple[Any, ...]", value), pieces, depth + 1)
        case _:
            raise ValueError(f"{type(value).__name__} is not JSON")


def _write_many(value: dict[Any, Any] | list[Any] | tuple[Any, ...], pieces: list[str], depth: int) -> None:
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise ValueError("a key that is not text has no canonical form")
        pieces.append("{")
        # Sorted by UTF-16 code units: characters beyond U+FFFF come before those from U+E000 on.
        for count, key in enumerate(sorted(value, key=_units)):
            pieces.append(f"{',' if count else ''}{_quoted(key)}:")
            _write(value[key], pieces, depth)
        pieces.append("}")
        return
    pieces.append("[")
    for count, each in enumerate(value):
        if count:
            pieces.append(",")
        _write(each, pieces, depth)
    pieces.append("]")


def _units(key: str) -> bytes:
    return key.encode("utf-16-be")


def format_number(value: float) -> str:
    """Format a double as ECMAScript does.

    Raises:
        ValueError: it is not finite.
    """
    if not isfinite(value):
        raise ValueError(f"{value} is not JSON")
    if value == 0:
        return "0"  # also -0.0
    # Python's repr has the shortest digits that round-trip, as ECMAScript requires; only the layout differs.
    sign, digit_tuple, exponent = Decimal(repr(value)).normalize().as_tuple()
    digits = "".join(map(str, digit_tuple))
    point = len(digits) + cast("int", exponent)  # how many digits stand before the point
    if 0 < point <= 21:
        text = digits.ljust(point, "0")
        text = text if len(text) == point else f"{text[:point]}.{text[point:]}"
    elif -6 < point <= 0:
        text = f"0.{'0' * -point}{digits}"
    else:
        mantissa = digits if len(digits) == 1 else f"{digits[0]}.{digits[1:]}"
        text = f"{mantissa}e{point - 1:+d}"
    return f"-{text}" if sign else text
