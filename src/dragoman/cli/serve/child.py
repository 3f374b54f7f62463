"""A process that serves agents for another one: a fresh one, with a pipe to its parent, and it ends with it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    import socket
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

    from dragoman.cli.serve.options import ServeArguments
    from dragoman.console.access import ConsoleAddress
    from dragoman.server.config.settings import Settings


class ServeChild(Protocol):
    """What a process that serves for a parent does differently. It is made by the parent and sent to the process."""

    @property
    def worker(self) -> int | None:
        """The number of this process, if it is one of several."""
        ...

    @property
    def console_token(self) -> str:
        """The token of the console, unless the settings have one: all processes of a parent have the same."""
        ...

    def prepare(self) -> None:
        """Prepare the new process, before anything is imported."""
        ...

    def adapt(self, settings: Settings) -> Settings:
        """Return the settings with which to serve. Raises ConfigError when the parent does not agree."""
        ...

    def listener_of(self, host: str, port: int) -> socket.socket:
        """Return a socket for an address. Raises ConfigError when it cannot be listened on."""
        ...

    def hands_over(self) -> bool:
        """This process begins to stop. Return whether other processes accept connections at its address from now on."""
        ...

    def orphaned(self) -> None:
        """The parent is gone, and this process begins to stop. Called in a thread of its own."""
        ...

    def on_console(self, address: ConsoleAddress) -> None:
        """The server is ready, and this is where its console is."""
        ...

    def announce(self, lines: Sequence[str]) -> None:
        """The server is ready: print these lines for the user, where they are new."""
        ...


class ChildProcess:
    """A process that serves for this one, and the pipe to it. It inherits nothing of this one but its arguments."""

    def __init__(self, arguments: ServeArguments, child_of: Callable[[Connection], ServeChild]) -> None:
        """Start it; `child_of` makes what is sent to it, with its end of the pipe."""
        spawn = multiprocessing.get_context("spawn")
        self.pipe, theirs = cast("tuple[Connection, Connection]", spawn.Pipe())
        self._process: SpawnProcess = spawn.Process(
            target=serve_in_child, args=(arguments, child_of(theirs)), name="dragoman-serve"
        )
        with _interrupts_blocked():
            self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process.pid is not None
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """How it has ended: its exit code, or the negative number of a signal; None while it runs."""
        return self._process.exitcode

    def terminate(self) -> None:
        """Ask it to stop. One that is stopping because of Ctrl-C ignores it. On Windows it ends at once."""
        self._process.terminate()

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    def join(self) -> None:
        """Wait until it has ended, and close the pipe."""
        self._process.join()
        self.pipe.close()


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


def serve_in_child(arguments: ServeArguments, child: ServeChild) -> None:
    """Serve for the parent process, and end with it. Exits as `dragoman` does."""
    from dragoman.cli.main import run_and_exit

    threading.Thread(target=_end_with_parent, args=(child,), name="dragoman-parent", daemon=True).start()
    child.prepare()
    run_and_exit(partial(_serve, arguments, child))


def _serve(arguments: ServeArguments, child: ServeChild) -> None:
    from dragoman.cli.serve.command import serve_agents

    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    serve_agents(arguments, child)


def _end_with_parent(child: ServeChild) -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()  # returns when the parent's end of a pipe is closed, however the parent has ended
    os.kill(os.getpid(), signal.SIGTERM)
    child.orphaned()
