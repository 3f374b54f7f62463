"""The place of one worker: its process, the one that will replace it, and when it is started again."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from dragoman.cli.serve.child import ChildProcess
from dragoman.cli.serve.worker import ServerShutdown, Worker
from dragoman.server.listen.shutdown import FINAL_SECONDS
from dragoman.stores.postgres.lease import new_node_id

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from dragoman.cli.serve.options import ServeArguments
    from dragoman.cli.serve.worker import PortGrant, PortRequest, WorkerReady
    from dragoman.model.error import ConfigError

# The delays before a worker is started again, in seconds: none the first time, then these, doubled up to the last.
FIRST_DELAY, LAST_DELAY = 1.0, 30.0
# A worker that has served for so long, in seconds, has not failed in a row.
WELL_SECONDS = 10.0
# A worker that does not end within its own deadline is killed after so many more seconds.
KILL_SECONDS = 5.0


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
    """One process of a worker, from its start to its end, as its supervisor sees it.

    `request` is what it asks its port for, once it has imported the code; `kill_at` is when it is killed, once it was
    asked to stop.
    """

    def __init__(
        self, arguments: ServeArguments, number: int, count: int, ended: tuple[int, ...], console_token: str
    ) -> None:
        self.node_id = new_node_id()
        self._child = ChildProcess(arguments, partial(Worker, number, count, self.node_id, ended, console_token))
        self.request: PortRequest | None = None
        self.ready_at: float | None = None
        self.kill_at: float | None = None

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._child.pid

    @property
    def exit_code(self) -> int | None:
        """How it has ended: its exit code, or the negative number of a signal; None while it runs."""
        return self._child.exit_code

    @property
    def pipes(self) -> list[Connection]:
        """The pipe to it, as long as it is open: it can be read when it has sent something."""
        return [] if self._child.pipe.closed else [self._child.pipe]

    @property
    def served(self) -> float:
        """For how many seconds it has been ready."""
        return 0.0 if self.ready_at is None else time.monotonic() - self.ready_at

    def messages(self) -> Iterator[PortRequest | WorkerReady]:
        """Yield what it has sent."""
        with suppress(EOFError, OSError):
            while self.pipes and self._child.pipe.poll():
                yield self._child.pipe.recv()
            return
        self._child.pipe.close()  # it has ended, or is about to

    def answer(self, answer: PortGrant | ConfigError) -> None:
        """Answer its request for ports."""
        self._send(answer)

    def stop(self, *, all_stop: bool = False) -> None:
        """Ask it to stop, and kill it if it takes much longer than it may. Other workers go on, unless `all_stop`."""
        if all_stop:
            self._send(ServerShutdown())
        if self.kill_at is None:
            seconds = FINAL_SECONDS if self.request is None else self.request.stop_seconds
            self.kill_at = time.monotonic() + seconds + KILL_SECONDS
            self._child.terminate()

    def kill(self) -> None:
        """End it at once."""
        self.kill_at = time.monotonic() + KILL_SECONDS
        self._child.kill()

    def join(self) -> None:
        """Wait until it has ended."""
        self._child.join()

    def _send(self, message: object) -> None:
        with suppress(OSError):  # it has ended
            self._child.pipe.send(message)

    @property
    def end(self) -> str:
        """Say how it has ended."""
        code = self.exit_code or 0
        if code >= 0:
            return f"ended with exit code {code}"
        try:
            return f"was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"was killed by signal {-code}"


class WorkerSlot:
    """The place of one worker. A replacement imports the code, and goes on when the process before it has ended."""

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
