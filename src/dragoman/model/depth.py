"""How many agents a message has come through."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

DEPTH = "dragoman/depth"
"""The key in the metadata of a message or a request."""

VARIABLE = "DRAGOMAN_DEPTH"
"""What a program that runs as an agent is told: the depth of what it sends itself."""


def depth_of(metadata: Mapping[str, Any]) -> int:
    """The depth a message says it has; 0 when it says nothing that could be one."""
    given: Any = metadata.get(DEPTH)
    # Some callers' JSON has no whole numbers, only 4.0.
    return math.ceil(given) if isinstance(given, (int, float)) and not isinstance(given, bool) and given > 0 else 0


def passed_on(metadata: Mapping[str, Any] | None, environ: Mapping[str, str]) -> dict[str, Any] | None:
    """The metadata of a message; from a program that is an agent itself, with the depth it was told."""
    said = dict(metadata) if metadata else {}
    told = environ.get(VARIABLE, "")
    if told.isascii() and told.isdecimal() and DEPTH not in said:
        said[DEPTH] = int(told)
    return said or None
