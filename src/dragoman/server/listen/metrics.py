"""Serves `/metrics` on an address of its own, in threads: a scrape works while the event loop is blocked."""

from __future__ import annotations

import logging
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import prometheus_client

from dragoman import __version__
from dragoman.model.error import ConfigError
from dragoman.server.http.cross_site import CrossSiteCheck
from dragoman.server.listen.port import bind, listen_error
from dragoman.telemetry.metrics import METRICS
from dragoman.telemetry.metrics.exposition import prometheus_registry

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from dragoman.server.config.values import ListenAddress
    from dragoman.telemetry.metrics.buffer import SeriesReading

logger = logging.getLogger("dragoman.server")

PATH = "/metrics"
# The key of the local address in the environment of a request.
_LOCAL = "dragoman.local"
# How long a scrape may take in all, in seconds, and how many there may be at once.
_SECONDS, _CONNECTIONS = 10.0, 16
_BACKLOG = 64
_PAUSE_SECONDS = 0.1
# How long the thread of a connection that was ended may take to notice it, in seconds.
_ROOM_SECONDS = 1.0


class MetricsListener:
    """Serves the metrics of this process, and turns recording on; or those of its workers."""

    def __init__(
        self,
        address: ListenAddress,
        read: Callable[[], Iterable[SeriesReading]] = METRICS.read,
        pids: Callable[[], Iterable[int]] | None = None,
        *,
        hosts: CrossSiteCheck | None = None,
    ) -> None:
        """Set what to serve, without listening yet: the series of workers and their process ids, if there are any.

        `hosts` says to which names it answers on loopback, as for the port of the agents.
        """
        self._host, self._port = address
        self._registry = prometheus_registry(METRICS, read, __version__, pids)
        self._own = pids is None
        self._hosts = hosts or CrossSiteCheck(None, (), (), open_list=False)
        self._server: _MetricsServer | None = None

    @property
    def port(self) -> int:
        """The port on which it listens."""
        return self._port if self._server is None else self._server.server_port

    @property
    def address(self) -> str:
        """The URL at which this machine reaches it."""
        return metrics_url(self._host, self.port)

    def start(self) -> None:
        """Listen, and record from now on. Idempotent.

        Raises:
            ConfigError: the address cannot be had.
        """
        if self._server is not None:
            return
        listener = bind(self._host, self._port, flag="--metrics")
        try:
            listener.listen(_BACKLOG)
        except OSError as error:
            listener.close()
            raise listen_error(error, self._host, self._port, "--metrics") from error
        library: Any = prometheus_client  # its types are incomplete
        self._server = _MetricsServer(listener, _only_metrics(library.make_wsgi_app(self._registry), self._hosts))
        self._server.start()
        if self._own:
            METRICS.begin()

    def close(self) -> None:
        """Listen no more. Idempotent."""
        if self._server is not None:
            self._server.stop()
            self._server = None
            if self._own:
                METRICS.end()


class WorkerMetrics:
    """Records the numbers of a worker in a file, which its supervisor serves at `address`."""

    def __init__(self, path: Path, address: ListenAddress) -> None:
        self._path = path
        self.address = metrics_url(*address)
        self._is_on = self._is_shared = False

    def start(self) -> None:
        """Record from now on. Idempotent. Raises ConfigError when the file cannot be made."""
        if self._is_on:
            return
        try:
            if not self._is_shared:
                METRICS.share(self._path)
                self._is_shared = True
        except OSError as error:
            raise ConfigError(
                f"metrics: {self._path} cannot be written, which the numbers of a worker are kept in: "
                f"{error.strerror}; set TMPDIR to a folder with some free space"
            ) from error
        METRICS.begin()
        self._is_on = True

    def close(self) -> None:
        """Record no more. Idempotent. The supervisor removes the file."""
        if self._is_on:
            METRICS.end()
            self._is_on = False


