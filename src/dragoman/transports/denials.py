"""Who was stopped by a limit, in the audit log."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dragoman.engine.clock import Clock
    from dragoman.model.error import A2AError

logger = logging.getLogger("dragoman.audit")
# How many lines there may be in a second, and how long a name may be.
LINES = 100
_LONGEST = 200


class Denials:
    """Writes a line per caller and second at most, and not too many in all: nobody can fill the log with it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._second = 0
        self._told: set[str] = set()

    def note(self, caller: str, error: A2AError) -> None:
        """Write down who was refused by which limit. Other errors are none of ours."""
        limit = error.metadata.get("limit")
        if limit is None:
            return
        second = self._clock.now() // 1000
        if second != self._second:
            self._second, self._told = second, set()
        if caller in self._told or len(self._told) >= LINES:
            return
        self._told.add(caller)
        name = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in caller[:_LONGEST])
        shown = json.dumps(name, ensure_ascii=False)
        fields = {"event": "limited", "caller": name, "reason": limit}
        logger.warning("event=limited caller=%s reason=%s", shown, limit, extra=fields)
