"""Answers health checks over gRPC, as `/healthz` and `/readyz` answer them over HTTP."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc

from dragoman.clock import sleep
from dragoman.dialects.protobuf.grpc import HEALTH
from dragoman.transports.grpc.codec import MalformedMessage, codec_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

    from dragoman.clock import Clock

    _Context = grpc.aio.ServicerContext[bytes, bytes]

# SERVING as long as the process is alive: one that waits for its store is not to be restarted.
LIVENESS = "liveness"
# How often the server looks after itself while somebody watches.
SECONDS_BETWEEN_LOOKS = 2.0
# Nobody needs credentials to watch, so there is an end to it.
MAX_WATCHES = 1000
_CODEC = codec_of(HEALTH)
_SERVING, _NOT_SERVING = "SERVING", "NOT_SERVING"


class HealthService:
    """The health of some services. `is_ready` says whether they work; the empty name stands for all of them."""

    def __init__(self, is_ready: Callable[[], Awaitable[bool]], services: Iterable[str], clock: Clock) -> None:
        self._is_ready = is_ready
        self._services = ("", *services)
        self._clock = clock
        # Of those who watch. One looks for all of them.
        self._watchers = 0
        self._looking: asyncio.Task[None] | None = None
        self._last = ""
        self._news = asyncio.Event()
        self._closed = False

    def methods(self) -> dict[str, grpc.RpcMethodHandler[bytes, bytes]]:
        """Return the handlers of the service, by path."""
        handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            "Check": grpc.unary_unary_rpc_method_handler(self._check),
            "List": grpc.unary_unary_rpc_method_handler(self._list),
            "Watch": grpc.unary_stream_rpc_method_handler(self._watch),
        }
        return {f"/{HEALTH}.Health/{name}": handler for name, handler in handlers.items()}

    async def look(self) -> None:
        """Look after the server now, and tell those who watch if something has changed."""
        if not self._watchers:
            return
        status = await self._status()
        if status != self._last:
            self._last = status
            self._spread()

    def close(self) -> None:
        """End every watch."""
        self._closed = True
        self._spread()

    async def _status(self) -> str:
        return _SERVING if await self._is_ready() else _NOT_SERVING

    async def _check(self, data: bytes, context: _Context) -> bytes:
        service = await _service_of(data, context)
        if service == LIVENESS:
            return _response(_SERVING)
        if service not in self._services:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no service {service[:200]!r} here")
        return _response(await self._status())

    async def _list(self, data: bytes, context: _Context) -> bytes:
        status = {"status": await self._status()}
        statuses = dict.fromkeys(self._services, status) | {LIVENESS: {"status": _SERVING}}
        return _CODEC.encode("HealthListResponse", {"statuses": statuses})

    async def _watch(self, data: bytes, context: _Context) -> AsyncIterator[bytes]:
        service = await _service_of(data, context)
        if self._watchers >= MAX_WATCHES:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many watch the health of this server")
        constant = _SERVING if service == LIVENESS else "SERVICE_UNKNOWN" if service not in self._services else ""
        self._begin()
        try:
            sent = ""
            while not self._closed:
                news = self._news
                status = constant or self._last or await self._status()
                if status != sent:
                    sent = status
                    yield _response(status)
                await news.wait()
        finally:
            self._end()
        await context.abort(grpc.StatusCode.UNAVAILABLE, "the server is stopping")

    # -- for those who watch -----------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._watchers += 1
        if self._looking is None:
            self._looking = asyncio.create_task(self._keep_looking())

    def _end(self) -> None:
        self._watchers -= 1
        if not self._watchers and self._looking is not None:
            self._looking.cancel()
            # The next one who watches begins with what is true then.
            self._looking, self._last = None, ""

    async def _keep_looking(self) -> None:
        while True:
            await self.look()
            await sleep(self._clock, SECONDS_BETWEEN_LOOKS)

    def _spread(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


async def _service_of(data: bytes, context: _Context) -> str:
    try:
        request: dict[str, Any] = _CODEC.decode("HealthCheckRequest", data)
    except MalformedMessage as error:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"the message cannot be read: {error}")
    return request.get("service", "")


def _response(status: str) -> bytes:
    return _CODEC.encode("HealthCheckResponse", {"status": status})
