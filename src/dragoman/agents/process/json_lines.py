"""Programs that say more than text: each line of their output is a JSON object with one key.

{"text": "a piece of the answer"}
{"status": "what is being done"}
{"artifact": {"name": "plan", "text": "…"}}      instead of text: data, base64 or file (a path), and media_type
{"ask": "How many days?"}                        the answer comes as a line on standard input
{"result": …}                                    the answer as a whole: a text, or any JSON value
{"error": "why it did not work"}
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from dragoman.agents.process import events
from dragoman.agents.process.profiles.json_object import object_of
from dragoman.model.json import encode

if TYPE_CHECKING:
    from dragoman.agents.process.events import Event

logger = logging.getLogger("dragoman.process")
KEYS = ("text", "status", "artifact", "ask", "result", "error")
_SHOWN = 200
# How many lines that are none are shown.
_FEW = 3


class JsonLines:
    """Reads such lines. What is none is logged, and otherwise passed over: a library may have printed something."""

    def __init__(self) -> None:
        self._passed = 0

    def feed(self, line: bytes) -> Iterator[Event]:
        """The event of a line, if it is one."""
        found = object_of(line) or {}
        key = next((key for key in KEYS if key in found), None)
        event = None if key is None else _event(key, found[key])
        if event is not None:
            yield event
            return
        self._passed += 1
        if self._passed <= _FEW:
            logger.warning("no JSON line of a program: %s", line[:_SHOWN].decode(errors="replace"))

    def close(self) -> Iterator[Event]:
        """Nothing is kept back."""
        if self._passed > _FEW:
            logger.warning("a program wrote %d lines that are no JSON lines", self._passed)
        return iter(())


def _event(key: str, value: Any) -> Event | None:
    if key == "result":
        return events.result(value)
    if key == "artifact":
        if isinstance(value, Mapping):
            return events.artifact(cast("Mapping[str, Any]", value))
        return events.artifact({"text": value} if isinstance(value, str) else {"data": value})
    if key == "error" and not isinstance(value, str):
        value = encode(value).decode()
    if not isinstance(value, str):
        return None
    make = {"text": events.text, "status": events.tool_status, "ask": events.ask, "error": events.error}
    return make[key](value)
