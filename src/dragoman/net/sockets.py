"""The default HTTP client: direct connections, aiohttp where the environment sets a proxy, grpcio for gRPC."""

from __future__ import annotations

import ssl
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from dragoman.net.direct import DirectClient
from dragoman.net.exchange import MAX_RESPONSE, is_loopback

if TYPE_CHECKING:
    from dragoman.net.exchange import HttpClient, HttpRequest, HttpResponse


class SocketClient:
    """An `HttpClient` that honors proxy variables; loopback addresses never go through a proxy.

    `limit` is the most bytes of one gRPC message; other answers are limited where they are read.
    """

    def __init__(
        self, *, verify: bool | ssl.SSLContext = True, agent: str = "dragoman", limit: int = MAX_RESPONSE
    ) -> None:
        self._direct = DirectClient(verify=verify, agent=agent)
        self._verify = verify
        self._agent = agent
        self._limit = limit
        self._proxied: HttpClient | None = None
        self._grpc: HttpClient | None = None
        self._proxies = {"http", "https", "all"} & set(getproxies())

    async def send(self, request: HttpRequest) -> HttpResponse:
        """Send a request and wait for the response head.

        Raises:
            CannotConnect: as `HttpClient.send`.
            ConfigError: it is for gRPC, which is not installed.
        """
        if request.url.startswith(("grpc://", "grpcs://")):
            return await self._grpc_client().send(request)
        if not self._proxies or not _needs_proxy(request.url):
            return await self._direct.send(request)
        if self._proxied is None:
            # aiohttp is slow to import and needed only for proxies.
            from dragoman.net.aio import AioClient

            self._proxied = AioClient(verify=self._verify, agent=self._agent)
        return await self._proxied.send(request)

    def _grpc_client(self) -> HttpClient:
        if self._grpc is None:
            # grpcio is an extra, and slow to import.
            from dragoman.net.grpc.client import GrpcClient

            self._grpc = GrpcClient(verify=self._verify, agent=self._agent, limit=self._limit, proxy_of=_grpc_proxy)
        return self._grpc

    async def close(self) -> None:
        await self._direct.close()
        if self._grpc is not None:
            await self._grpc.close()
        if self._proxied is not None:
            await self._proxied.close()


@lru_cache(256)
def _needs_proxy(url: str) -> bool:
    parts = urlsplit(url)
    proxies = getproxies()
    return (
        not is_loopback(url)
        and (parts.scheme in proxies or "all" in proxies)
        and not proxy_bypass(parts.netloc.rpartition("@")[2])
    )


def _grpc_proxy(url: str) -> str | None:
    """Return the proxy on the way to a gRPC server: that for gRPC, or for HTTP with the same security."""
    parts = urlsplit(url)
    proxies = getproxies()
    if is_loopback(url) or proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    names = ("grpc", "https" if parts.scheme == "grpcs" else "http", "all")
    return next((proxies[name] for name in names if name in proxies), None)
