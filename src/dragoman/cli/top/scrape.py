"""Reads the metrics of a server: the address they are at, the HTTP request, and Prometheus' text format."""

from __future__ import annotations

import http.client
import json
import os
import re
import ssl
import time
from typing import NamedTuple, TypeAlias
from urllib.parse import urlsplit

from dragoman.model.error import BadResponse, CannotConnect, ConfigError
from dragoman.telemetry.printable import one_line

Labels: TypeAlias = "tuple[tuple[str, str], ...]"
# By the name of the sample, then by its labels in the order of the page.
Samples: TypeAlias = "dict[str, dict[Labels, float]]"

ADDRESS_ENV = "DRAGOMAN_METRICS"
# That of OpenTelemetry's exporter for Prometheus.
DEFAULT_PORT = 9464
_MAX_PORT = 65535
_TIMEOUT = 5.0
_MAX_BYTES = 64 * 1024 * 1024
_TURN_ON = f"turn the metrics of the server on: dragoman serve … --metrics {DEFAULT_PORT}"
# Every page of Dragoman's metrics declares some.
_OURS = re.compile(r"^# TYPE (?:dragoman|a2a)_", re.MULTILINE)
_ANY_METRIC = re.compile(r"^# TYPE (\w+)|^([A-Za-z_:][\w:]*)(?:\{.*\})? \S+$", re.MULTILINE)
_SAMPLE = re.compile(r"([A-Za-z_:][\w:]*)(?:\{(.*)\})?")
_LABEL = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n"}


# -- the address -----------------------------------------------------------------------------------------------------


class MetricsAddress(NamedTuple):
    """Where the metrics of a server are."""

    host: str
    port: int
    path: str = "/metrics"
    secure: bool = False

    @property
    def name(self) -> str:
        """Host and port, as one types them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The whole address."""
        return f"{'https' if self.secure else 'http'}://{self.name}{self.path}"


def parse_address(text: str) -> MetricsAddress:
    """Read `9464`, `:9464`, `host:9464` or a URL. Raises ConfigError."""
    url = text if "://" in text else f"http://{f':{text}' if text.isascii() and text.isdigit() else text}"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    secure = parts.scheme == "https"
    if port is None and "://" in text and parts.hostname:
        port = 443 if secure else 80
    if parts.scheme not in ("http", "https") or not port or parts.username or any(map(str.isspace, text)):
        raise ConfigError(
            f"`{text}` is no address of metrics: write what `serve --metrics` has, as in 127.0.0.1:{DEFAULT_PORT}"
        )
    # A server that listens everywhere is reached here.
    host = {None: "127.0.0.1", "": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(  # noqa: S104
        parts.hostname, parts.hostname or ""
    )
    path = parts.path if parts.path not in ("", "/") else "/metrics"
    return MetricsAddress(host, port, f"{path}?{parts.query}" if parts.query else path, secure)


def default_address() -> MetricsAddress:
    """The address in `$DRAGOMAN_METRICS`, if it is one, else port 9464 of this machine."""
    try:
        return parse_address(os.environ.get(ADDRESS_ENV) or str(DEFAULT_PORT))
    except ConfigError:
        return parse_address(str(DEFAULT_PORT))


# -- the page --------------------------------------------------------------------------------------------------------


class PageParser:
    """Parses pages in Prometheus' text format, the same one again and again.

    `prometheus_client.parser` takes 40 ms for a page with 1,000 samples; this takes 8 ms the first time and less than
    one after that, because the names and labels of a page hardly change.
    """

    def __init__(self) -> None:
        self._series: dict[str, tuple[str, Labels]] = {}

    def parse(self, text: str) -> Samples:
        """Return the samples of a page. Raises ValueError where it is none."""
        series = self._series
        samples: Samples = {}
        for line in text.split("\n"):
            if not line or line[0] == "#":
                continue
            head, _, value = line.rstrip().rpartition(" ")
            found = series.get(head)
            if found is None:
                head, value = _without_time(head, value)
                found = series[head] = _parse_series(head, line)
            samples.setdefault(found[0], {})[found[1]] = float(value)
        return samples


def _without_time(head: str, value: str) -> tuple[str, str]:
    """Leave out the time that may stand behind a value."""
    before, _, number = head.rstrip().rpartition(" ")
    if before and not _SAMPLE.fullmatch(head):
        return before.rstrip(), number
    return head.rstrip(), value


def _parse_series(head: str, line: str) -> tuple[str, Labels]:
    match = _SAMPLE.fullmatch(head)
    if match is None:
        raise ValueError(line)
    labels = ((name, _unescaped(value)) for name, value in _LABEL.findall(match[2] or ""))
    return match[1], tuple(labels)


def _unescaped(value: str) -> str:
    return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[1]), value) if "\\" in value else value


