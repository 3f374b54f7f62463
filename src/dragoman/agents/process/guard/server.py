"""The guard's side: starts programs for a server, and kills them all when the server ends, however it ends.

Every program is forked here, leads a session and a process group of its own, and is on record before it runs. Processes
that programs leave behind become children of the guard and are ended after them. Without /proc and prctl (not Linux)
only their process groups are ended.
"""

from __future__ import annotations

import errno
import os
import resource
import select
import signal
import time

from .link import ID_VARIABLE, Link
from .system import (
    PR_SET_CHILD_SUBREAPER,
    PR_SET_PDEATHSIG,
    children,
    close,
    descendants,
    drain,
    exec_program,
    find_prctl,
    group_of,
    has_child,
    has_zombie,
    kill,
    read_file,
    session_of,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_ID_PREFIX = f"{ID_VARIABLE}=".encode()
# How long processes that a program has left behind may take to end by themselves.
_LEFTOVER_SECONDS = 1.0
# How long to try to kill everything at the end.
_LAST_SECONDS = 5.0
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


class GuardedProcess:
    """A program and its process group. Its pid is also the id of its group and of its session."""

    __slots__ = ("failed", "has_group", "id", "is_running", "kill_at", "killed", "pid", "status", "term_sent")

    def __init__(self, id: str, pid: int, status: int) -> None:
        self.id = id
        self.pid = pid
        # Read end of the pipe that reports its start; None once that is done.
        self.status: int | None = status
        self.failed = False
        # Not reaped yet, so the pid cannot be reused.
        self.is_running = True
        # The group has members, so its id cannot be reused.
        self.has_group = True
        self.term_sent = False
        self.kill_at: float | None = None
        self.killed = False

    def signal(self, number: int) -> None:
        """Send a signal to the group, and to a leader that may not have created its group yet."""
        if self.has_group:
            try:
                os.killpg(self.pid, number)
            except PermissionError:
                # A group that may not be killed is not waited for.
                self.has_group = self.is_running or number != signal.SIGKILL
            except OSError:
                pass
        if self.is_running and self.status is not None:
            kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM to the group, once."""
        if not self.term_sent:
            self.term_sent = True
            self.signal(signal.SIGTERM)
            # A stopped process would not handle it.
            self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """Send SIGKILL to the group."""
        self.killed, self.kill_at = True, None
        self.signal(signal.SIGKILL)

    def kill_by(self, due: float) -> None:
        """Schedule SIGKILL, unless it is due earlier."""
        if not self.killed:
            self.kill_at = due if self.kill_at is None else min(due, self.kill_at)


class GuardServer:
    """The loop of the guard process: executes the frames of one server until that ends, then kills all programs."""

    def __init__(self, descriptor: int) -> None:
        self._pid = os.getpid()
        self._poll = select.poll()
        self._link = Link(descriptor, self._poll)
        self._programs: dict[str, GuardedProcess] = {}
        self._leaders: dict[int, GuardedProcess] = {}
        self._starting: dict[int, GuardedProcess] = {}
        # Adopted children, each with the ids of the programs it may belong to.
        self._orphans: dict[int, set[str]] = {}
        self._terminated: set[int] = set()
        self._wakeup = self._set_up_signals()
        self._parent_pidfd = self._watch_parent()
        self._prctl = find_prctl()
        self._adopts = self._prctl is not None and self._prctl(PR_SET_CHILD_SUBREAPER, 1) == 0
        self._changed_signals = [int(number) for number in signal.valid_signals() if _is_not_default(number)]

    def _set_up_signals(self) -> int:
        for number in _IGNORED:
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        wakeup, wakeup_writer = os.pipe()
        os.set_blocking(wakeup, False)
        os.set_blocking(wakeup_writer, False)
        signal.set_wakeup_fd(wakeup_writer, warn_on_full_buffer=False)
        # The server started this process with all signals blocked.
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        self._poll.register(wakeup, select.POLLIN)
        return wakeup

    def _watch_parent(self) -> int:
        """Watch the server's process, because a process that it forked may hold its socket open."""
        try:
            parent = os.pidfd_open(os.getppid())
        except (AttributeError, OSError):
            return -1
        self._poll.register(parent, select.POLLIN)
        return parent

    def run(self) -> None:
        """Serve until the server has ended, then kill everything."""
        while self._step():
            pass
        self._end_all()

    def _step(self) -> bool:
        """Wait for the next event and handle it. Return False if the server has ended."""
        events = dict(self._poll.poll(self._poll_timeout()))
        if self._parent_pidfd in events:
            return False
        for descriptor in self._starting.keys() & events.keys():
            self._on_start(self._starting[descriptor])
        # Handled after the starts: a new program may get the descriptor numbers of a finished start.
        event = events.get(self._link.descriptor, 0)
        if event & select.POLLOUT:
            self._link.flush()
        if event & ~select.POLLOUT:
            frames = self._link.receive()
            if frames is None:
                return False
            for frame in frames:
                self._handle(frame)
        now = time.monotonic()
        due = [one for one in self._programs.values() if one.kill_at is not None and one.kill_at <= now]
        for program in due:
            program.kill()
        if self._wakeup in events:
            drain(self._wakeup)
        if due or self._wakeup in events:
            self._clean_up()
        return True

    def _poll_timeout(self) -> float | None:
        due = min((one.kill_at for one in self._programs.values() if one.kill_at is not None), default=None)
        return None if due is None else max(0.0, due - time.monotonic()) * 1000 + 1

    def _handle(self, frame: dict[str, Any]) -> None:
        if "argv" in frame:
            self._spawn(frame)
            return
        program = self._programs.get(frame["id"])
        if program is None:
            return
        if "number" in frame:
            program.signal(frame["number"])
        elif frame["grace"] > 0:
            program.kill_by(time.monotonic() + frame["grace"])
            program.terminate()
        elif not program.killed:
            program.kill()
            self._clean_up()

    # -- starting ------------------------------------------------------------------------------------------------------

    def _spawn(self, frame: dict[str, Any]) -> None:
        streams = self._link.next_streams()
        try:
            status, pid = self._fork(frame, streams)
        except OSError as error:
            self._link.report(id=frame["id"], failed=error.errno, step="fork")
        else:
            program = GuardedProcess(frame["id"], pid, status)
            self._programs[program.id] = self._leaders[pid] = self._starting[status] = program
            self._poll.register(status, select.POLLIN)
        finally:
            close(*streams)

    def _fork(self, frame: dict[str, Any], streams: list[int]) -> tuple[int, int]:
        """Return the read end of the pipe that reports the start, and the pid."""
        if len(streams) < 3:
            raise OSError(errno.EMFILE, "no room for its streams")
        status_reader, status = os.pipe()
        # A signal sent before exec stays pending for the program; unblocked, it would be ignored here.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            pid = os.fork()
            if not pid:
                exec_program(frame, streams, status, lambda: self._prepare(streams, status), self._changed_signals)
        except OSError:
            os.close(status_reader)
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            os.close(status)
        return status_reader, pid

    def _prepare(self, streams: list[int], status: int) -> None:
        """In the child: tie its life to the guard, and close descriptors that others wait to see closed."""
        if self._prctl is not None:
            self._prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != self._pid:
                os._exit(127)
        others = {self._link.descriptor, *self._link.queued_descriptors(), *self._starting}
        close(*others.difference(streams, (status,)))

    def _on_start(self, program: GuardedProcess) -> None:
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

    def _clean_up(self) -> None:
        """Reap children, and end what exited programs have left behind."""
        self._reap()
        if all(one.is_running for one in self._programs.values()):
            return
        self._find_orphans()
        while has_zombie():
            # While children exit, /proc may list only some of the others.
            self._reap()
            self._find_orphans()
        for program in list(self._programs.values()):
            if not program.is_running:
                self._end_leftovers(program)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            self._orphans.pop(pid, None)
            self._terminated.discard(pid)
            program = self._leaders.pop(pid, None)
            if program is not None:
                self._on_exit(program, os.waitstatus_to_exitcode(status))

    def _on_exit(self, program: GuardedProcess, code: int) -> None:
        if program.status is not None:
            self._on_start(program)
        program.is_running = False
        if program.failed:
            del self._programs[program.id]
            return
        self._link.report(id=program.id, exit=code)
        program.kill_by(time.monotonic() + _LEFTOVER_SECONDS)

    def _end_leftovers(self, program: GuardedProcess) -> None:
        """End the remaining processes of an exited program, and report when there are none."""
        # The id of an empty group may be reused.
        program.has_group = program.has_group and self._group_exists(program)
        if program.has_group and program.killed:
            program.signal(signal.SIGKILL)
        elif program.has_group:
            program.terminate()
        leftovers = [pid for pid, owners in self._orphans.items() if owners == {program.id}]
        for pid in leftovers:
            if not program.killed:
                self._terminate_orphan(pid, program)
            elif not kill(pid, signal.SIGKILL):
                # What cannot be ended is not waited for.
                self._orphans[pid] = set()
        if not program.has_group and not any(self._orphans[pid] for pid in leftovers):
            self._link.report(id=program.id, clean=True)
            del self._programs[program.id]
            for owners in self._orphans.values():
                owners.discard(program.id)

    def _terminate_orphan(self, pid: int, program: GuardedProcess) -> None:
        """Send SIGTERM to an orphan, once, unless it has got it as a member of the group."""
        if pid not in self._terminated:
            self._terminated.add(pid)
            if not program.has_group or group_of(pid) != program.pid:
                kill(pid, signal.SIGTERM)
                kill(pid, signal.SIGCONT)

    def _group_exists(self, program: GuardedProcess) -> bool:
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

    def _find_orphans(self) -> None:
        """Record new adopted children and the programs they belong to."""
        for pid in children(self._pid):
            if pid not in self._leaders and pid not in self._orphans:
                self._orphans[pid] = self._owners(pid)

    def _owners(self, pid: int) -> set[str]:
        """Return the id of the program that a process belongs to; all possible ids if that cannot be determined."""
        for name in read_file(f"/proc/{pid}/environ").split(b"\0"):
            if (
                name.startswith(_ID_PREFIX)
                and (program_id := name[len(_ID_PREFIX) :].decode("latin-1")) in self._programs
            ):
                return {program_id}
        session = session_of(pid)
        return {one.id for one in self._programs.values() if one.pid == session} or set(self._programs)

    def _end_all(self) -> None:
        """Kill all descendants until none is left, or the time is up."""
        until = time.monotonic() + _LAST_SECONDS
        while time.monotonic() < until:
            for program in self._programs.values():
                program.has_group = program.has_group and (program.is_running or self._group_exists(program))
                program.signal(signal.SIGKILL)
            for pid in descendants(self._pid):
                kill(pid, signal.SIGKILL)
            self._reap()
            if not self._leaders and not has_child():
                return
            select.select([self._wakeup], [], [], 0.05)
            drain(self._wakeup)


def _is_not_default(number: int) -> bool:
    return signal.getsignal(number) not in (signal.SIG_DFL, None)


def main(descriptor: int, open_files: int) -> None:
    """Run the guard on a socket until the server ends; each program may have `open_files` files open."""
    # The programs inherit both limits; the server itself may have more files open.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    GuardServer(descriptor).run()
