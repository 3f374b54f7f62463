"""`serve --reload`: a child process serves, and is replaced when a file changes.

This process imports nothing of the user's. It watches the files and owns the listening socket, so that callers who come
during a restart wait in its backlog instead of being refused, and port 0 keeps its port.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import reduction
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from dragoman.cli.printing import StyledText, say
from dragoman.cli.serve.watched import watched_files
from dragoman.model.error import ConfigError
from dragoman.server.listen.serve import bind

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

    from dragoman.cli.serve.options import ServeArguments

# How often the child is looked after while no file changes, in milliseconds.
_POLL = 50
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Reloader:
    """Runs a child that serves, and replaces it when a file changes, until a signal."""

    def __init__(self, arguments: ServeArguments, cwd: Path) -> None:
        self._arguments = arguments
        self._cwd = cwd
        self._spawn = multiprocessing.get_context("spawn")
        self._child: SpawnProcess | None = None
        self._pipe: Connection | None = None
        self._address: tuple[str, int] | None = None
        self._listener: socket.socket | None = None
        self._is_waiting = False
        self._announced: set[str] = set()
        self._cannot_listen = False
        self._stopped = threading.Event()
        self._received: list[int] = []

    def run(self) -> None:
        """Serve until SIGTERM, or until Ctrl-C, which raises KeyboardInterrupt.

        Raises:
            ConfigError: the files cannot be watched.
            SystemExit: the address cannot be listened on.
        """
        previous_handlers = {number: signal.signal(number, self._receive) for number in _SIGNALS}
        try:
            while not self._stopped.is_set():
                changed = self._serve_until_changed()
                if changed:
                    say(f"changed: {', '.join(self._short(path) for path in changed)}; restarting")
                    self._end_child()
        finally:
            self._end_child()
            if self._listener is not None:
                self._listener.close()
            for number, handler in previous_handlers.items():
                signal.signal(number, handler)
        if signal.SIGINT in self._received:
            raise KeyboardInterrupt

    def _receive(self, number: int, _: object) -> None:
        if self._received and number == signal.SIGINT and self._child is not None:
            self._child.kill()
        self._received.append(number)
        self._stopped.set()

    def _short(self, path: Path) -> str:
        return str(path.relative_to(self._cwd)) if path.is_relative_to(self._cwd) else str(path)

    def _serve_until_changed(self) -> list[Path]:
        from watchfiles import watch

        files = watched_files(self._arguments, self._cwd)
        changes_of = watch(
            *files.paths,
            watch_filter=None,  # so that changes that do not count do not keep us from looking after the child
            stop_event=self._stopped,
            rust_timeout=_POLL,
            debounce=4 * _POLL,  # stores write all the time
            step=_POLL,
            yield_on_timeout=True,
        )
        try:
            for changes in changes_of:
                if self._child is None and not self._is_waiting:
                    self._start_child()  # only now: no change is missed
                self._attend_child()
                changed = files.changed(path for _, path in changes)
                if changed:
                    return changed
        except OSError as error:
            folders = ", ".join(self._short(path) or "." for path in files.paths)
            raise ConfigError(f"--reload cannot watch {folders}: {error}") from error
        return []

    def _start_child(self) -> None:
        self._pipe, theirs = cast("tuple[Connection, Connection]", self._spawn.Pipe())
        arguments = (self._arguments, ReloadChild(theirs, frozenset(self._announced)))
        child = self._spawn.Process(target=serve_in_child, args=arguments, name="dragoman-serve")
        with _interrupts_blocked():
            child.start()
        theirs.close()
        self._child = child

    def _attend_child(self) -> None:
        """Hand the child its socket when it asks for one, and notice when it has ended."""
        child, pipe = self._child, self._pipe
        if child is None or pipe is None:
            return
        with suppress(EOFError, OSError):
            while pipe.poll():
                message: tuple[str, int] | str = pipe.recv()
                if isinstance(message, str):
                    self._announced.add(message)
                else:
                    self._hand_listener(*message)
        if child.is_alive():
            return
        self._end_child()
        if self._cannot_listen and not self._announced:
            sys.exit(child.exitcode)  # no change of a file would help
        self._is_waiting = True
        say("waiting for a change")

    def _hand_listener(self, host: str, port: int) -> None:
        assert self._pipe is not None and self._child is not None and self._child.pid is not None
        try:
            if self._listener is None or self._address != (host, port):
                listener = bind(host, port)
                if self._listener is not None:
                    self._listener.close()
                self._listener, self._address = listener, (host, port)
        except ConfigError as error:
            self._cannot_listen = True
            self._pipe.send(error)
            return
        self._pipe.send(None)
        if sys.platform == "win32":
            self._pipe.send_bytes(self._listener.share(self._child.pid))
        else:
            reduction.send_handle(self._pipe, self._listener.fileno(), self._child.pid)

    def _end_child(self) -> None:
        self._is_waiting = False
        if self._child is None:
            return
        # A child that is stopping because of Ctrl-C ignores it. On Windows it ends at once, as in a crash.
        self._child.terminate()
        self._child.join()
        self._child = None
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None


@contextmanager
def _interrupts_blocked() -> Generator[None]:
    """Block SIGINT in a child until it is ready to handle it: Python prints a traceback before that."""
    if sys.platform == "win32":
        yield
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


# -- in the child ----------------------------------------------------------------------------------------------------


class ReloadChild(NamedTuple):
    """The child's end: its connection to the parent, and the lines that were printed by earlier children."""

    pipe: Connection
    announced: frozenset[str]

    @property
    def is_restart(self) -> bool:
        """True when an earlier child has served already."""
        return bool(self.announced)

    def announce(self, line: str) -> None:
        """Print a line for the user, once for all children. Of a later one, only what is new and unindented."""
        if line in self.announced:
            if line.startswith("serving "):
                say("ready")
        elif not (self.is_restart and line.startswith(" ")):  # a line about the first one
            self.pipe.send(line)
            say(StyledText(line))

    def listener_of(self, host: str, port: int) -> socket.socket:
        """Return the parent's socket for an address. Raises ConfigError when it cannot be listened on."""
        self.pipe.send((host, port))
        error: ConfigError | None = self.pipe.recv()
        if error is not None:
            raise error
        if sys.platform == "win32":
            return socket.fromshare(self.pipe.recv_bytes())
        return socket.socket(fileno=reduction.recv_handle(self.pipe))


def serve_in_child(arguments: ServeArguments, child: ReloadChild) -> None:
    """Serve with a socket of the parent process, and end with it. Exits as `dragoman` does."""
    from dragoman.cli.main import run_and_exit

    threading.Thread(target=_end_with_parent, name="dragoman-parent", daemon=True).start()
    # Two changes within a second may leave a stale file of bytecode.
    sys.dont_write_bytecode = True
    run_and_exit(partial(_serve, arguments, child))


def _serve(arguments: ServeArguments, child: ReloadChild) -> None:
    from dragoman.cli.serve.command import serve_agents

    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    serve_agents(arguments, child)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