# -- the request -----------------------------------------------------------------------------------------------------


class Scrape(NamedTuple):
    """The samples of a server at a moment, by the clock of this process."""

    at: float
    samples: Samples


class Scraper:
    """Reads the metrics of one server, over one connection as long as it lasts. One thread at a time."""

    def __init__(self, address: MetricsAddress, *, timeout: float = _TIMEOUT) -> None:
        self.address = address
        self._timeout = timeout
        self._parser = PageParser()
        self._connection: http.client.HTTPConnection | None = None

    def scrape(self) -> Scrape:
        """Read the metrics.

        Raises:
            CannotConnect: nothing listens there, or the connection was lost.
            BadResponse: what listens there is not the metrics of Dragoman.
        """
        status, text = self._get(self.address.path)
        at = time.monotonic()
        if status != 200:
            raise self._foreign(status, text)
        if not _OURS.search(text):
            raise self._foreign(status, text)
        try:
            return Scrape(at, self._parser.parse(text))
        except ValueError as error:
            raise BadResponse(
                f"{self.address.url} has a line that is no metric: {one_line(str(error))[:80]}", status=status
            ) from None

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _get(self, path: str) -> tuple[int, str]:
        """Get a page, once more on a new connection if the server has closed this one meanwhile."""
        is_fresh = self._connection is None
        try:
            return self._try(path)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if is_fresh or isinstance(error, TimeoutError):
                raise self._unreachable(error) from None
        try:
            return self._try(path)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise self._unreachable(error) from None

    def _try(self, path: str) -> tuple[int, str]:
        if self._connection is None:
            host, port, _, secure = self.address
            # No proxy: it is this machine, or one nearby.
            kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
            self._connection = kind(host, port, timeout=self._timeout)
        self._connection.request("GET", path, headers={"Accept": "text/plain;version=0.0.4", "User-Agent": "dragoman"})
        response = self._connection.getresponse()
        body = response.read(_MAX_BYTES)
        if not response.isclosed():
            self.close()
        return response.status, body.decode("utf-8", "replace")

    def _unreachable(self, error: Exception) -> CannotConnect:
        url = self.address.url
        if isinstance(error, ConnectionRefusedError):
            return CannotConnect(f"nothing listens at {url}: {_TURN_ON}", arrived=False)
        if isinstance(error, ssl.SSLError):
            return CannotConnect(f"{url}: TLS failed: {error.reason or error}", reason="TLS")
        if isinstance(error, TimeoutError):
            return CannotConnect(f"{url} did not answer within {self._timeout:g} s", reason="TIMED_OUT")
        if isinstance(error, http.client.HTTPException) and not isinstance(error, http.client.RemoteDisconnected):
            return CannotConnect(f"what listens at {url} does not speak HTTP: {_TURN_ON}", reason="NOT_HTTP")
        return CannotConnect(f"{url} cannot be reached: {getattr(error, 'strerror', None) or error}; {_TURN_ON}")

    def _foreign(self, status: int, text: str) -> BadResponse:
        """Say what it is that has answered."""
        url = self.address.url
        if status == 200 and (named := _ANY_METRIC.search(text)) and not text.lstrip().startswith(("{", "<")):
            name = one_line(named[1] or named[2])[:60]
            return BadResponse(
                f"{url} has metrics, but not those of Dragoman: the first is {name}; give the address of "
                f"`serve --metrics`, as in `dragoman top 127.0.0.1:{DEFAULT_PORT}`",
                status=status,
            )
        if self._is_agent():
            return BadResponse(
                f"{self.address.name} is the address of an agent, and its metrics have one of their own: "
                f"start it with --metrics {DEFAULT_PORT}, then run `dragoman top 127.0.0.1:{DEFAULT_PORT}`",
                status=status,
            )
        return BadResponse(f"{url} has no metrics (HTTP {status}): {_TURN_ON}", status=status)

    def _is_agent(self) -> bool:
        """True when what listens there has a card, or a list of agents, or keeps them from strangers."""
        for path, key in (("/.well-known/agent-card.json", "skills"), ("/agents", "agents")):
            try:
                status, text = self._get(path)
                if status == 401 or (status == 200 and key in json.loads(text)):
                    return True
            except (CannotConnect, ValueError, TypeError):
                continue
        return False
