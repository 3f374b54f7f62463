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
from dragoman.net.exchange import HttpRequest, shown
from dragoman.net.place import Place, place_of, spelled
from dragoman.net.wire import Answer, Wire

# A peer that vanished without a word is found out after about two minutes, however long a stream is silent.
_KEEP_ALIVE = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))
# Most servers close a connection that has been idle for five seconds or more; ours is then gone before.
_IDLE = 4.0
_EYEBALLS = 0.25
# As much as is read at once. asyncio would make room for it anew each time, which costs more than the reading.
_ROOM = 128 * 1024
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

    async def send(self, request: HttpRequest) -> Answer:
        """See `HttpClient.send`."""
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop) or self._pool(loop)
        try:
            place = place_of(request.url)
            data = spelled(request, place, self._agent)
        except (ValueError, UnicodeError) as error:
            raise CannotConnect(
                f"{shown(request.url)} cannot be called: {error}", reason="BAD_ADDRESS", arrived=False
            ) from None
        wire = pool.kept(place[:3])
        answer = (wire or await self._connected(pool, place, request)).ask(data, request)
        try:
            await answer.head()
        except CannotConnect as error:
            # A kept connection may be closed by the other side just when it is used again. Asking is harmless.
            if wire is None or error.reason != "CONNECTION_LOST" or request.method not in ("GET", "HEAD"):
                raise
            answer = (await self._connected(pool, place, request)).ask(data, request)
            await answer.head()
        return answer

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

    async def _connected(self, pool: _Pool, place: Place, request: HttpRequest) -> Wire:
        options: dict[str, Any] = {}
        if place.tls:
            context = self._verify if isinstance(self._verify, ssl.SSLContext) else _context(self._verify)
            options = {"ssl": context, "server_hostname": place.host.partition("%")[0]}
        # A number has one address, so there is nothing to race; and uvloop has no such option.
        if not _NUMBER.fullmatch(place.host) and isinstance(pool.loop, asyncio.BaseEventLoop):
            options["happy_eyeballs_delay"] = _EYEBALLS
        try:
            async with asyncio.timeout(request.connect):
                transport, wire = await pool.loop.create_connection(
                    lambda: Wire(pool.rester(place[:3]), pool.room), place.host, place.port, **options
                )
        except OSError as error:
            raise _reached_nobody(error, request) from error
        _keep_alive(transport.get_extra_info("socket"))
        pool.add(wire)
        return wire


class _Pool:
    """The connections of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.all: set[Wire] = set()
        self.room = memoryview(bytearray(_ROOM))
        self._idle: dict[_Key, list[Wire]] = {}

    def kept(self, key: _Key) -> Wire | None:
        """A connection that is free, if there is one."""
        wires = self._idle.get(key)
        while wires:
            wire = wires.pop()
            if wire.usable and self.loop.time() - wire.idle_since < _IDLE:
                return wire
            self.all.discard(wire)
            wire.abort()
        return None

    def add(self, wire: Wire) -> None:
        """Take a new connection in, and forget those that are gone."""
        self.all = {each for each in self.all if each.usable}
        self.all.add(wire)

    def rester(self, key: _Key) -> Callable[[Wire], None]:
        """What a connection calls when it is free for the next exchange."""

        def rested(wire: Wire) -> None:
            wire.idle_since = self.loop.time()
            if wire in self.all:
                self._idle.setdefault(key, []).append(wire)

        return rested

    def close(self) -> None:
        """Cut every connection."""
        wires, self.all, self._idle = self.all, set(), {}
        for wire in wires:
            wire.abort()


@cache
def _context(verify: bool) -> ssl.SSLContext:
    # Reading the authorities takes longer than many a request: once is enough.
    context = ssl.create_default_context()
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _keep_alive(made: socket.socket | None) -> None:
    if made is None:
        return
    with suppress(OSError):
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE:
        with suppress(AttributeError, OSError):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _reached_nobody(error: Exception, request: HttpRequest) -> CannotConnect:
    where = shown(request.url)
    if isinstance(error, ssl.SSLCertVerificationError):
        return CannotConnect(
            f"the certificate of {where} is not trusted: {error.verify_message}", reason="TLS", arrived=False
        )
    if isinstance(error, ssl.SSLError):
        return CannotConnect(f"no TLS with {where}: {error.reason or error}", reason="TLS", arrived=False)
    if isinstance(error, socket.gaierror):
        return CannotConnect(f"{where} cannot be found: no such host", reason="NO_SUCH_HOST", arrived=False)
    if isinstance(error, TimeoutError):
        within = "" if request.connect is None else f" within {request.connect:g} s"
        return CannotConnect(f"{where} did not take the connection{within}", reason="TIMED_OUT", arrived=False)
    why = _why(error)
    return CannotConnect(f"nobody answers at {where}: {why}", arrived=False)


def _why(error: Exception) -> str:
    number = getattr(error, "errno", None)
    return os.strerror(number).lower() if isinstance(number, int) else str(error).lower()