def metrics_url(host: str, port: int) -> str:
    """Return the URL at which this machine reaches a listener."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - replaced, not used
    return f"http://{f'[{host}]' if ':' in host else host}:{port}{PATH}"


def _only_metrics(app: WSGIApplication, hosts: CrossSiteCheck) -> WSGIApplication:
    """Return an app for one path and one method, and for no foreign Host; prometheus_client's has more."""

    def serve(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        def start(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            # Else it is that of wsgiref, with the version of Python.
            return start_response(status, [*headers, ("Server", "dragoman")], *rest)

        problem = hosts.host_problem(environ[_LOCAL], environ.get("HTTP_HOST", ""))
        if problem is not None:
            start("421 Misdirected Request", [("Content-Type", "text/plain; charset=utf-8")])
            return [f"{problem}\n".encode()]
        if environ["PATH_INFO"] != PATH:
            start("404 Not Found", [("Content-Type", "text/plain")])
            return [b"there is only /metrics here\n"]
        if environ["REQUEST_METHOD"] != "GET":
            start("405 Method Not Allowed", [("Content-Type", "text/plain"), ("Allow", "GET")])
            return [b"use GET\n"]
        return app(environ, start)

    return serve


class _Handler(WSGIRequestHandler):
    timeout = _SECONDS  # of one read or write

    def get_environ(self) -> WSGIEnvironment:
        # With the address that this connection is to: the port may be one on all addresses.
        return {**super().get_environ(), _LOCAL: self.connection.getsockname()[0]}

    def log_message(self, format: str, *args: Any) -> None:
        pass


class _MetricsServer(ThreadingMixIn, WSGIServer):
    """A server with a thread for each connection. One that takes too long is closed, and the oldest one of too many."""

    daemon_threads = True
    block_on_close = False
    timeout = 0

    def __init__(self, listener: socket.socket, app: WSGIApplication) -> None:
        # Not bound here: the base class would look up the name of the host, which may take long.
        super().__init__(listener.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        listener.setblocking(False)
        self.server_name, self.server_port = listener.getsockname()[:2]
        self.setup_environ()
        self.set_app(app)
        self._lock = threading.Condition()
        # With the time at which each must have ended, the oldest first.
        self._open: dict[socket.socket, float] = {}
        self._wakeup, self._waker = socket.socketpair()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="dragoman-metrics", daemon=True)

    def start(self) -> None:
        """Accept connections until `stop`."""
        self._thread.start()

    def _run(self) -> None:
        with self.socket, self._wakeup, selectors.DefaultSelector() as selector:
            selector.register(self.socket, selectors.EVENT_READ)
            selector.register(self._wakeup, selectors.EVENT_READ)
            while not self._is_stopping:
                if any(key.fileobj is self.socket for key, _ in selector.select(1.0 if self._open else None)):
                    self.handle_request()
                self._close_overdue()

    def stop(self) -> None:
        """Close the port, and end the connections that there are."""
        self._is_stopping = True
        self._waker.close()
        with self._lock:
            for connection in self._open:
                _shut(connection)
        self._thread.join(_ROOM_SECONDS)

    def _close_overdue(self) -> None:
        now = time.monotonic()
        with self._lock:
            for connection, until in self._open.items():
                if until > now:
                    break
                _shut(connection)

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            return super().get_request()
        except OSError:
            # Perhaps there are too many open files: the connection that waits would wake this thread again at once.
            time.sleep(_PAUSE_SECONDS)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            if len(self._open) >= _CONNECTIONS:
                _shut(next(iter(self._open)))
                if not self._lock.wait_for(lambda: len(self._open) < _CONNECTIONS, _ROOM_SECONDS):
                    raise ConnectionRefusedError("too many connections")
            self._open[request] = time.monotonic() + _SECONDS
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
            self._lock.notify()
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.debug("a scrape of metrics has ended early", exc_info=True)


def _shut(connection: socket.socket) -> None:
    """End a connection, whose thread closes it then."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
