"""HTTP over sockets, straight to the other side: little between a request and its bytes."""

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

from dragoman.model.error import CannotConnect
from dragoman.net.connection import HttpConnection, WireResponse
from dragoman.net.exchange import HttpRequest, redact_url
from dragoman.net.http_url import HttpUrl, encode_request, parse_url

# A peer that vanished without a word is found out after about two minutes, however long a stream is silent.
_KEEP_ALIVE = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))
# Most servers close a connection that has been idle for five seconds or more; ours is then gone before.
_MAX_IDLE = 4.0
_EYEBALLS = 0.25
# As much as is read at once. asyncio would make room for it anew each time, which costs more than the reading.
_BUFFER_BYTES = 128 * 1024
_NUMBER = re.compile(r"[\d.]+|.*:.*")
_Key = tuple[bool, str, int]


class DirectClient:
    """Carries exchanges over kept connections. `verify` is True, False or an SSL context of the caller's own.

    Connections belong to the event loop they were made on: who comes on another one gets others.
    """

    def __init__(self, *, verify: bool | ssl.SSLContext = True, agent: str = "dragoman") -> None:
        self._verify = verify
        self._agent = agent
        self._pools: dict[asyncio.AbstractEventLoop, _Pool] = {}

    async def send(self, request: HttpRequest) -> WireResponse:
        """See `HttpClient.send`."""
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
            # A kept connection may be closed by the other side just when it is used again. Asking is harmless.
            if idle is None or error.reason != "CONNECTION_LOST" or request.method not in ("GET", "HEAD"):
                raise
            response = (await self._connect(pool, url, request)).send(data, request)
            await response.wait_for_head()
        return response

    async def close(self) -> None:
        """See `HttpClient.close`. What another loop uses at this time is that loop's to close."""
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None and pool.all:
            pool.close()
            await asyncio.sleep(0)  # the transports close on the next turn

    def _pool(self, loop: asyncio.AbstractEventLoop) -> _Pool:
        # What belongs to a loop that is gone cannot be used any more, nor closed.
        self._pools = {each: pool for each, pool in self._pools.items() if not each.is_closed()}
        pool = self._pools[loop] = _Pool(loop)
        return pool

    async def _connect(self, pool: _Pool, url: HttpUrl, request: HttpRequest) -> HttpConnection:
        options: dict[str, Any] = {}
        if url.tls:
            context = self._verify if isinstance(self._verify, ssl.SSLContext) else _context(self._verify)
            options = {"ssl": context, "server_hostname": url.host.partition("%")[0]}
        # A number has one address, so there is nothing to race; and uvloop has no such option.
        if not _NUMBER.fullmatch(url.host) and isinstance(pool.loop, asyncio.BaseEventLoop):
            options["happy_eyeballs_delay"] = _EYEBALLS
        try:
            async with asyncio.timeout(request.connect_timeout):
                transport, connection = await pool.loop.create_connection(
                    lambda: HttpConnection(pool.idle_callback(url[:3]), pool.buffer), url.host, url.port, **options
                )
        except OSError as error:
            raise _connect_error(error, request) from error
        _enable_keep_alive(transport.get_extra_info("socket"))
        pool.add(connection)
        return connection


class _Pool:
    """The connections of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.all: set[HttpConnection] = set()
        self.buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._idle: dict[_Key, list[HttpConnection]] = {}

    def take_idle(self, key: _Key) -> HttpConnection | None:
        """A connection that is free, if there is one."""
        idle = self._idle.get(key)
        while idle:
            connection = idle.pop()
            if connection.is_usable and self.loop.time() - connection.idle_since < _MAX_IDLE:
                return connection
            self.all.discard(connection)
            connection.abort()
        return None

    def add(self, connection: HttpConnection) -> None:
        """Take a new connection in, and forget those that are gone."""
        self.all = {each for each in self.all if each.is_usable}
        self.all.add(connection)

    def idle_callback(self, key: _Key) -> Callable[[HttpConnection], None]:
        """What a connection calls when it is free for the next exchange."""

        def on_idle(connection: HttpConnection) -> None:
            connection.idle_since = self.loop.time()
            if connection in self.all:
                self._idle.setdefault(key, []).append(connection)

        return on_idle

    def close(self) -> None:
        """Cut every connection."""
        connections, self.all, self._idle = self.all, set(), {}
        for connection in connections:
            connection.abort()


@cache
def _context(verify: bool) -> ssl.SSLContext:
    # Reading the authorities takes longer than many a request: once is enough.
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
        return CannotConnect(f"no TLS with {where}: {error.reason or error}", reason="TLS", arrived=False)
    if isinstance(error, socket.gaierror):
        return CannotConnect(f"{where} cannot be found: no such host", reason="NO_SUCH_HOST", arrived=False)
    if isinstance(error, TimeoutError):
        within = "" if request.connect_timeout is None else f" within {request.connect_timeout:g} s"
        return CannotConnect(f"{where} did not take the connection{within}", reason="TIMED_OUT", arrived=False)
    why = _os_reason(error)
    return CannotConnect(f"nobody answers at {where}: {why}", arrived=False)


def _os_reason(error: Exception) -> str:
    number = getattr(error, "errno", None)
    return os.strerror(number).lower() if isinstance(number, int) else str(error).lower()
