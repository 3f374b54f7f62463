"""The log of tasks: one line for each that has ended or paused."""

from __future__ import annotations

import logging
import re
from contextvars import Context
from typing import TYPE_CHECKING, Any

from dragoman.model.json import encode
from dragoman.model.state import State
from dragoman.telemetry.printable import format_bytes

if TYPE_CHECKING:
    from dragoman.clock import Clock, Timer
    from dragoman.engine.execute.run import Run
    from dragoman.engine.journal.live import LiveTask

logger = logging.getLogger("dragoman.task")
# A line costs about 30 µs. Of a busy server's completed tasks, so many a second have one; the others are counted.
MAX_LINES = 100
# Characters of a task id in a line: enough for `dragoman get`.
_ID = 8


class RunLog:
    """Logs the tasks of one agent at the level info, with caller, skill, state, time and bytes.

    Beyond `MAX_LINES` a second, tasks that have completed are counted and logged as a number; at the level debug each
    has its line.
    """

    def __init__(self, agent: str, clock: Clock) -> None:
        self._agent = agent
        self._clock = clock
        self._second = self._lines = self._skipped = 0
        self._timer: Timer | None = None

    def add(self, run: Run) -> None:
        """Log a run that is over. Does nothing when it was cut off: the next start of the server goes on from there."""
        live = run.live
        if not (live.row.state.final or live.row.state.waiting or live.outcome.reply is not None):
            return
        second = live.row.status_ms // 1000
        if second != self._second:
            self._second, self._lines = second, 0
        self._lines += 1
        completed = live.row.state is State.COMPLETED or live.outcome.reply is not None
        if self._lines > MAX_LINES and completed and not logger.isEnabledFor(logging.DEBUG):
            self._skipped += 1
            if self._timer is None:
                # In a context of its own: the line is not about the run that began the count.
                self._timer = Context().run(self._clock.call_later, 1, self.flush)
            return
        began, ended, size = run.began_ms or live.row.created_ms, live.row.status_ms, live.bytes_written
        if live.outcome.reply is not None:
            ended, size = self._clock.now(), len(encode(live.outcome.reply))
        kind, _, name = (run.caller or "").partition(" ")
        caller = {kind: name} if name else {"user": live.row.scope.owner}
        self._log(live, run.skill or self._agent, max(0, ended - began), size, caller)

    def add_ended(self, live: LiveTask) -> None:
        """Log a task that was ended while it waited and had no run."""
        if logger.isEnabledFor(logging.INFO):
            self._log(live, self._agent, 0, live.bytes_written, {"user": live.row.scope.owner})

    def flush(self) -> None:
        """Log the number of tasks that had no line."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._skipped:
            skipped, self._skipped = self._skipped, 0
            text = f"{'…':<8}  {self._agent:<12}  completed       {skipped} more tasks"
            logger.info("%s", text, extra={"agent": self._agent, "state": "completed", "tasks": skipped})

    def _log(self, live: LiveTask, skill: str, milliseconds: int, size: int, caller: dict[str, str]) -> None:
        state = "replied" if live.outcome.reply is not None else live.row.state.name.lower().replace("_", "-")
        who = next(iter(caller.values()))
        line = f"{live.row.id[:_ID]}  {skill:<12}  {state:<14}  {_time(milliseconds):>7}  {_size(size):>7}  {who}"
        row = live.row
        fields: dict[str, Any] = {"task": row.id, "context": row.context_id, "agent": self._agent, "skill": skill}
        fields |= {"state": state, "seconds": milliseconds / 1000, "bytes": size, **(caller if who else {})}
        logger.info("%s", line.rstrip(), extra=fields)


def _time(milliseconds: int) -> str:
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    seconds = milliseconds / 1000
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def _size(size: int) -> str:
    return re.sub(" bytes?", " B", format_bytes(size))  # short, for a column
