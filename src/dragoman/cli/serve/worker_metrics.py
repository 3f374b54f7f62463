"""The metrics of all workers together, which their supervisor serves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dragoman.model.error import ConfigError

if TYPE_CHECKING:
    from dragoman.server.config.values import ListenAddress
    from dragoman.server.http.cross_site import CrossSiteCheck
    from dragoman.server.listen.metrics import MetricsListener
    from dragoman.telemetry.metrics.folder import SeriesFolder


class MetricsGrant(NamedTuple):
    """Where a worker keeps its numbers, and on which port all of them are served."""

    file: Path
    port: int


class SupervisorMetrics:
    """Serves the numbers of all workers, once one of them wants it."""

    def __init__(self) -> None:
        self._folder: SeriesFolder | None = None
        self._listeners: dict[ListenAddress, MetricsListener] = {}
        self._files: dict[int, Path] = {}

    def grant(self, pid: int, address: ListenAddress, hosts: CrossSiteCheck) -> MetricsGrant:
        """Serve at an address, to these hosts, and return what the worker with this process id needs.

        Raises:
            ConfigError: the address cannot be had, or there is no place for files.
        """
        # Imported here, because they take prometheus_client.
        from dragoman.server.listen.metrics import MetricsListener
        from dragoman.telemetry.metrics import METRICS
        from dragoman.telemetry.metrics.folder import SeriesFolder

        if self._folder is None:
            try:
                self._folder = SeriesFolder(METRICS)
            except OSError as error:
                raise ConfigError(
                    f"metrics: workers keep their numbers in a temporary folder, and none can be made: "
                    f"{error.strerror}; set TMPDIR to a folder that this user may write to"
                ) from error
        if address not in self._listeners:
            listener = MetricsListener(address, self._folder.read, lambda: tuple(self._files), hosts=hosts)
            listener.start()
            self._listeners[address] = listener
        path = self._files[pid] = self._folder.add(str(pid))
        return MetricsGrant(path, self._listeners[address].port)

    def end(self, pid: int) -> None:
        """Keep what a worker has counted that has ended."""
        path = self._files.pop(pid, None)
        if path is not None and self._folder is not None:
            self._folder.end(path)

    def close(self) -> None:
        """Serve no more, and remove all files."""
        for listener in self._listeners.values():
            listener.close()
        if self._folder is not None:
            self._folder.close()
