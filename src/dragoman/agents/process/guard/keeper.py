"""The keeper: starts programs for a server, and ends them all when the server goes, however it goes.

Every program is forked here, leads a session and a group of its own, and is on record before it can do anything. What
programs leave behind becomes the keeper's child and is ended after them, as far as the system lets it: without /proc
and prctl (not Linux) only their groups are.
"""

from __future__ import annotations

import errno
import os
import resource
import select
import signal
import time

from .link import MARK, Link
from .system import (
    PR_SET_CHILD_SUBREAPER,
    PR_SET_PDEATHSIG,
    become,
    children,
    close,
    descendants,
    drain,
    find_prctl,
    group_of,
    has_child,
    has_zombie,
    kill,
    read,
    session_of,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MARK = f"{MARK}=".encode()
# How long what a program left behind may take to end by itself.
_LEFT_SECONDS = 1.0
# How long ending everything may take.
_LAST_SECONDS = 5.0
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


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


class Keeper:
    """Serves one server until its end of the socket closes."""

    def __init__(self, descriptor: int) -> None:
        self._pid = os.getpid()
        self._poll = select.poll()
        self._link = Link(descriptor, self._poll)
        self._programs: dict[str, Program] = {}
        self._leaders: dict[int, Program] = {}
        self._starting: dict[int, Program] = {}
        # Children that are no leaders, each with the programs that it can be of.
        self._strangers: dict[int, set[str]] = {}
        self._asked: set[int] = set()
        self._alarm = self._heed_signals()
        self._parent = self._watch_parent()
        self._prctl = find_prctl()
        self._adopts = self._prctl is not None and self._prctl(PR_SET_CHILD_SUBREAPER, 1) == 0
        self._changed_signals = [int(number) for number in signal.valid_signals() if _is_changed(number)]

    def _heed_signals(self) -> int:
        for number in _IGNORED:
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        alarm, ring = os.pipe()
        os.set_blocking(alarm, False)
        os.set_blocking(ring, False)
        signal.set_wakeup_fd(ring, warn_on_full_buffer=False)
        # The server has blocked them until here.
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        self._poll.register(alarm, select.POLLIN)
        return alarm

    def _watch_parent(self) -> int:
        """Notice the server's end also where something it forked holds its socket open."""
        try:
            parent = os.pidfd_open(os.getppid())
        except (AttributeError, OSError):
            return -1
        self._poll.register(parent, select.POLLIN)
        return parent

    def run(self) -> None:
        """Serve, then end everything."""
        while self._turn():
            pass
        self._end_all()

    def _turn(self) -> bool:
        """Do what there is to do next. False when the server has gone."""
        events = dict(self._poll.poll(self._patience()))
        if self._parent in events:
            return False
        for descriptor in self._starting.keys() & events.keys():
            self._started(self._starting[descriptor])
        # After these: what the server wants may use the numbers of their descriptors for new ones.
        event = events.get(self._link.descriptor, 0)
        if event & select.POLLOUT:
            self._link.flush()
        if event & ~select.POLLOUT:
            frames = self._link.receive()
            if frames is None:
                return False
            for frame in frames:
                self._obey(frame)
        now = time.monotonic()
        due = [one for one in self._programs.values() if one.kill_at is not None and one.kill_at <= now]
        for program in due:
            program.force()
        if self._alarm in events:
            drain(self._alarm)
        if due or self._alarm in events:
            self._settle()
        return True

    def _patience(self) -> float | None:
        due = min((one.kill_at for one in self._programs.values() if one.kill_at is not None), default=None)
        return None if due is None else max(0.0, due - time.monotonic()) * 1000 + 1

    def _obey(self, frame: dict[str, Any]) -> None:
        if "argv" in frame:
            self._spawn(frame)
            return
        program = self._programs.get(frame["id"])
        if program is None:
            return
        if "number" in frame:
            program.signal(frame["number"])
        elif frame["grace"] > 0:
            program.force_at(time.monotonic() + frame["grace"])
            program.ask()
        elif not program.killed:
            program.force()
            self._settle()

    # -- starting ------------------------------------------------------------------------------------------------------

    def _spawn(self, frame: dict[str, Any]) -> None:
        streams = self._link.streams()
        try:
            told, pid = self._fork(frame, streams)
        except OSError as error:
            self._link.report(id=frame["id"], failed=error.errno, step="fork")
        else:
            program = Program(frame["id"], pid, told)
            self._programs[program.id] = self._leaders[pid] = self._starting[told] = program
            self._poll.register(told, select.POLLIN)
        finally:
            close(*streams)

    def _fork(self, frame: dict[str, Any], streams: list[int]) -> tuple[int, int]:
        """Where the start is told, and the pid."""
        if len(streams) < 3:
            raise OSError(errno.EMFILE, "no room for its streams")
        told, status = os.pipe()
        # A signal for a program that has not begun waits for it: here it would be ignored.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            pid = os.fork()
            if not pid:
                become(frame, streams, status, lambda: self._prepare(streams, status), self._changed_signals)
        except OSError:
            os.close(told)
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            os.close(status)
        return told, pid

    def _prepare(self, streams: list[int], status: int) -> None:
        """In the child: end with the keeper, and let go at once of what others wait to see closed."""
        if self._prctl is not None:
            self._prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != self._pid:
                os._exit(127)
        others = {self._link.descriptor, *self._link.waiting(), *self._starting}
        close(*others.difference(streams, (status,)))

    def _started(self, program: Program) -> None:
        assert program.status is not None
        problem = os.read(program.status, 100).decode()
        self._poll.unregister(program.status)
        del self._starting[program.status]
        os.close(program.status)
        program.status = None
        if problem:
            number, step = problem.split()
            program.failed = True
            self._link.report(id=program.id, failed=int(number), step=step)
        else:
            self._link.report(id=program.id, pid=program.pid)

    # -- ending --------------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Reap, and look after what programs that have ended left behind."""
        self._reap()
        if all(one.runs for one in self._programs.values()):
            return
        self._look()
        while has_zombie():
            # The system may leave out some of our children from their list while others end.
            self._reap()
            self._look()
        for program in list(self._programs.values()):
            if not program.runs:
                self._clear(program)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            self._strangers.pop(pid, None)
            self._asked.discard(pid)
            program = self._leaders.pop(pid, None)
            if program is not None:
                self._exited(program, os.waitstatus_to_exitcode(status))

    def _exited(self, program: Program, code: int) -> None:
        if program.status is not None:
            self._started(program)
        program.runs = False
        if program.failed:
            del self._programs[program.id]
            return
        self._link.report(id=program.id, exit=code)
        program.force_at(time.monotonic() + _LEFT_SECONDS)

    def _clear(self, program: Program) -> None:
        """End what is left of a program that has ended, and tell when nothing is."""
        # Once the group is empty another one may get its id.
        program.group = program.group and self._is_group_left(program)
        if program.group and program.killed:
            program.signal(signal.SIGKILL)
        elif program.group:
            program.ask()
        left = [pid for pid, owners in self._strangers.items() if owners == {program.id}]
        for pid in left:
            if not program.killed:
                self._ask(pid, program)
            elif not kill(pid, signal.SIGKILL):
                # What cannot be ended is not waited for.
                self._strangers[pid] = set()
        if not program.group and not any(self._strangers[pid] for pid in left):
            self._link.report(id=program.id, clean=True)
            del self._programs[program.id]
            for owners in self._strangers.values():
                owners.discard(program.id)

    def _ask(self, pid: int, program: Program) -> None:
        """Ask a stranger to end, once. As a member of the group it has been asked."""
        if pid not in self._asked:
            self._asked.add(pid)
            if not program.group or group_of(pid) != program.pid:
                kill(pid, signal.SIGTERM)
                kill(pid, signal.SIGCONT)

    def _is_group_left(self, program: Program) -> bool:
        try:
            if self._adopts:
                os.waitid(os.P_PGID, program.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            elif program.killed:
                return False
            else:
                os.killpg(program.pid, 0)
        except OSError:
            return False
        return True

    def _look(self) -> None:
        """Find children that nobody has seen yet, and whose they are."""
        for pid in children(self._pid):
            if pid not in self._leaders and pid not in self._strangers:
                self._strangers[pid] = self._owners(pid)

    def _owners(self, pid: int) -> set[str]:
        """The program that a process is of; all that it can be of, where that cannot be seen."""
        for name in read(f"/proc/{pid}/environ").split(b"\0"):
            if name.startswith(_MARK) and (mark := name[len(_MARK) :].decode("latin-1")) in self._programs:
                return {mark}
        session = session_of(pid)
        return {one.id for one in self._programs.values() if one.pid == session} or set(self._programs)

    def _end_all(self) -> None:
        """Kill every descendant until there is none, or for as long as it is worth trying."""
        until = time.monotonic() + _LAST_SECONDS
        while time.monotonic() < until:
            for program in self._programs.values():
                program.group = program.group and (program.runs or self._is_group_left(program))
                program.signal(signal.SIGKILL)
            for pid in descendants(self._pid):
                kill(pid, signal.SIGKILL)
            self._reap()
            if not self._leaders and not has_child():
                return
            select.select([self._alarm], [], [], 0.05)
            drain(self._alarm)


def _is_changed(number: int) -> bool:
    return signal.getsignal(number) not in (signal.SIG_DFL, None)


def main(descriptor: int, open_files: int) -> None:
    """Serve a socket; each program may have that many files open."""
    # The programs inherit both. The server itself may have more files open.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    Keeper(descriptor).run()
