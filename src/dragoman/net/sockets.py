"""The default HTTP client: direct connections, or aiohttp where the environment sets a proxy."""

from __future__ import annotations

import ssl
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from dragoman.net.direct import DirectClient
from dragoman.net.exchange import is_loopback

if TYPE_CHECKING:
    from dragoman.net.exchange import HttpClient, HttpRequest, HttpResponse


class SocketClient:
    """An `HttpClient` that honors proxy variables; loopback addresses never go through a proxy."""

    def __init__(self, *, verify: bool | ssl.SSLContext = True, agent: str = "dragoman") -> None:
        self._direct = DirectClient(verify=verify, agent=agent)
        self._verify = verify
        self._agent = agent
        self._proxied: HttpClient | None = None
        self._proxies = {"http", "https", "all"} & set(getproxies())

    async def send(self, request: HttpRequest) -> HttpResponse:
        if not self._proxies or not _needs_proxy(request.url):
            return await self._direct.send(request)
        if self._proxied is None:
            # aiohttp is slow to import and needed only for proxies.
            from dragoman.net.aio import AioClient

            self._proxied = AioClient(verify=self._verify, agent=self._agent)
        return await self._proxied.send(request)

    async def close(self) -> None:
        await self._direct.close()
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
