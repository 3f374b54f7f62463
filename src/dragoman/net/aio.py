"""An HTTP client on aiohttp: it supports proxies and address guards."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any

import aiohttp
from yarl import URL

from dragoman.clock import Clock, wait
from dragoman.model.error import CannotConnect, TimedOut
from dragoman.net.connector import GuardedConnector
from dragoman.net.exchange import (
    MAX_RESPONSE,
    Chunks,
    HttpRequest,
    is_loopback,
    read_limited,
    redact_url,
    tls_error,
    too_large_error,
)
from dragoman.net.guard import AddressGuard

# TCP keep-alive detects a vanished peer after about two minutes, however long a stream stays idle.
_KEEP_ALIVE = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))
_READ_BUFFER = 256 * 1024
# A body that cannot be decompressed raises an error of the parser, which is not a ClientError.
_ERRORS = (aiohttp.ClientError, aiohttp.http.HttpProcessingError, OSError, asyncio.TimeoutError)
_MAX_DETAIL = 200
_NO_AUTO_HEADERS = ("User-Agent", "Accept-Encoding", "Accept", "Content-Type")

# An event loop, and whether the target is outside this machine.
_Key = tuple[asyncio.AbstractEventLoop, bool]


class AioClient:
    """An `HttpClient` with pooled connections. `verify` is True, False or an SSL context.

    With a `guard`, requests go only to addresses it allows, and no proxy is used. Each event loop has its own
    connections.
    """

    def __init__(
        self, *, verify: bool | ssl.SSLContext = True, agent: str = "dragoman", guard: AddressGuard | None = None
    ) -> None:
        self._verify = verify
        self._guard = guard
        self._agent = {"User-Agent": agent}
        self._sessions: dict[_Key, aiohttp.ClientSession] = {}

    async def send(self, request: HttpRequest) -> AioResponse:
        """Send a request and wait for the response head.

        Raises:
            AddressForbidden: the guard does not allow the address.
            CannotConnect: as `HttpClient.send`.
        """
        if self._guard is not None:
            self._guard.check_url(request.url)
        # A proxy from the environment is not used for this machine.
        key = (asyncio.get_running_loop(), not is_loopback(request.url))
        session = self._sessions.get(key) or await self._open(key)
        try:
            response = await session.request(
                request.method,
                _url(request.url),
                headers=request.headers,
                data=request.body,
                allow_redirects=False,
                timeout=_timeout(request.connect_timeout, request.read_timeout),
            )
        except (*_ERRORS, ValueError) as error:
            raise _connect_error(error, request) from error
        return AioResponse(response, request)

    async def close(self) -> None:
        """Close the connections of the running event loop; other loops close their own."""
        here = asyncio.get_running_loop()
        for key in [key for key in self._sessions if key[0] is here or key[0].is_closed()]:
            await self._sessions.pop(key).close()

    async def _open(self, key: _Key) -> aiohttp.ClientSession:
        for old in [each for each in self._sessions if each[0].is_closed()]:
            # The sockets of a closed loop cannot be used any more.
            await self._sessions.pop(old).close()
        if key not in self._sessions:
            self._sessions[key] = aiohttp.ClientSession(
                connector=self._connector(),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=self._agent,
                skip_auto_headers=_NO_AUTO_HEADERS,
                read_bufsize=_READ_BUFFER,
                max_line_size=64 * 1024,
                max_field_size=64 * 1024,
                trust_env=key[1] and self._guard is None,
                auto_decompress=True,
            )
        return self._sessions[key]

    def _connector(self) -> aiohttp.TCPConnector:
        make = aiohttp.TCPConnector if self._guard is None else partial(GuardedConnector, self._guard)
        return make(limit=0, ssl=self._verify, socket_factory=_open_socket, happy_eyeballs_delay=0.25)


class AioResponse:
    """A response whose head has arrived."""

    __slots__ = ("_request", "_response", "headers", "status")

    def __init__(self, response: aiohttp.ClientResponse, request: HttpRequest) -> None:
        self._response = response
        self._request = request
        self.status: int = response.status
        self.headers: Mapping[str, str] = response.headers

    async def read(self, limit: int = MAX_RESPONSE) -> bytes:
        response = self._response
        if (response.content_length or 0) > limit:
            await self.close()
            raise too_large_error(limit)
        try:
            # The size of a compressed body is unknown until it is decompressed, so it is counted chunk by chunk.
            if response.content_length is not None and not response.headers.get("Content-Encoding"):
                return await response.read()
            return await read_limited(limit, response.content.iter_any())
        except _ERRORS as error:
            raise _connection_error(error, self._request) from error
        finally:
            await self.close()

    def chunks(self) -> AsyncIterator[bytes]:
        return Chunks(self._next_chunk)

    async def close(self) -> None:
        # The connection can be reused only when the whole response has been read.
        if self._response.content.is_eof():
            self._response.release()
        else:
            self._response.close()

    async def _next_chunk(self) -> bytes | None:
        try:
            chunk = await self._response.content.readany()
        except _ERRORS as error:
            await self.close()
            raise _connection_error(error, self._request) from error
        if not chunk:
            await self.close()
        return chunk or None


@lru_cache(256)
def _url(text: str) -> URL:
    # The text is kept as is, since an id in a path may hold what looks like an escape. Only characters that a
    # request line cannot hold are escaped.
    return URL(text, encoded=text.isascii() and text.isprintable() and " " not in text)


@lru_cache(64)
def _timeout(connect: float | None, read: float | None) -> aiohttp.ClientTimeout:
    # `connect` covers the DNS lookup, every address that is tried, and TLS.
    return aiohttp.ClientTimeout(total=None, connect=connect, sock_read=read)


def _open_socket(info: Any) -> socket.socket:
    family, kind, proto = info[:3]
    sock = socket.socket(family, kind, proto)
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE:
        with suppress(AttributeError, OSError):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return sock


def _connect_error(error: Exception, request: HttpRequest) -> CannotConnect:
    where = redact_url(request.url)
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        detail = getattr(error.certificate_error, "verify_message", "") or error.certificate_error
        return CannotConnect(f"the certificate of {where} is not trusted: {detail}", reason="TLS", arrived=False)
    if isinstance(error, aiohttp.ClientSSLError):
        return tls_error(request.url, _one_line(error))
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return CannotConnect(f"{where} cannot be found: no such host", reason="NO_SUCH_HOST", arrived=False)
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return TimedOut(f"{where} did not accept the connection within {request.connect_timeout:g} s", arrived=False)
    if isinstance(error, aiohttp.ClientConnectorError):
        return CannotConnect(f"nobody answers at {where}: {error.os_error.strerror or error}", arrived=False)
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return CannotConnect(f"the proxy on the way to {where} says HTTP {error.status}", arrived=False)
    if isinstance(error, ValueError) and "header" in str(error):
        return CannotConnect(f"the request to {where} cannot be sent: {error}", reason="BAD_ADDRESS", arrived=False)
    if isinstance(error, (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError, ValueError)):
        return CannotConnect(f"{where} is not an address that can be called", reason="BAD_ADDRESS", arrived=False)
    return _connection_error(error, request)


def _connection_error(error: Exception, request: HttpRequest) -> CannotConnect:
    where = redact_url(request.url)
    if isinstance(error, aiohttp.ServerTimeoutError) and request.read_timeout is not None:
        return TimedOut(f"{where} said nothing for {request.read_timeout:g} s")
    if isinstance(error, (aiohttp.ClientResponseError, aiohttp.http.HttpProcessingError)):
        detail = " ".join(error.message.split())[:_MAX_DETAIL]
        return CannotConnect(f"{where} does not answer in HTTP: {detail}", reason="NOT_HTTP")
    # The head of an answer that broke off within it.
    head = error.message if isinstance(error, aiohttp.ServerDisconnectedError) else None
    status = head.code if isinstance(head, aiohttp.http.RawResponseMessage) else None
    return CannotConnect(
        f"the connection to {where} broke: {_one_line(error)}", reason="CONNECTION_LOST", status=status
    )


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:_MAX_DETAIL] or type(error).__name__


async def fetch(
    request: HttpRequest,
    *,
    clock: Clock,
    seconds: float | None,
    verify: bool = True,
    limit: int = MAX_RESPONSE,
    guard: AddressGuard | None = None,
) -> tuple[int, bytes]:
    """Send a request over its own connection and return the status and the whole body within `seconds` of `clock`.

    Redirects are not followed. The guard checks the URL, and the address at connect time.

    Raises:
        AddressForbidden: the guard does not allow the address; nothing was sent.
        CannotConnect: the server does not answer, or not in time.
        ResponseTooLarge: the body has more than `limit` bytes.
    """
    # Only the clock limits the exchange, so that tests can control time.
    request.connect_timeout = request.read_timeout = None
    fetching = asyncio.create_task(_fetch(request, verify, limit, guard))
    try:
        if seconds is None:
            await asyncio.wait([fetching])
        elif not await wait(clock, fetching, seconds):
            raise TimedOut(f"{redact_url(request.url)} did not answer within {seconds:g} s")
        return fetching.result()
    finally:
        if not fetching.done():
            fetching.cancel()
            await asyncio.gather(fetching, return_exceptions=True)


async def _fetch(request: HttpRequest, verify: bool, limit: int, guard: AddressGuard | None) -> tuple[int, bytes]:
    http = AioClient(verify=verify, guard=guard)
    try:
        response = await http.send(request)
        return response.status, await response.read(limit)
    finally:
        await http.close()
