"""One of several processes that serve on one port, as its supervisor has started it; and what it sends to that one."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING, NamedTuple

from dragoman.cli.serve.worker_metrics import MetricsGrant
from dragoman.model.error import ConfigError
from dragoman.net.postgres import is_postgres_url
from dragoman.server.config.settings import Settings, WorkerSettings
from dragoman.server.config.values import ListenAddress
from dragoman.server.listen.port import ORPHAN_SECONDS, bind_shared
from dragoman.telemetry.metrics.folder import remove_file

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from pathlib import Path

    from dragoman.console.access import ConsoleAddress

logger = logging.getLogger("dragoman.server")


class PortRequest(NamedTuple):
    """A worker has imported what it serves, and asks for its ports. The answer is a PortGrant, or a ConfigError.

    `ports` are the flags that have set them, with host and number. `stop_seconds` is the longest that it may take to
    stop, with as many streams as it accepts. `metrics` is where the supervisor is to serve the metrics of all workers,
    `url` and `allow_hosts` the names to which it answers there.
    """

    ports: tuple[tuple[str, str, int], ...]
    stop_seconds: float
    log: str
    log_level: str
    metrics: ListenAddress | None = None
    url: str | None = None
    allow_hosts: tuple[str, ...] = ()


class PortGrant(NamedTuple):
    """A worker may listen on the ports with these numbers, and keep its metrics in a file, if it wants to."""

    ports: tuple[int, ...]
    metrics: MetricsGrant | None = None


class WorkerReady(NamedTuple):
    """A worker accepts connections; the lines are what a server alone would print, `console` where its console is."""

    lines: tuple[str, ...]
    console: ConsoleAddress | None = None


class ServerShutdown(NamedTuple):
    """The supervisor is about to stop all workers: they answer as long as they can, because nobody else does."""


class Worker:
    """A worker: its number from 1 to `workers`, and the ids of its node and of those whose processes have ended.

    All workers have the same `console_token`.
    """

    def __init__(
        self,
        worker: int,
        workers: int,
        node_id: int,
        ended: tuple[int, ...],
        console_token: str,
        pipe: Connection,
    ) -> None:
        self.worker = worker
        self.console_token = console_token
        self._console: ConsoleAddress | None = None
        self._workers = workers
        self._node_id = node_id
        self._ended = ended
        self._pipe = pipe
        self._listener: socket.socket | None = None
        self._metrics_file: Path | None = None

    def prepare(self) -> None:
        """Leave SIGHUP to the supervisor; a terminal sends it to all processes."""
        # Not SIG_IGN, which programs that are started here would inherit.
        signal.signal(signal.SIGHUP, _do_nothing)

    def adapt(self, settings: Settings) -> Settings:
        """Ask the supervisor for the ports, and return the settings of this worker. Waits for the worker before it.

        Raises:
            ConfigError: the port cannot be had, or the settings have changed and the store is one for a single process.
        """
        from dragoman.server.listen.serve import longest_stop

        if not is_postgres_url(settings.store):
            raise ConfigError("the settings have changed: several workers need --store postgresql://user@host/database")
        ports = [("--port", settings.host, settings.port)]
        if settings.grpc is not None:
            ports.append(("--grpc", settings.grpc.host or settings.host, settings.grpc.port))
        request = PortRequest(
            tuple(ports),
            longest_stop(settings),
            settings.log,
            settings.log_level,
            settings.metrics,
            settings.url,
            settings.allow_hosts,
        )
        try:
            self._pipe.send(request)
            answer: PortGrant | ConfigError | ServerShutdown = self._pipe.recv()
        except (EOFError, OSError):
            sys.exit(0)  # the supervisor is gone
        if isinstance(answer, ServerShutdown):
            sys.exit(0)
        if isinstance(answer, ConfigError):
            raise answer
        fields = {name: getattr(settings, name) for name in Settings.__struct_fields__}
        fields |= {"port": answer.ports[0], "workers": self._workers}
        if settings.grpc is not None:
            fields["grpc"] = settings.grpc._replace(port=answer.ports[1])
        if settings.metrics is not None and answer.metrics is not None:
            self._metrics_file, port = answer.metrics
            fields |= {"metrics": settings.metrics._replace(port=port), "metrics_file": self._metrics_file}
        return WorkerSettings(**fields, worker=self.worker, node_id=self._node_id, ended=self._ended)

    def listener_of(self, host: str, port: int) -> socket.socket:
        """Return a socket beside those of the other workers. Raises ConfigError when somebody else has the port."""
        self._listener = bind_shared(host, port)
        return self._listener

    def hands_over(self) -> bool:
        """Return whether other workers go on; else the supervisor has sent that all of them stop.

        Without a supervisor they do not, but the port must be free for the next one.
        """
        try:
            return not (self._pipe.poll() and isinstance(self._pipe.recv(), ServerShutdown))
        except (EOFError, OSError):
            return True

    def orphaned(self) -> None:
        """Leave no file, and close the port for the next supervisor, even if an agent blocks the event loop."""
        if self._metrics_file is not None:
            remove_file(self._metrics_file)
        time.sleep(ORPHAN_SECONDS / 3)
        if self._listener is not None and self._listener.fileno() >= 0:
            # Not closed, but replaced: the event loop still has the number, which must not become that of another file.
            with suppress(OSError), closing(socket.socket()) as unbound:  # closed at the last moment
                os.dup2(unbound.fileno(), self._listener.fileno())
        # Last, because writing may block: perhaps nobody reads the log any more.
        logger.warning("the supervisor is gone: this worker accepts nothing more, and ends with its runs")

    def on_console(self, address: ConsoleAddress) -> None:
        """Keep the address for the supervisor, which outlives this process."""
        self._console = address

    def announce(self, lines: Sequence[str]) -> None:
        """Tell the supervisor that this worker is ready. If it is gone, this worker is about to stop."""
        with suppress(OSError):
            self._pipe.send(WorkerReady(tuple(lines), self._console))


def _do_nothing(*_: object) -> None:
    pass
