"""Foreign text in logs: a record of Dragoman's loggers is one line, whatever formatter and handler write it."""

from __future__ import annotations

import logging

from dragoman.telemetry.printable import one_line

# Every logger there is; a filter works on what is logged to its own logger, and not on what comes from those below.
NAMES = tuple(
    f"dragoman.{name}"
    for name in (
        *("adk", "agent", "audit", "auth", "compat", "engine", "http", "mcp"),
        *("process", "push", "server", "settings", "store"),
    )
)


class OneLineFilter(logging.Filter):
    """Spells out line breaks and controls in messages, so that nobody forges a line or commands a terminal."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record pass. One without anything to spell out keeps its template and its arguments."""
        try:
            message = record.getMessage()
        except Exception:  # noqa: BLE001 - a template that does not fit its arguments is told of by the handler
            return True
        escaped = one_line(message)
        if escaped is not message:
            record.msg, record.args = escaped, None
        return True


def install() -> None:
    """Put the filter on every logger of Dragoman's; once, however often it is called."""
    for name in NAMES:
        logger = logging.getLogger(name)
        if not any(isinstance(each, OneLineFilter) for each in logger.filters):
            logger.addFilter(OneLineFilter())
