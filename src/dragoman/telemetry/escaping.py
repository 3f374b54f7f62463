"""Log injection protection: a record of Dragoman's loggers is one line, whatever formatter and handler write it."""

from __future__ import annotations

import logging

from dragoman.telemetry.printable import one_line

# Every logger by name, because a logger's filter does not apply to records of its child loggers.
NAMES = tuple(
    f"dragoman.{name}"
    for name in (
        *("adk", "agent", "audit", "auth", "client", "compat", "engine", "http", "loop", "mcp"),
        *("process", "push", "server", "settings", "store", "task", "telemetry"),
    )
)


class OneLineFilter(logging.Filter):
    """Escapes line breaks and control characters in messages, so that they cannot forge lines or control a terminal."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Pass every record. One with nothing to escape keeps its template and its arguments."""
        try:
            message = record.getMessage()
        except Exception:  # noqa: BLE001 - the handler reports arguments that do not match the template
            return True
        escaped = one_line(message)
        if escaped is not message:
            record.msg, record.args = escaped, None
        return True


def install() -> None:
    """Add the filter to every logger of Dragoman. Idempotent."""
    for name in NAMES:
        logger = logging.getLogger(name)
        if not any(isinstance(each, OneLineFilter) for each in logger.filters):
            logger.addFilter(OneLineFilter())
