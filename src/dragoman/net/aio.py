"""HTTP over sockets, with aiohttp."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any

import aiohttp
from yarl import URL

from dragoman.model.error import CannotConnect
from dragoman.net.exchange import MAX_ANSWER, HttpRequest, is_loopback, shown, too_large

# A peer that vanished without a word is found out after about two minutes, however long a stream is silent.
_KEEP_ALIVE = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))
_READ = 256 * 1024
_SKIPPED = ("User-Agent", "Accept-Encoding", "Accept", "Content-Type")


class AioClient:
    """Carries exchanges over pooled connections. `verify` is True, False or an SSL context of the caller's own."""

    def __init__(self, *, verify: bool | ssl.SSLContext = True, agent: str = "dragoman") -> None:
        self._verify = verify
        self._agent = {"User-Agent": agent}
        self._sessions: dict[bool, aiohttp.ClientSession] = {}

    async def send(self, request: HttpRequest) -> AioResponse:
        """See `HttpClient.send`."""
        try:
            response = await self._session(request.url).request(
                request.method,
                _url(request.url),
                headers=request.headers,
                data=request.body,
                allow_redirects=False,
                timeout=_timeout(request.connect, request.silence),
            )
        except (aiohttp.ClientError, OSError, asyncio.TimeoutError, ValueError) as error:
            raise _reached_nobody(error, request) from error
        return AioResponse(response, request)

    async def close(self) -> None:
        """See `HttpClient.close`."""
        sessions, self._sessions = list(self._sessions.values()), {}
        for session in sessions:
            await session.close()

    def _session(self, url: str) -> aiohttp.ClientSession:
        # The environment's proxy is for the world outside.
        outside = not is_loopback(url)
        session = self._sessions.get(outside)
        if session is None or session.closed:
            session = self._sessions[outside] = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=0, ssl=self._verify, socket_factory=_socket, happy_eyeballs_delay=0.25
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=self._agent,
                skip_auto_headers=_SKIPPED,
                read_bufsize=_READ,
                max_line_size=64 * 1024,
                max_field_size=64 * 1024,
                trust_env=outside,
                auto_decompress=True,
            )
        return session


class AioResponse:
    """An answer whose head has arrived."""

    __slots__ = ("_request", "_response", "headers", "status")

    def __init__(self, response: aiohttp.ClientResponse, request: HttpRequest) -> None:
        self._response = response
        self._request = request
        self.status: int = response.status
        self.headers: Mapping[str, str] = response.headers

    async def read(self, limit: int = MAX_ANSWER) -> bytes:
        """See `HttpResponse.read`."""
        response = self._response
        if (response.content_length or 0) > limit:
            await self.close()
            raise too_large(limit)
        try:
            # What is compressed is as large as it wants to be: that is counted as it comes.
            if response.content_length is not None and not response.headers.get("Content-Encoding"):
                return await response.read()
            chunks: list[bytes] = []
            size = 0
            async for chunk in response.content.iter_any():
                size += len(chunk)
                if size > limit:
                    raise too_large(limit)
                chunks.append(chunk)
            return b"".join(chunks)
        except (aiohttp.ClientError, OSError, asyncio.TimeoutError) as error:
            raise _broke(error, self._request) from error
        finally:
            await self.close()

    async def chunks(self) -> AsyncIterator[bytes]:
        """See `HttpResponse.chunks`."""
        try:
            async for chunk in self._response.content.iter_any():
                yield chunk
        except (aiohttp.ClientError, OSError, asyncio.TimeoutError) as error:
            raise _broke(error, self._request) from error
        finally:
            await self.close()

    async def close(self) -> None:
        """See `HttpResponse.close`."""
        self._response.close() if not self._response.content.is_eof() else self._response.release()


@lru_cache(256)
def _url(text: str) -> URL:
    # As given: an id in a path may hold what looks like an escape.
    return URL(text, encoded=True)


@lru_cache(64)
def _timeout(connect: float | None, silence: float | None) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=None, sock_connect=connect, sock_read=silence)


def _socket(info: Any) -> socket.socket:
    family, kind, proto = info[:3]
    made = socket.socket(family, kind, proto)
    made.setblocking(False)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE:
        with suppress(AttributeError, OSError):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made


def _reached_nobody(error: Exception, request: HttpRequest) -> CannotConnect:
    where = shown(request.url)
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return CannotConnect(
            f"the certificate of {where} is not trusted: {error.certificate_error}", reason="TLS", arrived=False
        )
    if isinstance(error, aiohttp.ClientSSLError):
        return CannotConnect(f"no TLS with {where}: {error}", reason="TLS", arrived=False)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return CannotConnect(f"{where} cannot be found: no such host", reason="NO_SUCH_HOST", arrived=False)
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return CannotConnect(
            f"{where} did not take the connection within {request.connect:g} s", reason="TIMED_OUT", arrived=False
        )
    if isinstance(error, aiohttp.ClientConnectorError):
        return CannotConnect(f"nobody answers at {where}: {error.os_error.strerror or error}", arrived=False)
    if isinstance(error, ValueError) and "header" in str(error):
        return CannotConnect(f"the request to {where} cannot be sent: {error}", reason="BAD_ADDRESS", arrived=False)
    if isinstance(error, (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError, ValueError)):
        return CannotConnect(f"{where} is not an address that can be called", reason="BAD_ADDRESS", arrived=False)
    return _broke(error, request)


def _broke(error: Exception, request: HttpRequest) -> CannotConnect:
    where = shown(request.url)
    if isinstance(error, asyncio.TimeoutError):
        return CannotConnect(f"{where} said nothing for {request.silence:g} s", reason="TIMED_OUT")
    if isinstance(error, aiohttp.ClientResponseError):
        return CannotConnect(f"{where} does not answer in HTTP: {error.message}", reason="NOT_HTTP")
    return CannotConnect(f"the connection to {where} broke: {_plain(error)}", reason="CONNECTION_LOST")


def _plain(error: Exception) -> str:
    return str(error) or type(error).__name__
