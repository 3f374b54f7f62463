"""Logging to stderr, as text or as JSON lines."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

from dragoman.telemetry.log_context import LOG_CONTEXT
from dragoman.telemetry.printable import json_escaped, one_line, replace_controls
from dragoman.telemetry.recent_errors import RecentErrors
from dragoman.telemetry.terminal import Style, wants_color

_ORDINARY = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


def configure(kind: str, level: str, *, quiet: bool = False, worker: int | None = None) -> None:
    """Send all logs to stderr: `kind` is "text" or "json" (one object per line), `level` as in the settings.

    With `quiet`, the level is at least "warning". With `worker`, each record says which of several processes wrote it.

    May be called again: the last call counts. Other handlers of the root logger stay.

    Raises:
        ValueError: `level` is not a log level.
    """
    handler = _StderrHandler()
    LOG_CONTEXT.enable(on=kind == "json")
    if kind == "json":
        handler.setFormatter(_JsonFormatter(worker))
    else:
        form = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
        formatter = _TerminalFormatter(datefmt="%H:%M:%S") if sys.stderr.isatty() else _TextFormatter(form)
        formatter.label = "" if worker is None else f"[{worker}] "
        handler.setFormatter(formatter)
    root = logging.getLogger()
    root.setLevel(level.upper())
    if quiet:
        root.setLevel(max(root.level, logging.WARNING))
    _keep_denials(root.level)
    root.handlers[:] = [other for other in root.handlers if not isinstance(other, _StderrHandler)]
    root.addHandler(handler)
    # uvicorn logs every step of its start and stop at INFO; `serve` prints what users need.
    logging.getLogger("uvicorn").setLevel(logging.NOTSET if level == "debug" else logging.WARNING)


def _keep_denials(level: int) -> None:
    """Write warnings of the audit log whatever the level is, unless the program has set its level itself."""
    audit = logging.getLogger("dragoman.audit")
    if audit.level in (logging.NOTSET, logging.WARNING):
        audit.setLevel(logging.WARNING if level > logging.WARNING else logging.NOTSET)


def is_configured() -> bool:
    """True when the program has set up logging for itself or for Dragoman."""
    handlers = (*logging.getLogger().handlers, *logging.getLogger("dragoman").handlers)
    return any(not isinstance(handler, RecentErrors) for handler in handlers)


class _StderrHandler(logging.StreamHandler[TextIO]):
    def emit(self, record: logging.LogRecord) -> None:
        # Looked up each time, because test runners and notebooks replace sys.stderr.
        self.stream = sys.stderr
        super().emit(record)


class _TextFormatter(logging.Formatter):
    default_msec_format = "%s.%03d"
    label: str = ""  # of the process, before each message

    def format(self, record: logging.LogRecord) -> str:
        # The base method would reuse a traceback that another handler has formatted and cached.
        record.message = self.label + one_line(record.getMessage())
        record.asctime = self.formatTime(record, self.datefmt)
        lines = [self.formatMessage(record)]
        for text in (self.formatException(record.exc_info) if record.exc_info else "", record.stack_info or ""):
            # A caller may control the text of an exception: indent it, so that no line can pass for a record.
            lines += [f"    {line}" for line in replace_controls(text).splitlines()]
        return "\n".join(lines)


class _TerminalFormatter(_TextFormatter):
    """Short lines for people: the time, what is worse than news, and the message."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        style = Style(wants_color(sys.stderr))
        message = record.message if record.name.startswith("dragoman.") else f"{record.name}: {record.message}"
        if record.levelno >= logging.WARNING:
            message = f"{record.levelname.lower()}: {message}"
        if record.levelno >= logging.ERROR or getattr(record, "state", "") in ("failed", "rejected"):
            message = style.red(message)
        return f"{style.dim(record.asctime)}  {message}"


class _JsonFormatter(logging.Formatter):
    def __init__(self, worker: int | None) -> None:
        super().__init__()
        self._process = {} if worker is None else {"worker": worker}

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self._process,
        }
        extra = {key: value for key, value in vars(record).items() if key not in _ORDINARY and key not in line}
        line |= LOG_CONTEXT.fields() | extra
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = record.stack_info
        return json_escaped(json.dumps(line, ensure_ascii=False, default=str))
