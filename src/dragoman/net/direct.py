"""A minimal HTTP/1.1 client with a connection pool; it supports no proxies."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

from dragoman.model.error import CannotConnect, TimedOut
from dragoman.net.connection import HttpConnection, WireResponse, client_closed
from dragoman.net.exchange import HttpRequest, redact_url, tls_error
from dragoman.net.http_url import HttpUrl, encode_request, parse_url

# TCP keep-alive detects a vanished peer after about two minutes, however long a stream stays idle.
_KEEP_ALIVE = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))
# Most servers close connections after five idle seconds or more, so ours are dropped before that.
_MAX_IDLE = 4.0
_HAPPY_EYEBALLS_DELAY = 0.25  # seconds before the next address of a host is tried as well
# The read buffer. asyncio would allocate one for each read, which costs more than the read itself.
_BUFFER_BYTES = 128 * 1024
_LITERAL_ADDRESS = re.compile(r"[\d.]+|.*:.*")
_Key = tuple[bool, str, int]


class DirectClient:
    """An `HttpClient` with keep-alive connections. `verify` is True, False or an SSL context.

    Each event loop has its own connections.
    """

    def __init__(self, *, verify: bool | ssl.SSLContext = True, agent: str = "dragoman") -> None:
        self._verify = verify
        self._agent = agent
        self._pools: dict[asyncio.AbstractEventLoop, _Pool] = {}

    async def send(self, request: HttpRequest) -> WireResponse:
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop) or self._pool(loop)
        try:
            url = parse_url(request.url)
            data = encode_request(request, url, self._agent)
        except (ValueError, UnicodeError) as error:
            raise CannotConnect(
                f"{redact_url(request.url)} cannot be called: {error}", reason="BAD_ADDRESS", arrived=False
            ) from None
        idle = pool.take_idle(url[:3])
        response = (idle or await self._connect(pool, url, request)).send(data, request)
        try:
            await response.wait_for_head()
        except CannotConnect as error:
            # The server may close an idle connection just as it is reused. Only idempotent reads are retried.
            if idle is None or error.reason != "CONNECTION_LOST" or request.method not in ("GET", "HEAD"):
                raise
            response = (await self._connect(pool, url, request)).send(data, request)
            await response.wait_for_head()
        return response

    async def close(self) -> None:
        """Close the connections of the running event loop; other loops close their own. Requests in flight fail."""
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            pool.close()
            await asyncio.sleep(0)  # the transports close on the next turn

    def _pool(self, loop: asyncio.AbstractEventLoop) -> _Pool:
        # Connections of a closed loop can be neither used nor closed.
        self._pools = {each: pool for each, pool in self._pools.items() if not each.is_closed()}
        pool = self._pools[loop] = _Pool(loop)
        return pool

    async def _connect(self, pool: _Pool, url: HttpUrl, request: HttpRequest) -> HttpConnection:
        options: dict[str, Any] = {}
        if url.tls:
            context = self._verify if isinstance(self._verify, ssl.SSLContext) else _ssl_context(self._verify)
            options = {"ssl": context, "server_hostname": url.host.partition("%")[0]}
        # A literal address needs no happy eyeballs, and uvloop has no such option.
        if not _LITERAL_ADDRESS.fullmatch(url.host) and isinstance(pool.loop, asyncio.BaseEventLoop):
            options["happy_eyeballs_delay"] = _HAPPY_EYEBALLS_DELAY
        try:
            async with asyncio.timeout(request.connect_timeout):
                transport, connection = await pool.loop.create_connection(
                    lambda: HttpConnection(pool.idle_callback(url[:3]), pool.buffer), url.host, url.port, **options
                )
        except OSError as error:
            raise _connect_error(error, request) from error
        if pool.is_closed:
            connection.abort()
            raise client_closed(request)
        _enable_keep_alive(transport.get_extra_info("socket"))
        pool.add(connection)
        return connection


class _Pool:
    """The connections of one event loop, with the idle ones by scheme, host and port."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.all: set[HttpConnection] = set()
        self.is_closed = False
        self.buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._idle: dict[_Key, list[HttpConnection]] = {}

    def take_idle(self, key: _Key) -> HttpConnection | None:
        """Take an idle connection out of the pool; None when there is none."""
        idle = self._idle.get(key)
        while idle:
            connection = idle.pop()
            if connection.is_usable and self.loop.time() - connection.idle_since < _MAX_IDLE:
                return connection
            self.all.discard(connection)
            connection.abort()
        return None

    def add(self, connection: HttpConnection) -> None:
        """Add a new connection, and drop closed ones."""
        self.all = {each for each in self.all if each.is_usable}
        self.all.add(connection)

    def idle_callback(self, key: _Key) -> Callable[[HttpConnection], None]:
        """Return the callback by which a connection goes back to the pool."""

        def on_idle(connection: HttpConnection) -> None:
            connection.idle_since = self.loop.time()
            if connection in self.all:
                self._idle.setdefault(key, []).append(connection)

        return on_idle

    def close(self) -> None:
        """Abort every connection; requests in flight fail."""
        connections, self.all, self._idle = self.all, set(), {}
        self.is_closed = True
        for connection in connections:
            connection.close()


@cache
def _ssl_context(verify: bool) -> ssl.SSLContext:
    # Loading the certificate authorities takes longer than many a request.
    context = ssl.create_default_context()
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _enable_keep_alive(sock: socket.socket | None) -> None:
    if sock is None:
        return
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE:
        with suppress(AttributeError, OSError):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _connect_error(error: Exception, request: HttpRequest) -> CannotConnect:
    where = redact_url(request.url)
    if isinstance(error, ssl.SSLCertVerificationError):
        return CannotConnect(
            f"the certificate of {where} is not trusted: {error.verify_message}", reason="TLS", arrived=False
        )
    if isinstance(error, ssl.SSLError):
        return tls_error(request.url, str(error.reason or error))
    if isinstance(error, socket.gaierror):
        return CannotConnect(f"{where} cannot be found: no such host", reason="NO_SUCH_HOST", arrived=False)
    if isinstance(error, TimeoutError):
        within = "" if request.connect_timeout is None else f" within {request.connect_timeout:g} s"
        return TimedOut(f"{where} did not accept the connection{within}", arrived=False)
    why = _os_reason(error)
    return CannotConnect(f"nobody answers at {where}: {why}", arrived=False)


def _os_reason(error: Exception) -> str:
    number = getattr(error, "errno", None)
    return os.strerror(number).lower() if isinstance(number, int) else str(error).lower()
