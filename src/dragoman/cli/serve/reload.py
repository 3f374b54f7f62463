"""`serve --reload`: a child process serves, and is replaced when a file changes.

This process imports nothing of the user's. It watches the files and owns the listening socket, so that callers who come
during a restart wait in its backlog instead of being refused, and port 0 keeps its port.
"""

from __future__ import annotations

import signal
import socket
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from multiprocessing import reduction
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from dragoman.cli.consoles import ConsoleFiles
from dragoman.cli.printing import StyledText, say
from dragoman.cli.serve.child import ChildProcess
from dragoman.cli.serve.watched import watched_files
from dragoman.console.access import ConsoleAddress, new_token
from dragoman.model.error import ConfigError
from dragoman.server.listen.port import bind
from dragoman.server.listen.shutdown import stop_signals

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from dragoman.cli.serve.options import ServeArguments
    from dragoman.server.config.settings import Settings

# How often the child is looked after while no file changes, in milliseconds.
_POLL = 50


class Reloader:
    """Runs a child that serves, and replaces it when a file changes, until a signal."""

    def __init__(self, arguments: ServeArguments, cwd: Path) -> None:
        self._arguments = arguments
        self._cwd = cwd
        self._child: ChildProcess | None = None
        self._address: tuple[str, int] | None = None
        self._listener: socket.socket | None = None
        self._is_waiting = False
        self._announced: set[str] = set()
        self._cannot_listen = False
        self._consoles = ConsoleFiles()
        self._console_token = new_token()  # an open page goes on after a restart
        self._stopped = threading.Event()
        self._received: list[int] = []

    def run(self) -> None:
        """Serve until SIGTERM, or until Ctrl-C, which raises KeyboardInterrupt.

        Raises:
            ConfigError: the files cannot be watched.
            SystemExit: the address cannot be listened on.
        """
        previous_handlers = {number: signal.signal(number, self._receive) for number in stop_signals()}
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
            self._consoles.close()
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
                    # Only now: no change is missed.
                    announced = frozenset(self._announced)
                    self._child = ChildProcess(self._arguments, partial(ReloadChild, announced, self._console_token))
                self._attend_child()
                changed = files.changed(path for _, path in changes)
                if changed:
                    return changed
        except OSError as error:
            folders = ", ".join(self._short(path) or "." for path in files.paths)
            raise ConfigError(f"--reload cannot watch {folders}: {error}") from error
        return []

    def _attend_child(self) -> None:
        """Hand the child its socket when it asks for one, and notice when it has ended."""
        child = self._child
        if child is None:
            return
        with suppress(EOFError, OSError):
            while child.pipe.poll():
                message: ConsoleAddress | tuple[str, int] | str = child.pipe.recv()
                if isinstance(message, str):
                    self._announced.add(message)
                elif isinstance(message, ConsoleAddress):
                    self._consoles.add(message)
                else:
                    self._hand_listener(child, *message)
        if child.exit_code is None:
            return
        self._end_child()
        if self._cannot_listen and not self._announced:
            sys.exit(child.exit_code)  # no change of a file would help
        self._is_waiting = True
        say("waiting for a change")

    def _hand_listener(self, child: ChildProcess, host: str, port: int) -> None:
        try:
            if self._listener is None or self._address != (host, port):
                listener = bind(host, port)
                if self._listener is not None:
                    self._listener.close()
                self._listener, self._address = listener, (host, port)
        except ConfigError as error:
            self._cannot_listen = True
            child.pipe.send(error)
            return
        child.pipe.send(None)
        if sys.platform == "win32":
            child.pipe.send_bytes(self._listener.share(child.pid))
        else:
            reduction.send_handle(child.pipe, self._listener.fileno(), child.pid)

    def _end_child(self) -> None:
        self._is_waiting = False
        if self._child is None:
            return
        self._child.terminate()
        self._child.join()
        self._child = None


# -- in the child ----------------------------------------------------------------------------------------------------


class ReloadChild(NamedTuple):
    """The child's end: the lines that were printed by earlier children, and its connection to the parent."""

    announced: frozenset[str]
    console_token: str
    pipe: Connection

    @property
    def worker(self) -> None:
        """It is alone."""
        return

    @property
    def is_restart(self) -> bool:
        """True when an earlier child has served already."""
        return bool(self.announced)

    def prepare(self) -> None:
        """Write no bytecode: two changes within a second may leave a stale file."""
        sys.dont_write_bytecode = True

    def adapt(self, settings: Settings) -> Settings:
        """Return the settings of a server that reloads."""
        return msgspec.structs.replace(settings, reload=True)

    def hands_over(self) -> bool:
        """Return True: new callers wait for the next child."""
        return True

    def orphaned(self) -> None:
        """Do nothing: this process is the last one that has the socket."""

    def on_console(self, address: ConsoleAddress) -> None:
        """Tell the parent, which outlives this process."""
        self.pipe.send(address)

    def announce(self, lines: Sequence[str]) -> None:
        """Print lines for the user, each once for all children. Of a later one, only what is new and unindented."""
        for line in lines:
            self._announce(line)

    def _announce(self, line: str) -> None:
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
