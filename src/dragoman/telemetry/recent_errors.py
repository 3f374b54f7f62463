"""The last warnings and errors of the log, for who looks at a running server."""

from __future__ import annotations

import logging
import re
from collections import deque
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple

from dragoman.telemetry.log_context import LOG_CONTEXT
from dragoman.telemetry.printable import one_line

if TYPE_CHECKING:
    from collections.abc import Collection

MAX_ERRORS = 100
MAX_MESSAGE = 500
_MAX_NAME = 200
_LOGGER = logging.getLogger("dragoman")
# Who was refused is no error of the server, and anybody could fill all places with that.
_AUDIT = "dragoman.audit"
# As callers get it: `Internal error, reference 7f3a91`.
_REFERENCE = re.compile(r"\breference ([0-9a-f]{6})\b")
# Our own lines have no secrets, but an agent's may: in URLs, and after the names that secrets usually have.
_IN_URL = re.compile(r"(?<=://)[^\s/@]+@")
_NAMED = re.compile(
    r"(?i)\b(authorization|bearer|basic|password|passwd|secret|(?:access_|refresh_|api_?)?(?:token|key))"
    r"(\"?'?\s*[:=]\s*\"?'?|\s+)(?:(?:bearer|basic)\s+)?[^\s\"',;&]{6,}"
)
_MASK = "…"


class RecentError(NamedTuple):
    """A warning or an error. `reference` is what the caller was given in place of it; empty if nothing was."""

    at_ms: int
    level: str
    logger: str
    message: str
    reference: str = ""
    agent: str = ""
    task: str = ""


class RecentErrors(logging.Handler):
    """Keeps the last warnings and errors of `dragoman` and the loggers below it, while it is installed; not the audit.

    It keeps no stack traces, of an exception only its class and where it was raised, and of a message one line,
    shortened, in which what looks like a secret is masked. The log is the process's: where several servers share one,
    each leaves out what is about agents that it does not have, and sees what is about none. `agents` are the names of
    its own.
    """

    def __init__(self, agents: Collection[str] = ()) -> None:
        super().__init__(logging.WARNING)
        self._agents = frozenset(agents)
        self._errors: deque[RecentError] = deque(maxlen=MAX_ERRORS)

    def install(self) -> None:
        """Keep errors from now on. Idempotent."""
        if self not in _LOGGER.handlers:
            _LOGGER.addHandler(self)

    def remove(self) -> None:
        """Keep no more. Idempotent. What was kept stays."""
        _LOGGER.removeHandler(self)

    def newest_first(self) -> list[RecentError]:
        """Return the errors, the newest first."""
        return list(self._errors)[::-1]

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record. Safe in any thread."""
        try:
            self._keep(record)
        except Exception:  # noqa: BLE001 - as every handler does: a broken record is no reason to fail
            self.handleError(record)
        if _LOGGER.handlers[:1] == [self] and logging.lastResort is not None and _is_unhandled(record):
            # Without any handler, Python prints warnings. These are none that anybody has set up.
            logging.lastResort.handle(record)

    def _keep(self, record: logging.LogRecord) -> None:
        if record.name == _AUDIT:
            return
        fields = LOG_CONTEXT.fields()
        agent, task = (str(getattr(record, name, "") or fields.get(name, "")) for name in ("agent", "task"))
        if agent and self._agents and agent not in self._agents:
            return
        message = record.getMessage()
        reference = _REFERENCE.search(message)
        self._errors.append(
            RecentError(
                int(record.created * 1000),
                record.levelname.lower(),
                one_line(record.name[:_MAX_NAME]),
                _shorten(message) + _describe_exception(record),
                "" if reference is None else reference[1],
                one_line(agent[:_MAX_NAME]),
                one_line(task[:_MAX_NAME]),
            )
        )


def _describe_exception(record: logging.LogRecord) -> str:
    """Return the class of the exception of a record, and where it was raised; its text is in the log alone."""
    error = record.exc_info[1] if record.exc_info else None
    if error is None:
        return ""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    place = "" if frame is None else f" in {PurePath(frame.tb_frame.f_code.co_filename).name}:{frame.tb_lineno}"
    return one_line(f": {type(error).__name__[:_MAX_NAME]}{place}")


def _shorten(message: str) -> str:
    # Masked before it is shortened: half of a secret is one too.
    text = _IN_URL.sub(f"{_MASK}@", message[: 4 * MAX_MESSAGE])
    text = one_line(_NAMED.sub(lambda match: f"{match[1]}{match[2]}{_MASK}", text))
    return text if len(text) <= MAX_MESSAGE else f"{text[:MAX_MESSAGE]}…"


def _is_unhandled(record: logging.LogRecord) -> bool:
    """True when no other handler than these gets the record."""
    logger: logging.Logger | None = logging.getLogger(record.name)
    while logger is not None:
        if any(not isinstance(each, RecentErrors) for each in logger.handlers):
            return False
        logger = logger.parent if logger.propagate else None
    return True
