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
from dragoman.model.json import decode_any

if TYPE_CHECKING:
    from dragoman.agents.process.events import Event

logger = logging.getLogger("dragoman.process")
KEYS = ("text", "status", "artifact", "ask", "result", "error")
_SHOWN = 200


class JsonLines:
    """Reads such lines. What is none is logged, and otherwise passed over: a library may have printed something."""

    def feed(self, line: bytes) -> Iterator[Event]:
        """The event of a line, if it is one."""
        try:
            read: Any = decode_any(line)
        except (ValueError, RecursionError):
            read = None
        found = cast("dict[str, Any]", read) if isinstance(read, dict) else {}
        key = next((key for key in KEYS if key in found), None)
        event = None if key is None else _event(key, found[key])
        if event is None:
            logger.warning("no JSON line of a program: %s", line[:_SHOWN].decode(errors="replace"))
        else:
            yield event

    def close(self) -> Iterator[Event]:
        """Nothing is kept back."""
        return iter(())


def _event(key: str, value: Any) -> Event | None:
    if key == "result":
        return events.result(value)
    if key == "artifact":
        if isinstance(value, Mapping):
            return events.artifact(cast("Mapping[str, Any]", value))
        return events.artifact({"text": value} if isinstance(value, str) else {"data": value})
    if not isinstance(value, str):
        return None
    make = {"text": events.text, "status": events.tool_status, "ask": events.ask, "error": events.error}
    return make[key](value)
