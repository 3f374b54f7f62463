"""Regular expressions of schemas: which can be tried on what a caller sent."""

from __future__ import annotations

import functools
import re

from dragoman.agents.mcp_tools.schema_effort import affords

# Steps that a match may take at the worst: some ten milliseconds.
_MOST_STEPS = 2_000_000
# As many of them are one step of effort.
_FAST = 200
_REPEATED_GROUP = re.compile(r"\)[*+{]")
_REPEAT = re.compile(r"[*+]|\{\d*,|\{\d{4}")
_OPTIONAL = re.compile(r"(?<![(*+?}\\])\?")


@functools.lru_cache(1024)
def _shape(pattern: str) -> tuple[int, int] | None:
    """How the steps grow: to which power with the text, and by which factor; None when it may take for ever.

    None too when it is another dialect's.
    """
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError, TypeError):
        return None
    if _REPEATED_GROUP.search(pattern):
        return None
    repeats = len(_REPEAT.findall(pattern))
    # Each repeat is tried at each length, and what may begin anywhere is tried from everywhere.
    begins = repeats and not (pattern.startswith(("^", "\\A")) and "|" not in pattern)
    return max(repeats + bool(begins), 1), 2 ** len(_OPTIONAL.findall(pattern))


def is_safe(pattern: str, text: str) -> bool:
    """True when the match ends soon, whoever wrote the pattern and the text: it runs where everybody waits."""
    shape = _shape(pattern)
    if shape is None:
        return False
    power, factor = shape
    steps = max(len(text), 2) ** power * factor
    return steps <= _MOST_STEPS and affords(steps // _FAST)


def matches(pattern: str, text: str) -> bool:
    """True when the pattern is found in the text; False too when that cannot be tried."""
    return is_safe(pattern, text) and re.search(pattern, text) is not None
