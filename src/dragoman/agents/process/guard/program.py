"""A program that the guardian has started."""

from __future__ import annotations

import os
import signal

from .system import kill


class Program:
    """A program and its group. Its pid is also the id of its group and of its session."""

    __slots__ = ("asked", "failed", "group", "id", "kill_at", "killed", "pid", "runs", "status")

    def __init__(self, id: str, pid: int, status: int) -> None:
        self.id = id
        self.pid = pid
        # Where its start is told; None once that is known.
        self.status: int | None = status
        self.failed = False
        # It has not been reaped: the pid is its own.
        self.runs = True
        # The group has members: its id is its own.
        self.group = True
        self.asked = False
        self.kill_at: float | None = None
        self.killed = False

    def signal(self, number: int) -> None:
        """Send a signal to the group, and to a leader that may not lead it yet."""
        if self.group:
            try:
                os.killpg(self.pid, number)
            except PermissionError:
                # What cannot be ended is not waited for.
                self.group = self.runs or number != signal.SIGKILL
            except OSError:
                pass
        if self.runs and self.status is not None:
            kill(self.pid, number)

    def ask(self) -> None:
        """Ask the group to end, once."""
        if not self.asked:
            self.asked = True
            self.signal(signal.SIGTERM)
            # One that is stopped would not hear it.
            self.signal(signal.SIGCONT)

    def force(self) -> None:
        """Kill the group."""
        self.killed, self.kill_at = True, None
        self.signal(signal.SIGKILL)

    def force_at(self, due: float) -> None:
        """Kill it at a time, if it is not to be killed earlier."""
        if not self.killed:
            self.kill_at = due if self.kill_at is None else min(due, self.kill_at)
