"""Connections that a guard lets through: the address that was checked is the address that is connected to."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from dragoman.net.addresses import read_address
from dragoman.net.guard import Forbidden, Guard

_NUMERIC = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
MakeSocket = Callable[[Any], socket.socket]


class GuardedResolver(AbstractResolver):
    """Looks a name up once and gives out its addresses only if the guard lets every one of them through.

    One address that is not allowed refuses them all: who mixes them wants the other one to be tried.
    """

    def __init__(self, guard: Guard, resolver: AbstractResolver | None = None) -> None:
        self._guard = guard
        self._owned = resolver is None
        self._resolver = aiohttp.DefaultResolver() if resolver is None else resolver

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The addresses of a host, as numbers.

        Raises:
            Forbidden: the name, or one of its addresses, is not allowed.
            OSError: it has no address.
        """
        self._guard.check_host(host, port)
        found = await self._resolver.resolve(host, port, family)
        if not found:
            raise OSError(None, "no such host")
        for each in found:
            self._guard.check_address(each["host"], host, port)
        return [_pinned(each["host"], host, port) for each in found]

    async def close(self) -> None:
        """Close the resolver behind this one, unless it was given."""
        if self._owned:
            await self._resolver.close()


class GuardedConnector(aiohttp.TCPConnector):
    """Connects where a guard says it may, whatever a URL, a redirect, a resolver or a cache says; never over a proxy.

    `resolver` looks names up and `socket_factory` makes the sockets; the rest is for `aiohttp.TCPConnector`.
    Its session is to have `trust_env=False`: a proxy of the environment would connect without a check, so that
    requests over one are refused.
    """

    def __init__(
        self,
        guard: Guard,
        *,
        resolver: AbstractResolver | None = None,
        socket_factory: MakeSocket | None = None,
        **options: Any,
    ) -> None:
        self._guard = guard
        self._guarded = GuardedResolver(guard, resolver)
        self._make_socket = socket_factory or _plain_socket
        super().__init__(  # pyright: ignore[reportUnknownMemberType]
            resolver=self._guarded, socket_factory=self._checked_socket, **options
        )

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Any],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109
    ) -> aiohttp.connector.Connection:
        """A connection for a request, new or from the pool.

        Raises:
            Forbidden: it leads where no request may go.
        """
        host, port = req.url.raw_host or "", req.url.port or 0
        if req.proxy is not None:
            raise Forbidden(f"{host} is not called over a proxy: nobody could check what it connects to", host=host)
        # An address in a URL is never looked up, so the resolver does not see it.
        self._guard.check_host(host, port)
        trip = _Trip(host, port)
        token = _trip.set(trip)
        try:
            return await super().connect(req, traces, timeout)
        except aiohttp.ClientError:
            if trip.refused is not None:
                raise trip.refused from None
            raise
        finally:
            _trip.reset(token)

    async def close(self, *, abort_ssl: bool = False) -> None:
        """Close every connection."""
        await super().close(abort_ssl=abort_ssl)
        await self._guarded.close()

    def _checked_socket(self, info: Any) -> socket.socket:
        ip, to = info[4][:2]
        trip = _trip.get()
        host, port = (ip, to) if trip is None else (trip.host, trip.port)
        try:
            if port != to:
                raise Forbidden(f"{host} was asked for at port {port}, not {to}", host=host, address=ip)
            self._guard.check_address(ip, host, port)
        except Forbidden as error:
            if trip is not None:
                trip.refused = error
            # Whoever tries several addresses at once loses every error that is not of the system.
            raise OSError(errno.EACCES, str(error)) from error
        return self._make_socket(info)


class _Trip:
    """Where a request was meant to go, for those who make its sockets."""

    __slots__ = ("host", "port", "refused")

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self.refused: Forbidden | None = None


_trip: ContextVar[_Trip | None] = ContextVar("dragoman_trip", default=None)


def _pinned(ip: str, host: str, port: int) -> ResolveResult:
    address = read_address(ip)
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    return ResolveResult(hostname=host, host=str(address), port=port, family=family, proto=0, flags=_NUMERIC)


def _plain_socket(info: Any) -> socket.socket:
    family, kind, proto = info[:3]
    return socket.socket(family, kind, proto)
