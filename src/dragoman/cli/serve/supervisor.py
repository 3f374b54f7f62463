"""`serve --workers N`: starts N processes that serve on one port, and starts again what dies.

This process imports nothing of the user's. It reserves the port; each worker binds a socket of its own to it, and the
kernel spreads the connections over them. The only connections that it accepts itself are those to the metrics of all.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait
from typing import TYPE_CHECKING

from dragoman.cli.consoles import ConsoleFiles
from dragoman.cli.printing import say
from dragoman.cli.serve.command import announce
from dragoman.cli.serve.slot import WorkerProcess, WorkerSlot
from dragoman.cli.serve.worker import PortGrant, PortRequest, WorkerReady
from dragoman.cli.serve.worker_metrics import SupervisorMetrics
from dragoman.console.access import new_token
from dragoman.model.error import ConfigError
from dragoman.server.http.cross_site import CrossSiteCheck
from dragoman.server.listen.port import SharedPort
from dragoman.server.listen.shutdown import stop_signals
from dragoman.telemetry.logs import configure

if TYPE_CHECKING:
    from dragoman.cli.serve.options import ServeArguments
    from dragoman.server.config.settings import Settings

logger = logging.getLogger("dragoman.server")

# How many ids of ended processes are kept for those that are started.
_MAX_ENDED = 64


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
        self._ports: dict[tuple[str, str, int], SharedPort] = {}
        self._metrics = SupervisorMetrics()
        self._consoles = ConsoleFiles()
        self._console_token = new_token()
        self._ended: deque[int] = deque(maxlen=_MAX_ENDED)
        self._lines: tuple[str, ...] = ()
        self._is_announced = False
        self._restarting: list[WorkerSlot] = []  # those that a SIGHUP restarts, the current one first
        self._is_stopping = self._is_interrupted = False
        self._exit_code = 0
        self._terminal = _TerminalCheck()
        configure(settings.log, settings.log_level, quiet=self._quiet)

    def run(self) -> None:
        """Serve until SIGTERM, or until Ctrl-C, which raises KeyboardInterrupt.

        Raises:
            SystemExit: a worker did not start; it has printed why.
        """
        received: deque[int] = deque()
        with _signals(received) as wakeup:
            try:
                self._start(self._slots[0])
                while self._processes or not self._is_stopping:
                    self._wait(wakeup)
                    while received:
                        self._on_signal(received.popleft())
                    for slot in self._slots:
                        self._attend(slot)
                    if os.getpid() == 1:
                        self._reap_orphans()
            finally:
                self._end_all()
        if self._is_interrupted:
            raise KeyboardInterrupt
        if self._exit_code:
            sys.exit(self._exit_code)

    @property
    def _processes(self) -> list[WorkerProcess]:
        return [process for slot in self._slots for process in slot.processes]

    def _wait(self, wakeup: socket.socket) -> None:
        """Wait until a worker has sent something or ended, a signal has come, or something is due."""
        dues = [slot.start_at for slot in self._slots] + [process.kill_at for process in self._processes]
        due = min((each for each in dues if each is not None), default=None)
        pipes = [pipe for process in self._processes for pipe in process.pipes]
        wait([wakeup, *pipes], None if due is None else max(0.0, due - time.monotonic()))
        with suppress(BlockingIOError):
            wakeup.recv(4096)

    def _reap_orphans(self) -> None:
        """Reap what dead workers have left behind. In a container, the first process is the parent of all orphans."""
        ours = {process.pid for process in self._processes}
        with suppress(ChildProcessError):
            while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and ended.si_pid not in ours:
                os.waitpid(ended.si_pid, os.WNOHANG)

    def _end_all(self) -> None:
        """Leave no process behind, whatever has happened."""
        for process in self._processes:
            process.stop()
        for process in self._processes:
            process.join()
        for port in self._ports.values():
            port.close()
        self._metrics.close()
        self._consoles.close()

    # -- signals -------------------------------------------------------------------------------------------------------

    def _on_signal(self, number: int) -> None:
        if number == signal.SIGHUP and not self._is_stopping:
            self._hang_up()
        elif number == signal.SIGINT and self._is_stopping:  # once more: at once
            self._is_interrupted = True
            for process in self._processes:
                process.kill()
        elif number in (signal.SIGINT, signal.SIGTERM):
            self._is_interrupted = self._is_interrupted or number == signal.SIGINT
            self._stop()

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
                process.stop(all_stop=True)

    # -- workers -------------------------------------------------------------------------------------------------------

    def _start(self, slot: WorkerSlot) -> None:
        slot.start_at = None
        ended = tuple(self._ended)
        process = WorkerProcess(self._arguments, slot.number, len(self._slots), ended, self._console_token)
        if slot.process is None:
            slot.process = process
        else:
            slot.replacement = process

    def _attend(self, slot: WorkerSlot) -> None:
        for process in slot.processes:
            for message in process.messages():
                if isinstance(message, PortRequest):
                    self._on_port_request(slot, process, message)
                else:
                    self._on_ready(slot, process, message)
        now = time.monotonic()
        for process in slot.processes:
            if process.exit_code is not None:
                process.join()
                self._ended.append(process.node_id)
                self._metrics.end(process.pid)
                self._on_ended(slot, process, process.exit_code)
            elif process.kill_at is not None and process.kill_at <= now:
                logger.error("worker %d does not stop: it is killed", slot.number, extra={"worker": slot.number})
                process.kill()
        if slot.start_at is not None and slot.start_at <= now:
            self._start(slot)

    def _on_port_request(self, slot: WorkerSlot, process: WorkerProcess, request: PortRequest) -> None:
        process.request = request
        configure(request.log, request.log_level, quiet=self._quiet)
        if process is slot.replacement:
            assert slot.process is not None
            slot.process.stop()  # the replacement goes on when this one has ended
        else:
            self._grant_port(process, request)

    def _grant_port(self, process: WorkerProcess, request: PortRequest) -> None:
        """Let a worker open the store and listen."""
        try:
            for asked in request.ports:
                if asked not in self._ports:
                    flag, host, port = asked
                    self._ports[asked] = SharedPort(host, port, flag=flag)
            metrics = None
            if request.metrics is not None:
                hosts = CrossSiteCheck(request.url, request.allow_hosts, (), open_list=False)
                metrics = self._metrics.grant(process.pid, request.metrics, hosts)
        except ConfigError as error:
            process.answer(error)
        else:
            process.answer(PortGrant(tuple(self._ports[asked].number for asked in request.ports), metrics))

    def _on_ready(self, slot: WorkerSlot, process: WorkerProcess, message: WorkerReady) -> None:
        process.ready_at = time.monotonic()
        if not self._is_announced:
            self._lines = self._lines or message.lines
            for other in self._slots:
                if not other.processes and not self._is_stopping:
                    self._start(other)
            if all(each.process is not None and each.process.ready_at is not None for each in self._slots):
                self._is_announced = True
                if message.console is not None:
                    self._consoles.add(message.console)
                announce(self._lines)
        if slot in self._restarting[:1] and slot.replacement is None:
            self._restarting.pop(0)
            self._restart_next()

    def _restart_next(self) -> None:
        """Replace the next worker that a SIGHUP has asked for."""
        if not self._restarting:
            logger.info("all workers are restarted")
        elif self._restarting[0].replacement is None:
            self._start(self._restarting[0])

    def _on_ended(self, slot: WorkerSlot, process: WorkerProcess, code: int) -> None:
        if process is slot.replacement:
            slot.replacement = None
            self._restarting.clear()
            if not self._is_stopping:
                self._log(logging.ERROR, slot, process, "before it was ready: the workers are not restarted")
            return
        slot.process, slot.replacement = slot.replacement, None
        if self._is_stopping:
            return
        if not self._is_announced:
            if code < 0:
                say(f"dragoman: worker {slot.number} {process.end} before it was ready")
            self._exit_code = code if code > 0 else 1
            self._stop()
        elif slot.process is not None:
            if process.kill_at is None:
                self._log(logging.WARNING, slot, process, "while its replacement was being started")
            if slot.process.request is not None:
                self._grant_port(slot.process, slot.process.request)
        else:
            delay = slot.backoff.after(process.served)
            slot.start_at = time.monotonic() + delay
            self._log(logging.WARNING, slot, process, f"and is started again{f' in {delay:g} s' if delay else ''}")

    def _log(self, level: int, slot: WorkerSlot, process: WorkerProcess, consequence: str) -> None:
        extra = {"worker": slot.number, "pid": process.pid, "exit_code": process.exit_code}
        logger.log(level, "worker %d %s %s", slot.number, process.end, consequence, extra=extra)


@contextmanager
def _signals(received: deque[int]) -> Generator[socket.socket]:
    """Collect signals, and yield a socket that can be read when one has come."""

    def receive(number: int, _: object) -> None:
        received.append(number)

    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    previous_wakeup = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    numbers = (*stop_signals(), signal.SIGHUP, signal.SIGCHLD)
    previous_handlers = {number: signal.signal(number, receive) for number in numbers}
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
