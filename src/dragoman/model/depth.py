"""How many agents a message has come through."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

DEPTH = "dragoman/depth"
"""The key in the metadata of a message or a request."""

VARIABLE = "DRAGOMAN_DEPTH"
"""What a program that runs as an agent is told: the depth of what it sends itself."""


# More than this is as deep as this.
_DEEPEST = 10**18


def depth_of(*metadata: Mapping[str, Any] | None) -> int:
    """The largest depth that a message or its request says it has; 0 when nothing is said that could be one."""
    return max((_depth(each.get(DEPTH)) for each in metadata if each), default=0)


def _depth(given: Any) -> int:
    if isinstance(given, str):
        return _digits(given.strip()) or 0
    if not isinstance(given, (int, float)) or isinstance(given, bool) or not given > 0:
        return 0
    # Some callers' JSON has no whole numbers, only 4.0.
    return math.ceil(min(given, _DEEPEST))


def _digits(text: str) -> int | None:
    if not text.isascii() or not text.isdecimal():
        return None
    digits = text.lstrip("0")
    return _DEEPEST if len(digits) > len(str(_DEEPEST)) else min(int(digits or "0"), _DEEPEST)


def told_depth(environ: Mapping[str, str]) -> int | None:
    """The depth of what a program sends that runs as an agent; None when it does not."""
    return _digits(environ.get(VARIABLE, ""))


def passed_on(metadata: Mapping[str, Any] | None, environ: Mapping[str, str]) -> dict[str, Any] | None:
    """The metadata of a message; from a program that is an agent itself, with the depth it was told."""
    said = dict(metadata) if metadata else {}
    told = told_depth(environ)
    if told is not None and DEPTH not in said:
        said[DEPTH] = told
    return said or None
