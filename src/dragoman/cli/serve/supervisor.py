"""`serve --workers N`: starts N processes that serve on one port, and starts again what dies.

This process imports nothing of the user's and accepts no connection. It reserves the port; each worker binds a socket
of its own to it, and the kernel spreads the connections over them.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import wait
from typing import TYPE_CHECKING

from dragoman.cli.printing import say
from dragoman.cli.serve.child import ChildProcess
from dragoman.cli.serve.command import announce
from dragoman.cli.serve.worker import PortRequest, ServerShutdown, Worker, WorkerReady
from dragoman.model.error import ConfigError
from dragoman.server.listen.port import SharedPort, check_sharing
from dragoman.server.listen.shutdown import FINAL_SECONDS
from dragoman.stores.postgres.lease import new_node_id
from dragoman.telemetry.logs import configure

if TYPE_CHECKING:
    from dragoman.cli.serve.options import ServeArguments
    from dragoman.server.config.settings import Settings

logger = logging.getLogger("dragoman.server")

# The delays before a worker is started again, in seconds: none the first time, then these, doubled up to the last.
FIRST_DELAY, LAST_DELAY = 1.0, 30.0
# A worker that has served for so long, in seconds, has not failed in a row.
WELL_SECONDS = 10.0
# A worker that does not end within its own deadline is killed after so many more seconds.
KILL_SECONDS = 5.0
# How many ids of ended processes are kept for those that are started.
_MAX_ENDED = 64
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)


class RestartBackoff:
    """How long to wait before a worker is started again: not at all, then ever longer, until it has served well."""

    def __init__(self) -> None:
        self._failures = 0

    def after(self, served: float) -> float:
        """Return the seconds to wait for the next start, after a worker that has served for so long has ended."""
        if served >= WELL_SECONDS:
            self._failures = 0
        self._failures += 1
        return 0.0 if self._failures == 1 else min(FIRST_DELAY * 2 ** (self._failures - 2), LAST_DELAY)


class WorkerProcess:
    """One process of a worker, from its start to its end."""

    def __init__(self, arguments: ServeArguments, number: int, count: int, ended: tuple[int, ...]) -> None:
        self.node_id = node_id = new_node_id()
        self.child = ChildProcess(arguments, partial(Worker, number, count, node_id, ended))
        self.loaded: PortRequest | None = None
        self.ready_at: float | None = None
        self.killed_at: float | None = None  # set when it was asked to stop

    @property
    def served(self) -> float:
        """For how many seconds it has been ready."""
        return 0.0 if self.ready_at is None else time.monotonic() - self.ready_at

    def stop(self) -> None:
        """Ask it to stop, and kill it if it takes much longer than it may."""
        if self.killed_at is None:
            drain = 0.0 if self.loaded is None else self.loaded.drain
            self.killed_at = time.monotonic() + drain + FINAL_SECONDS + KILL_SECONDS
            self.child.terminate()

    def messages(self) -> Iterator[PortRequest | WorkerReady]:
        """Yield what it has sent."""
        with suppress(EOFError, OSError):
            while not self.child.pipe.closed and self.child.pipe.poll():
                yield self.child.pipe.recv()
            return
        self.child.pipe.close()  # it has ended, or is about to


class WorkerSlot:
    """The place of one worker: its process, and the one that will replace it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.backoff = RestartBackoff()
        self.process: WorkerProcess | None = None
        self.replacement: WorkerProcess | None = None
        self.start_at: float | None = None

    @property
    def processes(self) -> list[WorkerProcess]:
        """The processes that have not ended."""
        return [process for process in (self.process, self.replacement) if process is not None]


