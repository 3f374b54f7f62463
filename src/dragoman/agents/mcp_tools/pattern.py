"""Regular expressions of schemas: which can be tried on what a caller sent."""

from __future__ import annotations

import functools
import re

# Steps that a match may take at the worst: some tens of milliseconds.
_MOST_STEPS = 5_000_000
_REPEATED_GROUP = re.compile(r"\)[*+{]")
_REPEAT = re.compile(r"[*+]|\{\d*,")


@functools.lru_cache(1024)
def _repeats(pattern: str) -> int | None:
    """How many repeats there are; None when it is another dialect's, or one that may take for ever."""
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError, TypeError):
        return None
    return None if _REPEATED_GROUP.search(pattern) else len(_REPEAT.findall(pattern))


def is_safe(pattern: str, text: str) -> bool:
    """True when the match ends soon, whoever wrote the pattern and the text: it runs where everybody waits."""
    repeats = _repeats(pattern)
    return repeats is not None and max(len(text), 2) ** max(repeats, 1) <= _MOST_STEPS


def matches(pattern: str, text: str) -> bool:
    """True when the pattern is found in the text; False too when that cannot be tried."""
    return is_safe(pattern, text) and re.search(pattern, text) is not None
