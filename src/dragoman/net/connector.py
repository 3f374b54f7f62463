"""An aiohttp connector that checks every address at connect time, which defeats DNS rebinding."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from dragoman.net.addresses import parse_address
from dragoman.net.guard import AddressForbidden, AddressGuard

_NUMERIC = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
MakeSocket = Callable[[Any], socket.socket]


class GuardedResolver(AbstractResolver):
    """Resolves a name and returns its addresses only if the guard allows every one of them.

    One forbidden address refuses them all, since mixing is a way to have the forbidden one tried.
    """

    def __init__(self, guard: AddressGuard, resolver: AbstractResolver | None = None) -> None:
        self._guard = guard
        self._owns_resolver = resolver is None
        self._resolver = aiohttp.DefaultResolver() if resolver is None else resolver

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Resolve a host to numeric addresses.

        Raises:
            AddressForbidden: the name, or one of its addresses, is not allowed.
            OSError: it has no address.
        """
        self._guard.check_host(host, port)
        results = await self._resolver.resolve(host, port, family)
        if not results:
            raise OSError(None, "no such host")
        for each in results:
            self._guard.check_address(each["host"], host, port)
        return [_resolve_result(each["host"], host, port) for each in results]

    async def close(self) -> None:
        """Close the underlying resolver, unless it was passed in."""
        if self._owns_resolver:
            await self._resolver.close()


class GuardedConnector(aiohttp.TCPConnector):
    """Connects only to addresses the guard allows, whatever a URL, resolver or cache yields; never by a proxy.

    `resolver` resolves names and `socket_factory` makes the sockets; `options` are those of `aiohttp.TCPConnector`.
    Its session should have `trust_env=False`: a proxy would connect without a check, so proxied requests are refused.
    """

    def __init__(
        self,
        guard: AddressGuard,
        *,
        resolver: AbstractResolver | None = None,
        socket_factory: MakeSocket | None = None,
        **options: Any,
    ) -> None:
        self._guard = guard
        self._guarded_resolver = GuardedResolver(guard, resolver)
        self._make_socket = socket_factory or _open_socket
        super().__init__(  # pyright: ignore[reportUnknownMemberType]
            resolver=self._guarded_resolver, socket_factory=self._open_checked_socket, **options
        )

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Any],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109
    ) -> aiohttp.connector.Connection:
        """Return a connection for a request, new or pooled.

        Raises:
            AddressForbidden: the guard does not allow the target.
        """
        host, port = req.url.raw_host or "", req.url.port or 0
        if req.proxy is not None:
            raise AddressForbidden(
                f"{host} is not called over a proxy: nobody could check what it connects to", host=host
            )
        # A literal address in a URL is not resolved, so the resolver does not see it.
        self._guard.check_host(host, port)
        target = _ConnectTarget(host, port)
        token = _target.set(target)
        try:
            return await super().connect(req, traces, timeout)
        except aiohttp.ClientError:
            if target.forbidden is not None:
                raise target.forbidden from None
            raise
        finally:
            _target.reset(token)

    async def close(self, *, abort_ssl: bool = False) -> None:
        """Close every connection."""
        await super().close(abort_ssl=abort_ssl)
        await self._guarded_resolver.close()

    def _open_checked_socket(self, info: Any) -> socket.socket:
        ip, to = info[4][:2]
        target = _target.get()
        host, port = (ip, to) if target is None else (target.host, target.port)
        try:
            if port != to:
                raise AddressForbidden(f"{host} was asked for at port {port}, not {to}", host=host, address=ip)
            self._guard.check_address(ip, host, port)
        except AddressForbidden as error:
            if target is not None:
                target.forbidden = error
            # Happy eyeballs drops every error that is not an OSError.
            raise OSError(errno.EACCES, str(error)) from error
        return self._make_socket(info)


class _ConnectTarget:
    """The host and port of the request that is being connected, for the socket factory."""

    __slots__ = ("forbidden", "host", "port")

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self.forbidden: AddressForbidden | None = None


_target: ContextVar[_ConnectTarget | None] = ContextVar("dragoman_connect_target", default=None)


def _resolve_result(ip: str, host: str, port: int) -> ResolveResult:
    address = parse_address(ip)
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    return ResolveResult(hostname=host, host=str(address), port=port, family=family, proto=0, flags=_NUMERIC)


def _open_socket(info: Any) -> socket.socket:
    family, kind, proto = info[:3]
    return socket.socket(family, kind, proto)