class WorkerSupervisor:
    """Runs several workers until a signal.

    The first worker is started alone, so that an error in the settings or the code is printed once, and the tables are
    created once. SIGHUP restarts the workers one after the other: the new process imports the code, then the old one
    stops, and the new one goes on under its name. A new process that does not get so far changes nothing.
    """

    def __init__(self, arguments: ServeArguments, settings: Settings) -> None:
        flags = {**arguments.flags, "reload": False}  # whatever the settings file says when it is read again
        self._arguments = arguments._replace(flags=flags)
        self._quiet = bool(flags["quiet"])
        self._slots = [WorkerSlot(number) for number in range(1, settings.workers + 1)]
        self._ports: dict[tuple[str, int], SharedPort] = {}
        self._ended: deque[int] = deque(maxlen=_MAX_ENDED)
        self._lines: tuple[str, ...] = ()
        self._is_announced = False
        self._restarting: list[WorkerSlot] = []  # those that a SIGHUP restarts, the current one first
        self._received: list[int] = []
        self._is_stopping = False
        self._exit_code = 0
        self._terminal = _TerminalCheck()
        configure(settings.log, settings.log_level, quiet=self._quiet)

    def run(self) -> None:
        """Serve until SIGTERM, or until Ctrl-C, which raises KeyboardInterrupt.

        Raises:
            ConfigError: the system cannot share a port.
            SystemExit: a worker did not start; it has printed why.
        """
        check_sharing()
        with _signals(self._received) as wakeup:
            try:
                self._start(self._slots[0])
                while any(slot.processes for slot in self._slots) or not self._is_stopping:
                    self._wait(wakeup)
                    self._attend_signals()
                    for slot in self._slots:
                        self._attend(slot)
                    if os.getpid() == 1:
                        self._reap_orphans()
            finally:
                self._end_all()
        if signal.SIGINT in self._received:
            raise KeyboardInterrupt
        if self._exit_code:
            sys.exit(self._exit_code)

    def _wait(self, wakeup: socket.socket) -> None:
        """Wait until a worker has sent something or ended, a signal has come, or something is due."""
        processes = [process for slot in self._slots for process in slot.processes]
        dues = [slot.start_at for slot in self._slots] + [process.killed_at for process in processes]
        due = min((each for each in dues if each is not None), default=None)
        pipes = [process.child.pipe for process in processes if not process.child.pipe.closed]
        wait([wakeup, *pipes], None if due is None else max(0.0, due - time.monotonic()))
        with suppress(BlockingIOError):
            wakeup.recv(4096)

    def _reap_orphans(self) -> None:
        """Reap what dead workers have left behind. In a container, the first process is the parent of all orphans."""
        ours = {process.child.pid for slot in self._slots for process in slot.processes}
        with suppress(ChildProcessError):
            while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and ended.si_pid not in ours:
                os.waitpid(ended.si_pid, os.WNOHANG)

    def _end_all(self) -> None:
        """Leave no process behind, whatever has happened."""
        for slot in self._slots:
            for process in slot.processes:
                process.child.terminate()
                process.child.join()
        for port in self._ports.values():
            port.close()

    # -- signals -------------------------------------------------------------------------------------------------------

    def _attend_signals(self) -> None:
        received = [number for number in self._received if number != signal.SIGCHLD]
        self._received[:] = [number for number in received if number != signal.SIGHUP]
        if signal.SIGHUP in received and not self._is_stopping:
            self._hang_up()
        if self._received:
            self._stop()
        if signal.SIGINT in self._received[1:]:  # once more: at once
            for slot in self._slots:
                for process in slot.processes:
                    process.child.kill()

    def _hang_up(self) -> None:
        if self._terminal.is_gone:
            if not self._terminal.is_ignored:
                self._stop()
        elif not self._is_announced:
            logger.warning("SIGHUP: the workers are still being started")
        else:
            logger.info("SIGHUP: the workers are restarted, one after the other")
            # A restart that is under way is finished with the code that it has begun with.
            is_idle, self._restarting = not self._restarting, [*self._restarting[:1], *self._slots]
            if is_idle:
                self._restart_next()

    def _stop(self) -> None:
        self._is_stopping = True
        self._restarting.clear()
        for slot in self._slots:
            slot.start_at = None
            for process in slot.processes:
                with suppress(OSError):  # it has ended
                    process.child.pipe.send(ServerShutdown())
                process.stop()

    # -- workers -------------------------------------------------------------------------------------------------------

    def _start(self, slot: WorkerSlot) -> WorkerProcess:
        slot.start_at = None
        process = WorkerProcess(self._arguments, slot.number, len(self._slots), tuple(self._ended))
        if slot.process is None:
            slot.process = process
        else:
            slot.replacement = process
        return process

    def _attend(self, slot: WorkerSlot) -> None:
        for process in slot.processes:
            for message in process.messages():
                if isinstance(message, PortRequest):
                    self._on_port_request(slot, process, message)
                else:
                    self._on_ready(slot, process, message)
        now = time.monotonic()
        for process in slot.processes:
            if process.child.exit_code is not None:
                process.child.join()
                self._ended.append(process.node_id)
                self._on_ended(slot, process, process.child.exit_code)
            elif process.killed_at is not None and process.killed_at <= now:
                logger.error("worker %d does not stop: it is killed", slot.number, extra={"worker": slot.number})
                process.killed_at = now + KILL_SECONDS
                process.child.kill()
        if slot.start_at is not None and slot.start_at <= now:
            self._start(slot)

    def _on_port_request(self, slot: WorkerSlot, process: WorkerProcess, message: PortRequest) -> None:
        process.loaded = message
        configure(message.log, message.log_level, quiet=self._quiet)
        if process is slot.replacement:
            assert slot.process is not None
            slot.process.stop()  # the replacement goes on when this one has ended
        else:
            self._grant_port(process)

    def _grant_port(self, process: WorkerProcess) -> None:
        """Let a worker open the store and listen."""
        assert process.loaded is not None
        address = process.loaded.host, process.loaded.port
        try:
            if address not in self._ports:
                self._ports[address] = SharedPort(*address)
            answer: int | ConfigError = self._ports[address].number
        except ConfigError as error:
            answer = error
        with suppress(OSError):  # it has ended
            process.child.pipe.send(answer)

    def _on_ready(self, slot: WorkerSlot, process: WorkerProcess, message: WorkerReady) -> None:
        process.ready_at = time.monotonic()
        if not self._is_announced:
            self._lines = self._lines or message.lines
            for other in self._slots:
                if not other.processes and not self._is_stopping:
                    self._start(other)
            if all(each.process is not None and each.process.ready_at is not None for each in self._slots):
                self._is_announced = True
                announce(self._lines)
        if slot in self._restarting[:1] and slot.replacement is None:
            self._restarting.pop(0)
            self._restart_next()

    def _restart_next(self) -> None:
        """Replace the next worker that a SIGHUP has asked for."""
        if not self._restarting:
            logger.info("all workers are restarted")
        elif not self._restarting[0].replacement:
            self._start(self._restarting[0])

    def _on_ended(self, slot: WorkerSlot, process: WorkerProcess, code: int) -> None:
        if process is slot.replacement:
            slot.replacement = None
            self._restarting.clear()
            if not self._is_stopping:
                self._log(
                    logging.ERROR, slot, process, f"{_how(code)} before it was ready: the workers are not restarted"
                )
            return
        slot.process, slot.replacement = slot.replacement, None
        if self._is_stopping:
            return
        if not self._is_announced:
            if code < 0:
                say(f"dragoman: worker {slot.number} {_how(code)} before it was ready")
            self._exit_code = code if code > 0 else 1
            self._stop()
        elif slot.process is not None:
            if process.killed_at is None:
                self._log(logging.WARNING, slot, process, f"{_how(code)}: its replacement goes on")
            if slot.process.loaded is not None:
                self._grant_port(slot.process)
        else:
            delay = slot.backoff.after(process.served)
            slot.start_at = time.monotonic() + delay
            when = f"again in {delay:g} s" if delay else "again"
            self._log(logging.WARNING, slot, process, f"{_how(code)}: it is started {when}")

    def _log(self, level: int, slot: WorkerSlot, process: WorkerProcess, text: str) -> None:
        extra = {"worker": slot.number, "pid": process.child.pid, "exit_code": process.child.exit_code}
        logger.log(level, "worker %d %s", slot.number, text, extra=extra)


def _how(code: int) -> str:
    """Say how a process has ended."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


@contextmanager
def _signals(received: list[int]) -> Generator[socket.socket]:
    """Collect signals, and yield a socket that can be read when one has come."""

    def receive(number: int, _: object) -> None:
        received.append(number)

    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    previous_wakeup = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    previous_handlers = {number: signal.signal(number, receive) for number in _SIGNALS}
    try:
        yield ours
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(previous_wakeup)
        ours.close()
        theirs.close()


class _TerminalCheck:
    """Tells whether a SIGHUP means that the terminal was closed, which must end a server that was started in one."""

    def __init__(self) -> None:
        self._was_there = _has_terminal()
        self.is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # as `nohup` does

    @property
    def is_gone(self) -> bool:
        """True when there was a terminal at the start, and there is none now."""
        return self._was_there and not _has_terminal()


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
